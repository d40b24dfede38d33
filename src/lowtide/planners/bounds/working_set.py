"""The largest working set: what one node needs at once, so that no plan's peak can be below it.

At the first execution of a node its inputs, its fresh outputs and its workspace are resident together, and beside
them the graph inputs that never leave (unevictable, or among the outputs: nothing brings an input back). Storages are
counted once, however many values refer to them.
"""

from __future__ import annotations

from dataclasses import dataclass

from lowtide.ir import Graph
from lowtide.planners.bounds.families import stages_from_graph

__all__ = ["WorkingSet", "largest_working_set"]


@dataclass(frozen=True, slots=True)
class WorkingSet:
    """The bytes that one node needs at once.

    Attributes:
        node: Name of the node, or None for a graph without nodes.
        size_bytes: Its inputs, outputs and workspace, and the inputs of the graph that never leave.
    """

    node: str | None
    size_bytes: int


def largest_working_set(graph: Graph) -> WorkingSet:
    """The node that needs most at once; the first one of several."""
    stages = stages_from_graph(graph)
    always_bytes = 0
    working_bytes = [graph.node_by_name[name].workspace_bytes for name in graph.order]
    for family in stages.families:
        is_input_kept = family.node is None and family.last_use >= len(working_bytes)
        if family.is_pinned_at(-1) or is_input_kept:
            always_bytes += family.size_bytes
            continue
        for stage in family.uses:
            if 0 <= stage < len(working_bytes):
                working_bytes[stage] += family.size_bytes
    if not working_bytes:
        return WorkingSet(None, always_bytes)
    most = max(range(len(working_bytes)), key=working_bytes.__getitem__)
    return WorkingSet(graph.order[most], always_bytes + working_bytes[most])
