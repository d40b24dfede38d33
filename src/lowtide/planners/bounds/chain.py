"""A graph seen along a chain of nodes that every topological order visits alike: what makes a bound free of the order.

    chain        c0 ──▶ c1 ──▶ c2 ──▶ c3        each an ancestor of the next, by data or by ``after``
    u            made by c0; read by a descendant of c2 and by nobody else:  live at c1 and c2 in every order
    w            reads u, comes after c2 and before c3 in every order:       u is resident once between c2 and c3

The stages are the first executions of the chain's nodes. A node happens, in every order, after the last stage that is
an ancestor of it and before the first one that is a descendant. A family is live at a stage if it is made there or
before and read there or later *in every order*; what is live in some orders only is not counted, which lowers the
bound. All else is as in the given order, so the absence relaxation holds as it stands: the memory of a stage, what is
absent at it must come back by the next use that every order has after it, and what comes back needs its inputs.

The chain is the path through the graph along which the excess over the budget adds up to most. Source: found for this
project. A training graph's chain runs through forward and backward and meets nearly all of its nodes; random layered
graphs have short chains of small load, and the bound is then often the baseline.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lowtide.ir import Graph, Node
from lowtide.planners.bounds.families import Family, Stages, stages_from_graph

__all__ = ["chain_stages"]

_Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class _Reach:
    """Which nodes come before which in every order, by position in the given order.

    Attributes:
        before: ``before[i, j]``: j is i or an ancestor of it.
        parents: For each node those whose first executions come directly before its own.
    """

    before: _Bits
    parents: tuple[tuple[int, ...], ...]


def chain_stages(graph: Graph, budget_bytes: int) -> Stages:
    """The stages of the chain of nodes with the largest excess over a budget.

    Args:
        graph: What is planned, in any order.
        budget_bytes: Most bytes resident at any step.
    """
    stages = stages_from_graph(graph)
    nodes = [graph.node_by_name[name] for name in graph.order]
    reach = _reach(graph, nodes)
    loads = _certain_loads(stages, nodes, reach)
    chain = _heaviest_path(reach, np.maximum(loads - budget_bytes, 0))
    return _along(stages, nodes, reach, chain)


def _reach(graph: Graph, nodes: Sequence[Node]) -> _Reach:
    position = {node.name: index for index, node in enumerate(nodes)}
    producer = {value: position[node.name] for value, node in graph.producer_by_value.items()}
    before = np.zeros((len(nodes), len(nodes)), dtype=np.bool_)
    all_parents: list[tuple[int, ...]] = []
    for index, node in enumerate(nodes):
        parents = {producer[name] for name in node.inputs if name in producer} | {position[name] for name in node.after}
        before[index, index] = True
        for parent in parents:
            before[index] |= before[parent]
        all_parents.append(tuple(sorted(parents)))
    return _Reach(before, tuple(all_parents))


def _certain_loads(stages: Stages, nodes: Sequence[Node], reach: _Reach) -> npt.NDArray[np.int64]:
    """At each node's first execution the bytes of families that are live there in every order, and its workspace."""
    loads = np.asarray([node.workspace_bytes for node in nodes], dtype=np.int64)
    for family in stages.families:
        if not family.size_bytes or not len(nodes):
            continue
        made = np.ones(len(nodes), dtype=np.bool_) if family.node is None else reach.before[:, family.node]
        if family.pinned_from is not None:
            pinned = family.pinned_from
            loads[made if pinned < 0 else reach.before[:, pinned]] += family.size_bytes
            continue
        used = np.zeros(len(nodes), dtype=np.bool_)
        for use in family.uses:
            if use == len(nodes):
                used[:] = True
            elif use >= 0:
                used |= reach.before[use]
        loads[made & used] += family.size_bytes
    return loads


def _heaviest_path(reach: _Reach, weights: npt.NDArray[np.int64]) -> tuple[int, ...]:
    """The path with the largest sum of weights; of several, one with many nodes."""
    best: list[tuple[int, int]] = []
    source: list[int | None] = []
    for index, parents in enumerate(reach.parents):
        parent = max(parents, key=lambda item: best[item], default=None)
        weight, length = (0, 0) if parent is None else best[parent]
        best.append((weight + int(weights[index]), length + 1))
        source.append(parent)
    path: list[int] = []
    place: int | None = max(range(len(best)), key=lambda item: best[item], default=None)
    while place is not None:
        path.append(place)
        place = source[place]
    return tuple(reversed(path))


def _along(stages: Stages, nodes: Sequence[Node], reach: _Reach, chain: Sequence[int]) -> Stages:
    """The stages of a chain."""
    num_chain = len(chain)
    # The last stage at or before each node, -1 where none is; the first one at or after it, the end where none is.
    last_before = reach.before[:, chain].sum(axis=1) - 1
    first_after = num_chain - reach.before[chain, :].sum(axis=0)
    spans = [(int(first), int(last)) for first, last in zip(last_before, first_after, strict=True)]
    families = tuple(_family_along(family, spans, num_chain) for family in stages.families)
    change = np.zeros(num_chain + 1, dtype=np.int64)
    for family in families:
        for start, end in _live_ranges(family, num_chain):
            change[start] += family.size_bytes
            change[end] -= family.size_bytes
    workspaces = np.asarray([nodes[index].workspace_bytes for index in chain], dtype=np.int64)
    loads = np.cumsum(change)[:num_chain] + workspaces
    return Stages(
        families=families,
        inputs_by_node=stages.inputs_by_node,
        families_by_node=stages.families_by_node,
        duration_by_node=stages.duration_by_node,
        load_bytes=tuple(int(load) for load in loads),
        baseline_duration=stages.baseline_duration,
    )


def _live_ranges(family: Family, end: int) -> Iterator[tuple[int, int]]:
    """From which stage to before which one it is live: until its last use, and where it cannot leave."""
    first, last = max(0, family.produced), min(family.last_use + 1, end)
    pinned = end if family.pinned_from is None else max(first, family.pinned_from)
    if first < min(last, pinned):
        yield first, min(last, pinned)
    if pinned < end:
        yield pinned, end


def _family_along(family: Family, spans: Sequence[tuple[int, int]], end: int) -> Family:
    def span(use: int) -> tuple[int, int]:
        if use < 0:
            return (-1, -1)
        return spans[use] if use < len(spans) else (end, end)

    made, *rest = [span(use) for use in family.uses]
    uses = [made, *sorted(rest)]
    pinned = family.pinned_from
    return Family(
        root=family.root,
        node=family.node,
        size_bytes=family.size_bytes,
        can_return=family.can_return,
        uses=tuple(first for first, _ in uses),
        pinned_from=pinned if pinned is None or pinned < 0 else span(pinned)[1],
        latest=tuple(last for _, last in uses),
    )
