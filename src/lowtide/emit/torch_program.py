"""From a verified plan to the fx modules that execute it.

    plan      f1 f2 f3 | boundary | f2 b3 b2 b1           f2 is recomputed in backward
    forward   f1 f2 f3 ──▶ outputs, saved values          the prefix up to the boundary
    backward  saved values, tangents ──▶ f2 b3 b2 b1      the rest

Each execution becomes a node of its own, in the plan's order. Generated code drops every tensor after its last use,
which is what the plan's evictions say (or sooner, where a plan keeps a value longer than anybody reads it).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._prims.rng_prims import run_and_save_rng_state, run_with_rng_state
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.graph import _BoxedCodeGen

from lowtide.importers.torch_graph import FxImport
from lowtide.importers.torch_joint import ForwardCapture, JointCapture
from lowtide.importers.torch_rng import RNG_STATE_BYTES, is_rng, rng_state_of
from lowtide.ir import Compute, Evict, Step

__all__ = ["JointModules", "boxed_callable", "forward_module", "joint_modules"]

_WITHOUT_STATISTICS = {
    torch.ops.aten._native_batch_norm_legit_functional.default: torch.ops.aten._native_batch_norm_legit.no_stats
}
"""What recomputes an op whose statistics count once: the same op without the running statistics."""


@dataclass(frozen=True)
class JointModules:
    """The two modules of a joint plan.

    Attributes:
        forward: Returns forward's outputs, then the saved values.
        backward: Takes the saved values, then the tangents; returns the gradients.
        saved: The saved values by name, in that order.
    """

    forward: fx.GraphModule
    backward: fx.GraphModule
    saved: tuple[str, ...]


def joint_modules(capture: JointCapture, steps: Sequence[Step]) -> JointModules:
    """Split a plan of a joint graph at its boundary into forward and backward.

    Args:
        capture: The joint graph.
        steps: A plan that the referee has accepted.
    """
    imported = capture.imported
    boundary = steps.index(Compute(imported.boundary_name or ""))
    again = _executed_again(steps)

    forward = _Writer(imported, again)
    for primal in capture.primals:
        forward.placeholder(primal)
    forward.constants()
    forward.write(steps[:boundary])
    saved = forward.ordered_saved(_read_later(forward, imported, steps[boundary + 1 :], capture.backward_outputs))

    backward = _Writer(imported, again, computed=forward.computed)
    for value in saved:
        backward.saved_placeholder(value, forward.resident[value])
    for tangent in capture.tangents:
        backward.placeholder(tangent)
    backward.constants()
    backward.write(steps[boundary + 1 :])

    forward.finish(
        [*forward.results(capture.forward_outputs), *(forward.resident[value] for value in saved)],
        [*capture.forward_descriptions, *_saved_descriptions(len(saved))],
    )
    backward.finish(backward.results(capture.backward_outputs), capture.backward_descriptions)
    for node in backward.graph.nodes:
        if node.op == "call_function":
            node.meta["autograd_backward"] = True
    return JointModules(
        forward=fx.GraphModule(capture.module, forward.graph),
        backward=fx.GraphModule(capture.module, backward.graph),
        saved=tuple(saved),
    )


def forward_module(capture: ForwardCapture, steps: Sequence[Step]) -> fx.GraphModule:
    """The module that executes a plan of an inference graph."""
    writer = _Writer(capture.imported, _executed_again(steps))
    for primal in capture.primals:
        writer.placeholder(primal)
    writer.constants()
    writer.write(steps)
    writer.finish(writer.results(capture.outputs), [None] * len(capture.outputs))
    return fx.GraphModule(capture.module, writer.graph)


def boxed_callable(module: fx.GraphModule) -> Callable[[list[Any]], Any]:
    """Compile a module to Python that empties its list of arguments and drops each tensor after its last use."""
    module.graph.set_codegen(_BoxedCodeGen())
    module.recompile()
    forward = module.forward

    def run(arguments: list[Any]) -> Any:
        return forward(arguments)

    run._boxed_call = True  # type: ignore[attr-defined]  # how AOTAutograd knows
    return run


class _Writer:
    """Writes executions into a new fx graph; knows at each step which node holds which resident value."""

    def __init__(self, imported: FxImport, again: frozenset[str], *, computed: Iterable[str] = ()) -> None:
        self.graph = fx.Graph()
        self.resident: dict[str, fx.Node] = {}
        self.computed: set[str] = set(computed)
        self._imported = imported
        self._again = again
        self._others: dict[fx.Node, fx.Node] = {}  # numbers among the placeholders, subgraphs

    def placeholder(self, original: fx.Node) -> None:
        """Add an argument."""
        node = self.graph.placeholder(original.name)
        node.meta = dict(original.meta)
        if original in self._imported.value_by_fx_node:
            self.resident[self._imported.value_by_fx_node[original]] = node
        else:
            self._others[original] = node

    def saved_placeholder(self, value: str, saved: fx.Node) -> None:
        """Add an argument that holds a value of forward."""
        node = self.graph.placeholder(saved.name)
        node.meta = dict(saved.meta)
        self.resident[value] = node

    def constants(self) -> None:
        """Make the graph's constants and subgraphs readable."""
        for original in self._imported.fx_graph.find_nodes(op="get_attr"):
            node = self.graph.get_attr(original.target)
            node.meta = dict(original.meta)
            value = self._imported.value_by_fx_node.get(original)
            if value is None:
                self._others[original] = node
            else:
                self.resident.setdefault(value, node)

    def write(self, steps: Sequence[Step]) -> None:
        """Write the executions of these steps."""
        for step in steps:
            if isinstance(step, Evict):
                self.resident.pop(step.value, None)
            else:
                self._execute(step.node)
                self.computed.add(step.node)

    def results(self, outputs: Sequence[Any]) -> list[Any]:
        """The nodes that hold the original graph's outputs; what is no tensor stays as it is."""
        return [self._argument(output) if isinstance(output, fx.Node) else output for output in outputs]

    def finish(self, results: Sequence[Any], descriptions: Sequence[Any]) -> None:
        """Add the output, and drop what nobody reads."""
        output = self.graph.output(tuple(results))
        output.meta["desc"] = list(descriptions)
        for node in reversed(list(self.graph.nodes)):
            if node.op == "get_attr" and not node.users:
                self.graph.erase_node(node)
        self.graph.lint()

    def ordered_saved(self, values: Sequence[str]) -> list[str]:
        """Values as AOTAutograd expects them: those without a version check last."""
        return sorted(values, key=lambda value: bool(self.resident[value].meta.get("saved_tensor_with_no_vc_check")))

    def _execute(self, name: str) -> None:
        original = self._imported.fx_node_by_name[name]
        if name in self.computed and original.target in _WITHOUT_STATISTICS:
            inputs, weight, bias, _, _, *rest = original.args
            arguments = fx.map_arg((inputs, weight, bias, *rest), self._argument)
            result = self.graph.call_function(_WITHOUT_STATISTICS[original.target], arguments)
        else:
            result = self._call(name, original)
        result.meta = dict(original.meta)
        self._keep_outputs(original, result)

    def _call(self, name: str, original: fx.Node) -> fx.Node:
        arguments = fx.map_arg(original.args, self._argument)
        options = fx.map_arg(original.kwargs, self._argument)
        if is_rng(original) and name in self._again:
            return self._execute_random(name, original, arguments, options)
        return self.graph.call_function(_op(original), arguments, options)

    def _execute_random(self, name: str, original: fx.Node, arguments: Any, options: Any) -> fx.Node:
        """Save the generator's state before the first execution; run later ones with it and put the generator back."""
        if name in self.computed:
            state = self.resident[rng_state_of(name)]
            return self.graph.call_function(run_with_rng_state, (state, _op(original), *arguments), options)
        pair = self.graph.call_function(run_and_save_rng_state, (_op(original), *arguments), options)
        state = self.graph.call_function(operator.getitem, (pair, 0))
        state.meta = {"val": _fake_rng_state(original)}
        self.resident[rng_state_of(name)] = state
        return self.graph.call_function(operator.getitem, (pair, 1))

    def _keep_outputs(self, original: fx.Node, result: fx.Node) -> None:
        """Make the fresh outputs resident; where an old copy still is, the fresh one is dropped."""
        own = self._imported.value_by_fx_node.get(original)
        if own is not None:
            self.resident.setdefault(own, result)
            return
        for item in original.users:
            value = self._imported.value_by_fx_node.get(item)
            if item.target is operator.getitem and value is not None and value not in self.resident:
                if original.name in self.computed and self._is_first_only(value):
                    continue
                node = self.graph.call_function(operator.getitem, (result, item.args[1]))
                node.meta = dict(item.meta)
                self.resident[value] = node

    def _is_first_only(self, value: str) -> bool:
        noun = self._imported.graph.value_by_name[value]
        return bool(getattr(noun, "first_only", False))

    def _argument(self, original: fx.Node) -> fx.Node:
        value = self._imported.value_by_fx_node.get(original)
        return self._others[original] if value is None else self.resident[value]


def _op(original: fx.Node) -> Any:
    return original.target


def _executed_again(steps: Sequence[Step]) -> frozenset[str]:
    once: set[str] = set()
    again: set[str] = set()
    for step in steps:
        if isinstance(step, Compute):
            (again if step.node in once else once).add(step.node)
    return frozenset(again)


def _read_later(forward: _Writer, imported: FxImport, steps: Sequence[Step], outputs: Sequence[Any]) -> list[str]:
    """Values resident at the boundary whose copy backward reads, in the order in which they are first read."""
    alive = set(forward.resident)
    fresh: set[str] = set()
    computed = set(forward.computed)
    read: dict[str, None] = {}
    for step in steps:
        if isinstance(step, Evict):
            alive.discard(step.value)
            fresh.discard(step.value)
            continue
        node = imported.graph.node_by_name[step.node]
        reads = (*node.inputs, *node.recompute_inputs) if step.node in computed else node.inputs
        unread = _unread_again(imported, step.node) if step.node in computed else frozenset()
        read.update(dict.fromkeys(value for value in reads if value in alive and value not in unread))
        computed.add(step.node)
        fresh.update(value.name for value in node.outputs if value.name not in alive)
    names = (imported.value_by_fx_node.get(node) for node in outputs if isinstance(node, fx.Node))
    read.update(dict.fromkeys(name for name in names if name is not None and name in alive and name not in fresh))
    constants = {imported.value_by_fx_node.get(node) for node in imported.fx_graph.find_nodes(op="get_attr")}
    return [value for value in read if value not in constants]


def _unread_again(imported: FxImport, name: str) -> frozenset[str]:
    """Inputs that only the first execution of a node reads: running statistics."""
    original = imported.fx_node_by_name.get(name)
    if original is None or original.target not in _WITHOUT_STATISTICS:
        return frozenset()
    statistics = [node for node in original.args[3:5] if isinstance(node, fx.Node)]
    return frozenset(imported.value_by_fx_node[node] for node in statistics)


def _fake_rng_state(original: fx.Node) -> torch.Tensor:
    val = original.meta["val"]
    first = next((item for item in (val if isinstance(val, tuple | list) else [val]) if item is not None), None)
    if isinstance(first, FakeTensor):
        with first.fake_mode:
            return torch.empty(RNG_STATE_BYTES, dtype=torch.uint8)
    return torch.empty(RNG_STATE_BYTES, dtype=torch.uint8, device="meta")


def _saved_descriptions(count: int) -> list[Any]:
    from torch._functorch._aot_autograd.descriptors import SavedForBackwardsAOTOutput

    return [SavedForBackwardsAOTOutput(index) for index in range(count)]
