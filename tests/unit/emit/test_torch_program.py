"""From a plan to fx modules, on a graph small enough to follow by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="emits modules of torch")

from lowtide.emit.torch_program import JointModules, joint_modules  # noqa: E402
from lowtide.importers.torch_costs import CostMode  # noqa: E402
from lowtide.importers.torch_dynamo import compile_settings, input_kinds_of, trace_with_aot  # noqa: E402
from lowtide.importers.torch_joint import JointCapture, import_joint  # noqa: E402
from lowtide.ir.sequence import baseline_steps, steps_from_sequence  # noqa: E402


class _Found(Exception):
    """Carries a capture out of a trace."""


def _capture(model: torch.nn.Module, *inputs: Any) -> JointCapture:
    found: list[JointCapture] = []

    def backend(module: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        kinds = input_kinds_of(module)

        def partition(joint: torch.fx.GraphModule, _: object, *, num_fwd_outputs: int, **__: object) -> Any:
            found.append(
                import_joint(
                    joint, num_forward_outputs=num_fwd_outputs, kinds=kinds, mode=CostMode.ESTIMATED, cache=None
                )
            )
            raise _Found

        def unused(*_: object) -> Any:
            raise AssertionError("the model requires gradients")

        return trace_with_aot(
            module,
            example_inputs,
            partition=partition,
            compile_forward=unused,
            compile_backward=unused,
            compile_inference=unused,
        )

    torch._dynamo.reset()
    with compile_settings(), pytest.raises(Exception, match="_Found"):
        torch.compile(lambda *given: model(*given), backend=backend, fullgraph=True, dynamic=False)(*inputs)
    return found[0]


def _ops(module: torch.fx.GraphModule) -> list[str]:
    return [
        getattr(node.target, "__name__", str(node.target)).split(".")[0]
        for node in module.graph.nodes
        if node.op == "call_function"
    ]


class _Sine(torch.nn.Module):
    """sin(exp(w * x)): exp's output is saved for two ops of backward."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.weight * x).exp().sin()


def _modules(capture: JointCapture, *, again: Sequence[str]) -> JointModules:
    """Recompute these nodes at the start of backward."""
    graph = capture.imported.graph
    boundary = graph.order.index("boundary")
    sequence = [*graph.order[: boundary + 1], *again, *graph.order[boundary + 1 :]]
    return joint_modules(capture, steps_from_sequence(graph, sequence))


def test_without_recomputation_backward_takes_what_forward_made() -> None:
    capture = _capture(_Sine(), torch.rand(4))
    modules = joint_modules(capture, baseline_steps(capture.imported.graph))
    assert _ops(modules.forward) == ["mul", "exp", "sin"]
    assert _ops(modules.backward) == ["cos", "mul", "mul", "mul"]
    assert "exp.out" in modules.saved


def test_recomputed_value_is_not_saved() -> None:
    capture = _capture(_Sine(), torch.rand(4))
    modules = _modules(capture, again=["mul", "exp"])
    assert _ops(modules.forward) == ["mul", "exp", "sin"]
    assert _ops(modules.backward) == ["mul", "exp", "cos", "mul", "mul", "mul"]
    inputs = {capture.imported.value_by_fx_node[node] for node in capture.primals}
    assert set(modules.saved) == inputs, "backward starts from nothing but the inputs"


def test_output_carries_the_descriptions_that_aot_needs() -> None:
    capture = _capture(_Sine(), torch.rand(4))
    modules = _modules(capture, again=["mul"])
    (output,) = modules.forward.graph.find_nodes(op="output")
    assert len(output.meta["desc"]) == len(output.args[0]) == 1 + len(modules.saved)
    assert all(node.meta["autograd_backward"] for node in modules.backward.graph.nodes if node.op == "call_function")


def test_recomputed_batch_norm_leaves_the_statistics_alone() -> None:
    class Normed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(x).sin()

    capture = _capture(Normed(), torch.rand(8, 4))
    modules = _modules(capture, again=["_native_batch_norm_legit_functional"])
    assert "_native_batch_norm_legit_functional" in _ops(modules.forward)
    assert "_native_batch_norm_legit_functional" not in _ops(modules.backward)
    again = [node for node in modules.backward.graph.nodes if "no_stats" in str(node.target)]
    assert len(again) == 1
    first = capture.imported.fx_node_by_name["_native_batch_norm_legit_functional"]
    statistics = {capture.imported.value_by_fx_node[node] for node in first.args[3:5]}
    assert len(statistics) == 2
    assert statistics.isdisjoint(modules.saved), "forward has overwritten them by then"


@pytest.mark.parametrize("is_recomputed", [True, False])
def test_generator_state_is_saved_only_for_random_ops_that_run_again(is_recomputed: bool) -> None:
    class Dropped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.dropout(self.weight * x, 0.3)

    capture = _capture(Dropped(), torch.rand(4))
    modules = _modules(capture, again=["dropout_noise"] if is_recomputed else [])
    ops = _ops(modules.forward), _ops(modules.backward)
    assert ("run_and_save_rng_state" in ops[0]) == is_recomputed
    assert ("run_with_rng_state" in ops[1]) == is_recomputed
    assert ("dropout_noise.rng_state" in modules.saved) == is_recomputed
    assert ("dropout_noise.out" in modules.saved) == (not is_recomputed)
