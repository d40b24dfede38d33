"""The law of the executor: every plan that the referee accepts computes the same bits as no plan at all.

Each model is traced and called once; then forward and backward of many random plans are run on the very arguments of
that call. What a trained step computes under the plain plan is compared with eager in test_compile_bits.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="compiles torch models")
pytest.importorskip("transformers", reason="compiles models of transformers")

import lowtide.models  # noqa: E402
from lowtide.emit.torch_program import boxed_callable, joint_modules  # noqa: E402
from lowtide.importers.torch_costs import CostMode  # noqa: E402
from lowtide.importers.torch_dynamo import compile_settings, input_kinds_of, trace_with_aot  # noqa: E402
from lowtide.importers.torch_joint import JointCapture, import_joint  # noqa: E402
from lowtide.ir import Step  # noqa: E402
from lowtide.ir.sequence import baseline_steps  # noqa: E402
from lowtide.measure.numerics import compare_tensors  # noqa: E402
from lowtide.referee import replay  # noqa: E402

pytest.MonkeyPatch().syspath_prepend(str(Path(__file__).parent))

import compile_cases as cases  # noqa: E402

SEED = 17
NUM_PLANS = 6


@dataclass
class Recording:
    """A traced model and the arguments of one call of its forward and backward."""

    captures: list[JointCapture] = field(default_factory=list)
    primals: list[Any] = field(default_factory=list)
    tangents: list[Any] = field(default_factory=list)

    @property
    def capture(self) -> JointCapture:
        return self.captures[0]

    def backend(self, module: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        kinds = input_kinds_of(module)

        def partition(joint: torch.fx.GraphModule, _: object, *, num_fwd_outputs: int, **__: object) -> Any:
            capture = import_joint(
                joint, num_forward_outputs=num_fwd_outputs, kinds=kinds, mode=CostMode.ESTIMATED, cache=None
            )
            self.captures.append(capture)
            modules = joint_modules(capture, baseline_steps(capture.imported.graph))
            return modules.forward, modules.backward

        def forward(module: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
            return self._recording(boxed_callable(module), self.primals, count=len(self.capture.primals))

        def backward(module: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
            return self._recording(boxed_callable(module), self.tangents, count=len(self.capture.tangents))

        def inference(*_: object) -> Any:
            raise AssertionError("the model requires gradients")

        return trace_with_aot(
            module,
            example_inputs,
            partition=partition,
            compile_forward=forward,
            compile_backward=backward,
            compile_inference=inference,
        )

    def run(self, steps: Sequence[Step]) -> dict[str, torch.Tensor]:
        """Run forward and backward of a plan; every result by name, and the generator's state after each."""
        modules = joint_modules(self.capture, steps)
        torch.manual_seed(SEED)
        count = len(self.capture.forward_outputs)
        arguments = _copies(self.primals)
        results = boxed_callable(modules.forward)(arguments)
        assert arguments == [], "forward takes its arguments off the list, so that it can drop them"
        bits = {f"forward{index}": result for index, result in enumerate(results[:count]) if _is_tensor(result)}
        bits["rng_after_forward"] = torch.get_rng_state()
        bits = {name: tensor.clone() for name, tensor in bits.items()}
        torch.manual_seed(SEED + 1)  # backward must leave the generator alone, wherever it stands
        gradients = boxed_callable(modules.backward)([*results[count:], *_copies(self.tangents)])
        bits.update({f"backward{index}": grad for index, grad in enumerate(gradients) if _is_tensor(grad)})
        bits["rng_after_backward"] = torch.get_rng_state()
        return bits

    @staticmethod
    def _recording(run: Callable[[list[Any]], Any], into: list[Any], *, count: int) -> Callable[[list[Any]], Any]:
        def recording(arguments: list[Any]) -> Any:
            into[:] = _copies(arguments[len(arguments) - count :])
            return run(arguments)

        recording._boxed_call = True  # type: ignore[attr-defined]
        return recording


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


def _copies(values: Sequence[Any]) -> list[Any]:
    return [value.detach().clone() if isinstance(value, torch.Tensor) else value for value in values]


@pytest.fixture(scope="module", params=["unet", "resnet50_like", "gpt2", "bert", "swin"])
def recording(request: pytest.FixtureRequest) -> Iterator[Recording]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch._dynamo.reset()
    options = {"depth": 1} if request.param in ("gpt2", "bert") else {}
    model, inputs, loss_function = getattr(lowtide.models, f"{request.param}_tiny")(dropout_p=0.15, **options)
    recorded = Recording()
    compiled = torch.compile(model, backend=recorded.backend, fullgraph=True, dynamic=False)
    with compile_settings():
        loss_function(compiled(*inputs)).backward()
    yield recorded
    torch.set_num_threads(threads)


@pytest.mark.parametrize("seed", range(NUM_PLANS))
def test_every_plan_computes_the_same(recording: Recording, seed: int) -> None:
    graph = recording.capture.imported.graph
    plain = recording.run(baseline_steps(graph))
    assert [str(difference) for difference in compare_tensors(plain, recording.run(baseline_steps(graph)))] == []
    plans = cases.RandomPlans(seed=seed, recompute_p=(0.05, 0.2, 0.6)[seed % 3], late_p=(0.0, 0.3, 1.0)[seed % 3])
    steps = plans.steps(graph)
    assert replay(graph, steps).num_recomputes > 3
    assert [str(difference) for difference in compare_tensors(plain, recording.run(steps))[:5]] == []


def test_plans_that_recompute_every_operation(recording: Recording) -> None:
    """All of forward once more at the start of backward, from nothing but inputs and what must not run again."""
    graph = recording.capture.imported.graph
    boundary = graph.order.index(recording.capture.imported.boundary_name or "")
    again = [name for name in graph.order[:boundary] if graph.node_by_name[name].recomputable]
    assert len(again) > 20
    sequence = [*graph.order[: boundary + 1], *again, *graph.order[boundary + 1 :]]
    steps = cases.steps_from_sequence(graph, sequence)
    assert len(joint_modules(recording.capture, steps).saved) < len(
        joint_modules(recording.capture, baseline_steps(graph)).saved
    )
    plain = recording.run(baseline_steps(graph))
    assert [str(difference) for difference in compare_tensors(plain, recording.run(steps))[:5]] == []
