"""What a graph needs without recomputation, and what it needs in any case."""

from __future__ import annotations

from dataclasses import dataclass

from lowtide.ir import Graph, Input, Node, Value
from lowtide.ir.sequence import baseline_steps
from lowtide.referee.replay import Replay, replay

__all__ = ["WorkingSet", "baseline", "largest_working_set"]


@dataclass(frozen=True, slots=True)
class WorkingSet:
    """What must be resident at once to execute one node.

    Attributes:
        node: The node, or None for a graph without nodes.
        size_bytes: Bytes of its inputs, fresh outputs, workspace, and of graph inputs that can never leave.
    """

    node: str | None
    size_bytes: int


def baseline(graph: Graph) -> Replay:
    """Replay the given order without recomputation, each value evicted right after its last use.

    Raises:
        PlanRejected: The given order cannot be carried out, e.g. because it reads an input after it was overwritten.
    """
    return replay(graph, baseline_steps(graph))


def largest_working_set(graph: Graph) -> WorkingSet:
    """The node that needs most bytes at its first execution, whatever the plan: no plan's peak is below that.

    Counted are, each storage once: the node's inputs, graph inputs that are resident at every step of every plan
    (graph outputs, or unevictable and never overwritten), the outputs it allocates, and its workspace. Two inputs of
    one storage might lie in two instances; counting one keeps the bound valid.
    """
    owner_by_value = _owner_by_value(graph)
    resident = _always_resident(graph, owner_by_value)
    sets = (WorkingSet(node.name, _working_set_bytes(graph, node, owner_by_value, resident)) for node in graph.nodes)
    return max(sets, key=lambda working_set: working_set.size_bytes, default=WorkingSet(None, 0))


def _working_set_bytes(graph: Graph, node: Node, owner_by_value: dict[str, str], resident: set[str]) -> int:
    owners = resident | {owner_by_value[name] for name in node.inputs}
    read_bytes = sum(_counted_bytes(graph.value_by_name[name]) for name in owners)
    fresh_bytes = sum(value.size_bytes for value in node.outputs if value.owns_storage)
    return read_bytes + fresh_bytes + node.workspace_bytes


def _owner_by_value(graph: Graph) -> dict[str, str]:
    """The value whose execution allocated the bytes of each value: the end of its aliases and overwritings."""
    owner_by_value = {graph_input.name: graph_input.name for graph_input in graph.inputs}
    for name in graph.order:
        for value in graph.node_by_name[name].outputs:
            base = graph.value_by_name[graph.base_by_value[value.name]]
            source = base.overwrites if isinstance(base, Value) else None
            owner_by_value[value.name] = base.name if source is None else owner_by_value[source]
    return owner_by_value


def _always_resident(graph: Graph, owner_by_value: dict[str, str]) -> set[str]:
    overwritten = {
        owner_by_value[value.overwrites]
        for node in graph.nodes
        for value in node.outputs
        if value.overwrites is not None
    }
    return {
        graph_input.name
        for graph_input in graph.inputs
        if graph_input.name in graph.outputs or (not graph_input.evictable and graph_input.name not in overwritten)
    }


def _counted_bytes(value: Input | Value) -> int:
    return 0 if isinstance(value, Input) and not value.is_counted else value.size_bytes
