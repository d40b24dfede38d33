"""Ops that are traced as eager computes them."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="traces ops of torch")

from torch._functorch.aot_autograd import aot_function  # noqa: E402
from torch.nn import functional  # noqa: E402

from lowtide.importers.torch_eager_dropout import eager_dropout  # noqa: E402


def _traced_ops(function: Any, *inputs: Any, eager: bool) -> list[str]:
    graphs: list[Any] = []

    def keep(module: Any, _: object) -> Any:
        graphs.append(module.graph)
        return module

    traced = aot_function(function, fw_compiler=keep, bw_compiler=keep)
    if eager:
        with eager_dropout():
            traced(*inputs)
    else:
        traced(*inputs)
    return [str(node.target) for node in graphs[0].nodes if node.op == "call_function"]


@pytest.mark.parametrize(
    ("function", "op"),
    [
        (lambda x: functional.dropout(x, 0.3), "lowtide.dropout_noise.default"),
        (lambda x: functional.dropout(x * 2, 0.3, inplace=True), "lowtide.dropout_noise.default"),
        (lambda x: functional.alpha_dropout(x, 0.3, training=True), "lowtide.bernoulli_like.default"),
        (lambda x: functional.interpolate(x, size=(3, 5), mode="bilinear"), "aten.upsample_bilinear2d.default"),
        (lambda x: functional.interpolate(x, size=(3, 5), mode="bicubic"), "aten.upsample_bicubic2d.default"),
        (lambda x: functional.softshrink(x), "aten.softshrink.default"),
    ],
)
def test_traced_only_while_the_context_lasts(function: Any, op: str) -> None:
    x = torch.rand(2, 2, 4, 4, requires_grad=True)
    assert op in _traced_ops(function, x, eager=True)
    assert op not in _traced_ops(function, x, eager=False), "decomposed, as torch would"


@pytest.mark.parametrize("p", [0.0, 0.15, 1.0])
def test_nothing_is_drawn_where_eager_draws_nothing(p: float) -> None:
    ops = _traced_ops(lambda x: functional.dropout(x, p) * 2, torch.rand(4, requires_grad=True), eager=True)
    assert ("lowtide.dropout_noise.default" in ops) == (p == 0.15)


def test_an_error_inside_puts_the_kernels_back() -> None:
    op = torch.ops.aten.dropout.default
    before = dict(op.py_kernels)

    def fail() -> None:
        with eager_dropout():
            assert op.py_kernels != before
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fail()
    assert op.py_kernels == before


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_noise_has_the_layout_and_the_values_of_eager(memory_format: torch.memory_format) -> None:
    x = torch.rand(2, 3, 4, 5).contiguous(memory_format=memory_format)
    torch.manual_seed(0)
    expected = functional.dropout(x, 0.3)
    torch.manual_seed(0)
    noise = torch.ops.lowtide.dropout_noise(x, 0.7)
    assert noise.stride() == x.stride()
    assert torch.equal(x * noise, expected)
