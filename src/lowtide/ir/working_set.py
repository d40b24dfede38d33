"""The largest working set: what one node needs at once, so that no plan's peak can be below it.

    node       ■  its inputs, its fresh outputs, its workspace        each storage once
    beside it  ■  graph inputs that are resident at every step        nothing brings a graph input back

A graph input is resident at every step where it cannot be evicted and is never overwritten, or where it or a value on
its storage (a view of it, what overwrites it) is a graph output or unevictable: up to the moment when that value is
made its storage must be there for it, and from then on for good. Two values of one storage might lie in two instances;
counting one keeps the bound valid. It holds for every order of execution.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lowtide.ir.graph import Graph, Input, Node, Value

__all__ = ["WorkingSet", "largest_working_set", "owner_by_value"]


@dataclass(frozen=True, slots=True)
class WorkingSet:
    """What must be resident at once to execute one node.

    Attributes:
        node: Name of the node, or None for a graph without nodes.
        size_bytes: Bytes of its inputs, fresh outputs and workspace, and of graph inputs that can never leave.
    """

    node: str | None
    size_bytes: int


def largest_working_set(graph: Graph) -> WorkingSet:
    """The node that needs most bytes at its first execution, whatever the plan; of several the first in the order.

    Args:
        graph: What is executed.
    """
    owners = owner_by_value(graph)
    resident = _always_resident(graph, owners)
    if not graph.order:
        return WorkingSet(None, sum(_counted_bytes(graph.value_by_name[name]) for name in resident))
    sets = (
        WorkingSet(name, _working_set_bytes(graph, graph.node_by_name[name], owners, resident)) for name in graph.order
    )
    return max(sets, key=lambda working_set: working_set.size_bytes)


def owner_by_value(graph: Graph) -> Mapping[str, str]:
    """The value whose execution allocated the bytes of each value: the end of its aliases and overwritings."""
    owners = {graph_input.name: graph_input.name for graph_input in graph.inputs}
    for name in graph.order:
        for value in graph.node_by_name[name].outputs:
            base = graph.value_by_name[graph.base_by_value[value.name]]
            taken = base.overwrites if isinstance(base, Value) else None
            owners[value.name] = base.name if taken is None else owners[taken]
    return owners


def _working_set_bytes(graph: Graph, node: Node, owners: Mapping[str, str], resident: set[str]) -> int:
    names = resident | {owners[name] for name in node.inputs}
    read_bytes = sum(_counted_bytes(graph.value_by_name[name]) for name in names)
    fresh_bytes = sum(value.size_bytes for value in node.outputs if value.owns_storage)
    return read_bytes + fresh_bytes + node.workspace_bytes


def _always_resident(graph: Graph, owners: Mapping[str, str]) -> set[str]:
    overwritten = {
        owners[value.overwrites] for node in graph.nodes for value in node.outputs if value.overwrites is not None
    }
    staying = {owners[name] for name in graph.outputs}
    for name, value in graph.value_by_name.items():
        if not value.evictable and owners[name] not in overwritten:
            staying.add(owners[name])
    return {graph_input.name for graph_input in graph.inputs if graph_input.name in staying}


def _counted_bytes(value: Input | Value) -> int:
    return 0 if isinstance(value, Input) and not value.is_counted else value.size_bytes
