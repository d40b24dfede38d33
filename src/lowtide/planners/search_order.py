"""Orders for the planner search: which are legal, and better ones for a graph or for a whole plan.

A plan is a sequence of executions, and a sequence of executions is a graph of its own: each execution a node that is
executed once, each copy a storage. An order of that graph with less overflow is an order of the original graph
together with stages for its recomputations, so that one search serves both.

    plan         a  b  c  a' d          d reads a' and c
    its graph    a ─▶ b ─▶ c ─▶ d ◀─ a'
    new order    a  b  c  d  with a' in the stage of d
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from lowtide import _search
from lowtide.ir import Graph
from lowtide.planners.flat import FlatGraph, Recomputation
from lowtide.planners.storages import find_storages

__all__ = ["Ordering", "order_plan", "precedence_of"]


@dataclass(frozen=True, slots=True)
class Ordering:
    """An order of a graph, with recomputations placed in it.

    Attributes:
        graph: The graph with the new order.
        recomputations: By positions in that order.
        overflow_bytes: Bytes above the budget, summed over executions.
    """

    graph: Graph
    recomputations: tuple[Recomputation, ...]
    overflow_bytes: int


def precedence_of(graph: Graph) -> list[tuple[int, int]]:
    """Pairs of positions (first, second) of nodes whose first executions must keep their order.

    Data dependence, ``after``, and everything that touches a storage which is overwritten at any time: such nodes keep
    their order among one another.
    """
    position = {name: index for index, name in enumerate(graph.order)}
    pairs: set[tuple[int, int]] = set()
    for node in graph.nodes:
        own = position[node.name]
        before = [
            graph.producer_by_value[name].name
            for name in (*node.inputs, *node.recompute_inputs)
            if name in graph.producer_by_value
        ]
        pairs |= {(position[name], own) for name in (*before, *node.after) if position[name] < own}
    for touchers in _touchers_of_overwritten(graph):
        pairs |= set(pairwise(sorted(position[name] for name in touchers)))
    return sorted(pairs)


def _touchers_of_overwritten(graph: Graph) -> list[set[str]]:
    root_by_value = find_storages(graph).root_by_value
    overwritten = {
        root_by_value[value.name] for node in graph.nodes for value in node.outputs if value.overwrites is not None
    }
    touchers: dict[str, set[str]] = {root: set() for root in overwritten}
    for node in graph.nodes if overwritten else ():
        for name in (*node.inputs, *node.recompute_inputs, *(value.name for value in node.outputs)):
            if root_by_value[name] in touchers:
                touchers[root_by_value[name]].add(node.name)
    return list(touchers.values())


def order_plan(
    flat: FlatGraph,
    recomputations: Sequence[Recomputation],
    *,
    budget_bytes: int,
    seed: int,
    max_work: int,
    should_stop: Callable[[], bool] | None,
) -> Ordering:
    """Search an order of the graph, and stages for recomputations, with less above the budget.

    Args:
        flat: The graph.
        recomputations: Those of a plan; none of them is added or left out.
        budget_bytes: What should not be exceeded.
        seed: Of the annealing.
        max_work: Stages touched and moves drawn.
        should_stop: Asked a few times per second.
    """
    executions = _Executions(flat, recomputations)
    firsts, seconds = executions.precedence(precedence_of(flat.graph))
    outcome = _search.order(
        executions.problem(),
        budget_bytes=budget_bytes,
        seed=seed,
        max_work=max_work,
        firsts=firsts,
        seconds=seconds,
        should_stop=should_stop,
    )
    return executions.read(outcome.order, outcome.overflow_bytes)


class _Executions:
    """A plan as a graph whose nodes are executions and whose storages are copies."""

    def __init__(self, flat: FlatGraph, recomputations: Sequence[Recomputation]) -> None:
        self._flat = flat
        stages = sorted({*recomputations, *(Recomputation(node, node) for node in range(len(flat.nodes)))})
        self._events = [(again.stage, again.node) for again in stages]
        self._first = {node: index for index, (stage, node) in enumerate(self._events) if stage == node}
        self._size_bytes: list[int] = []
        self._producer: list[int] = []
        self._is_kept: list[int] = []
        self._reads: list[list[int]] = []
        self._add_copies()

    def _add_copies(self) -> None:
        flat = self._flat
        made: dict[int, list[int]] = {}
        for storage, producer in enumerate(flat.producer):
            made.setdefault(producer, []).append(storage)
        current: dict[int, int] = {}
        for storage in made.get(-1, ()):
            self._add_copy(current, storage, producer=-1)
        for index, (stage, node) in enumerate(self._events):
            again = flat.recompute_reads[node] if stage != node else []
            self._reads.append([current[storage] for storage in (*flat.reads[node], *again) if storage in current])
            for storage in made.get(node, ()):
                if stage == node or flat.is_recreated[storage]:
                    self._add_copy(current, storage, producer=index)
        for storage, copy in current.items():
            self._is_kept[copy] = int(flat.is_kept[storage])

    def _add_copy(self, current: dict[int, int], storage: int, *, producer: int) -> None:
        current[storage] = len(self._size_bytes)
        self._size_bytes.append(self._flat.size_bytes[storage])
        self._producer.append(producer)
        self._is_kept.append(0)

    def problem(self) -> _search.Problem:
        flat, num_executions = self._flat, len(self._events)
        workspace = [
            flat.workspace_bytes[node] + (flat.recompute_workspace_bytes[node] if stage != node else 0)
            for stage, node in self._events
        ]
        return _search.Problem(
            duration=[0] * num_executions,
            recompute_duration=[0] * num_executions,
            workspace_bytes=workspace,
            recompute_workspace_bytes=[0] * num_executions,
            last_stage=list(range(num_executions)),
            read_starts=list(accumulate(map(len, self._reads), initial=0)),
            reads=[copy for row in self._reads for copy in row],
            recompute_read_starts=[0] * (num_executions + 1),
            recompute_reads=[],
            size_bytes=self._size_bytes,
            producer=self._producer,
            is_recreated=[0] * len(self._size_bytes),
            is_kept=self._is_kept,
        )

    def precedence(self, pairs: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
        """Legal orders of first executions, and each node's executions in a row."""
        firsts = [self._first[first] for first, _ in pairs]
        seconds = [self._first[second] for _, second in pairs]
        latest: dict[int, int] = {}
        for index, (_, node) in enumerate(self._events):
            if node in latest:
                firsts.append(latest[node])
                seconds.append(index)
            latest[node] = index
        return firsts, seconds

    def read(self, order: Sequence[int], overflow_bytes: int) -> Ordering:
        """First executions give the order; a recomputation comes in the stage of the next of them."""
        places = [place for place, index in enumerate(order) if self._first[self._events[index][1]] == index]
        nodes = [self._events[order[place]][1] for place in places]
        position = {node: place for place, node in enumerate(nodes)}
        again: set[Recomputation] = set()
        for place, index in enumerate(order):
            node = self._events[index][1]
            stage = bisect_left(places, place)
            if self._first[node] != index and stage < len(places):
                again.add(Recomputation(stage, position[node]))
        names = tuple(self._flat.nodes[node].name for node in nodes)
        return Ordering(replace(self._flat.graph, order=names), tuple(sorted(again)), overflow_bytes)
