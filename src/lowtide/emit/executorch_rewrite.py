"""ExecuTorch's graph in the order of a plan, recomputed nodes once more.

alloc ▸ conv.out          the first execution keeps the fx nodes that there are, moved to their place
alloc' ▸ conv.out'        every further one gets fx nodes and tensors of its own; weights are shared
relu.out(conv')           whoever reads, reads the copy of the plan
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from torch import fx
from torch.utils import _pytree as pytree

from lowtide.emit.program import Copy, Execution, Program
from lowtide.importers.executorch_graph import LoweredGraph, tensor_specs
from lowtide.ir import Value

__all__ = ["rewrite"]


def rewrite(graph_module: fx.GraphModule, lowered: LoweredGraph, program: Program) -> Mapping[Copy, Any]:
    """Rewrite a graph in place.

    Args:
        graph_module: What ``lowered`` was imported from.
        lowered: Its Graph.
        program: What is executed.

    Returns:
        The ``TensorSpec`` of every copy.
    """
    return _Rewriting(graph_module, lowered, program).run()


class _Rewriting:
    """One rewriting, execution by execution; ``node_by_copy`` says which fx node holds a copy of a value."""

    def __init__(self, graph_module: fx.GraphModule, lowered: LoweredGraph, program: Program) -> None:
        self.graph_module = graph_module
        self.lowered = lowered
        self.program = program
        self.output = next(iter(graph_module.graph.find_nodes(op="output")))
        nodes = graph_module.graph.nodes
        self.original_args = {node: (node.args, node.kwargs) for node in nodes}
        self.original_specs = {node: node.meta["spec"] for node in nodes if "spec" in node.meta}
        self.value_by_holder = {
            node: lowered.value_by_spec[id(specs[0])]
            for node in lowered.node_by_fx_node
            if (specs := tensor_specs(node)) and id(specs[0]) in lowered.value_by_spec
        }
        self.new_by_old: dict[tuple[str, int], dict[fx.Node, fx.Node]] = {}
        self.spec_by_copy: dict[Copy, Any] = {
            (entry.name, 0): lowered.spec_by_value[entry.name] for entry in lowered.graph.inputs
        }

    def run(self) -> Mapping[Copy, Any]:
        num_executed: dict[str, int] = {}
        for execution in self.program.executions:
            occurrence = num_executed.get(execution.node, 0)
            num_executed[execution.node] = occurrence + 1
            self._execute(execution, occurrence)
        self._return_kept_copies()
        self.graph_module.graph.lint()
        self.graph_module.recompile()
        return self.spec_by_copy

    def _execute(self, execution: Execution, occurrence: int) -> None:
        """Put the fx nodes of an execution before the output: behind all that were put there so far."""
        members = self.lowered.fx_nodes_by_node.get(execution.node, ())
        specs = self._specs(execution, occurrence)
        new_by_old: dict[fx.Node, fx.Node] = {}
        self.new_by_old[execution.node, occurrence] = new_by_old

        def reading(source: fx.Node) -> fx.Node:
            return new_by_old[source] if source in new_by_old else self._holder(source, execution.copy_by_input)

        for member in members:
            args, kwargs = (fx.map_arg(each, reading) for each in self.original_args[member])
            if occurrence == 0:
                self.output.prepend(member)
                member.args, member.kwargs = args, kwargs
                placed = member
            else:
                with self.graph_module.graph.inserting_before(self.output):
                    placed = self.graph_module.graph.create_node(member.op, member.target, args, kwargs)
                placed.meta = copy.copy(member.meta)
            if member in self.original_specs:
                placed.meta["spec"] = _with_specs(self.original_specs[member], specs)
            new_by_old[member] = placed

    def _specs(self, execution: Execution, occurrence: int) -> Mapping[int, Any]:
        """The tensors that an execution writes, by the ``id`` of those that the graph came with."""
        found = {}
        for value, written in execution.copy_by_output.items():
            original = self.lowered.spec_by_value[value]
            spec = self._spec_of_copy(value, execution, occurrence)
            found[id(original)] = spec
            self.spec_by_copy[written] = spec
        return found

    def _spec_of_copy(self, value: str, execution: Execution, occurrence: int) -> Any:
        original = self.lowered.spec_by_value[value]
        base = self._base_read(value, execution)
        if occurrence == 0 and (base is None or base[1] == 0):
            return original
        if base is not None:  # the spec of a view names the tensor that it is a view of
            return type(original)(self.spec_by_copy[base], original.shape)
        spec = copy.copy(original)
        spec.init_mem_planning_fields()
        return spec

    def _base_read(self, value: str, execution: Execution) -> Copy | None:
        """For a view, the copy that it is a view of."""
        source = self.lowered.graph.value_by_name[value]
        alias_of = source.alias_of if isinstance(source, Value) else None
        return None if alias_of is None else execution.copy_by_input[alias_of]

    def _holder(self, source: fx.Node, copy_by_value: Mapping[str, Copy]) -> fx.Node:
        """The fx node that holds what ``source`` does, of the copy that is meant; inputs and modules are themselves."""
        producer = self.lowered.node_by_fx_node.get(source)
        if producer is None:
            return source
        return self.new_by_old[producer, copy_by_value[self.value_by_holder[source]][1]][source]

    def _return_kept_copies(self) -> None:
        specs = {
            id(self.lowered.spec_by_value[value]): self.spec_by_copy[self._returned_copy(value)]
            for value in self.lowered.graph.outputs
        }
        self.output.args = fx.map_arg(self.output.args, lambda source: self._holder(source, self.program.kept))
        self.output.meta["spec"] = _with_specs(self.output.meta["spec"], specs)

    def _returned_copy(self, value: str) -> Copy:
        """Where the result of an op in place is returned, what it wrote over: ExecuTorch would allocate it again."""
        kept = self.program.kept[value]
        producer = self.lowered.graph.producer_by_value.get(value)
        is_in_place = producer is not None and producer.is_view and producer.name in self.lowered.executed
        return self.program.storage_by_copy[kept] if is_in_place else kept


def _with_specs(structure: Any, spec_by_id: Mapping[int, Any]) -> Any:
    return pytree.tree_map(lambda leaf: spec_by_id.get(id(leaf), leaf), structure)
