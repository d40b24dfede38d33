"""Runs in a process whose malloc is counted: scratch of single ops, as malloc sees it and as profiled."""

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from lowtide.importers.torch_costs import CostMode, cost_nodes
from lowtide.measure import active_meter

aten = torch.ops.aten


def measure() -> dict[str, dict[str, int]]:
    """Scratch bytes of some ops, counted by malloc and profiled."""
    return {name: _measure(name) for name in CALLS}


def _measure(name: str) -> dict[str, int]:
    torch.set_num_threads(1)
    op, inputs = CALLS[name]()
    with torch.no_grad():
        op(*inputs)  # what libraries set up once
        meter = active_meter()
        meter.reset_peak()
        result = op(*inputs)  # kept, so that what is live afterwards holds the outputs
        by_malloc = meter.peak_bytes() - meter.live_bytes()
        del result
    with FakeTensorMode() as mode:
        module = make_fx(op)(*[mode.from_tensor(value) for value in inputs])
    nodes = [node for node in module.graph.nodes if node.op == "call_function"]
    costs = cost_nodes(nodes, mode=CostMode.PROFILED, cache=None)
    return {"by_malloc": by_malloc, "profiled": sum(cost.workspace_bytes for cost in costs)}


def _convolution() -> tuple[Callable[..., Any], list[torch.Tensor]]:
    def op(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return aten.convolution.default(x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)

    return op, [torch.rand(8, 16, 64, 64), torch.rand(32, 16, 3, 3)]


def _convolution_backward() -> tuple[Callable[..., Any], list[torch.Tensor]]:
    def op(g: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return aten.convolution_backward.default(
            g, x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False]
        )

    return op, [torch.rand(8, 32, 64, 64), torch.rand(8, 16, 64, 64), torch.rand(32, 16, 3, 3)]


def _unet_head_backward() -> tuple[Callable[..., Any], list[torch.Tensor]]:
    """Last convolution of `lowtide.models.unet`: torch's allocator sees no scratch, oneDNN takes 1.2 MB by itself."""

    def op(g: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return aten.convolution_backward.default(
            g, x, w, [3], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, True]
        )

    return op, [torch.rand(2, 3, 136, 136), torch.rand(2, 16, 136, 136), torch.rand(3, 16, 1, 1)]


def _attention() -> tuple[Callable[..., Any], list[torch.Tensor]]:
    def op(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return aten._scaled_dot_product_flash_attention_for_cpu.default(q, k, v)

    return op, [torch.rand(4, 8, 256, 64) for _ in range(3)]


def _strided_bmm() -> tuple[Callable[..., Any], list[torch.Tensor]]:
    return aten.bmm.default, [torch.rand(16, 256, 256)[:, ::2, ::2], torch.rand(16, 128, 128)]


CALLS: dict[str, Callable[[], tuple[Callable[..., Any], list[torch.Tensor]]]] = {
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "unet_head_backward": _unet_head_backward,
    "attention": _attention,
    "strided_bmm": _strided_bmm,
}
