"""The least duration of any plan of a small graph, by looking at all of them (Dijkstra over what is resident).

Shares no code with planners, bounds or the referee. A state is what is resident and where, which nodes have run for
the first time, and, where they matter, how often each has run and which column ran last in this stage.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from itertools import count
from typing import NamedTuple

from lowtide.ir import Graph, Input, Node, Value

Where = tuple[tuple[str, tuple[str, int]], ...]  # value -> (root, number of the instance among the resident ones)


class State(NamedTuple):
    done: frozenset[int]
    where: Where
    num_runs: tuple[int, ...]
    last_column: int


def least_duration(
    graph: Graph,
    budget_bytes: int,
    *,
    max_copies: int | None = None,
    is_staged: bool = False,
    is_order_free: bool = False,
) -> int | None:
    """Least duration within the budget, the given order kept unless it is free; None where no plan fits.

    Args:
        graph: At most about 6 nodes.
        budget_bytes: Most bytes resident at any step.
        max_copies: Most executions of a node, or None for any number.
        is_staged: Only plans that recompute in the given order between two first executions, each node once, and
            after the last one only where the graph has outputs.
        is_order_free: Whether first executions may come in any order.
    """
    nodes = [graph.node_by_name[name] for name in graph.order]
    start = tuple((item.name, (item.name, 0)) for item in graph.inputs)
    first = State(frozenset(), canonical(dict(start)), (0,) * len(nodes), -1)
    ticket = count()
    queue = [(0, next(ticket), first)]
    done: set[State] = set()
    while queue:
        duration, _, state = heapq.heappop(queue)
        if state in done:
            continue
        done.add(state)
        where = dict(state.where)
        if len(state.done) == len(nodes) and where.keys() >= set(graph.outputs):
            return duration
        for cost, following in followers(
            graph, nodes, state, where, budget_bytes, max_copies, is_staged, is_order_free
        ):
            if following not in done:
                heapq.heappush(queue, (duration + cost, next(ticket), following))
    return None


def followers(
    graph: Graph,
    nodes: list[Node],
    state: State,
    where: Mapping[str, tuple[str, int]],
    budget_bytes: int,
    max_copies: int | None,
    is_staged: bool,
    is_order_free: bool,
) -> Iterator[tuple[int, State]]:
    for name in where:
        if graph.value_by_name[name].evictable:
            rest = {other: instance for other, instance in where.items() if other != name}
            yield 0, state._replace(where=canonical(rest))
    is_over = len(state.done) == len(nodes) and not graph.outputs
    done_names = {nodes[position].name for position in state.done}
    for position, node in enumerate(nodes):
        is_first = position not in state.done
        if is_first and not (set(node.after) <= done_names if is_order_free else position == len(state.done)):
            continue
        if not is_first and not node.recomputable:
            continue
        if is_staged and not is_first and (position <= state.last_column or is_over):
            continue
        if max_copies is not None and state.num_runs[position] >= max_copies:
            continue
        needed = {*node.inputs, *(() if is_first else node.recompute_inputs)}
        if not needed <= where.keys():
            continue
        after = execute(graph, node, where, is_first, budget_bytes)
        if after is None:
            continue
        runs = list(state.num_runs)
        runs[position] += 1 if max_copies is not None else 0
        last_column = (-1 if is_first else position) if is_staged else -1
        yield node.duration, State(state.done | {position}, canonical(after), tuple(runs), last_column)


def execute(
    graph: Graph, node: Node, where: Mapping[str, tuple[str, int]], is_first: bool, budget_bytes: int
) -> dict[str, tuple[str, int]] | None:
    made = {value.name: value for value in node.outputs if is_first or not value.first_only}
    placed: dict[str, tuple[str, int]] = {}

    def origin(value: Value) -> Value:
        return origin(made[value.alias_of]) if value.alias_of in made else value

    for name, value in made.items():
        source = origin(value)
        old = source.overwrites or source.alias_of
        placed[name] = (source.name, -1) if old is None else where[old]
    fresh = {(value.name, -1) for value in made.values() if value.owns_storage}
    memory = sum(size(graph, root) for root, _ in {*where.values(), *fresh})
    if memory + node.workspace_bytes > budget_bytes:
        return None
    lost = {where[value.overwrites] for value in made.values() if value.overwrites}
    after = {name: instance for name, instance in where.items() if instance not in lost}
    for name, value in made.items():
        is_gone = placed[name] in lost and origin(value).overwrites is None
        if name not in after and not is_gone:
            after[name] = placed[name]
    return after


def canonical(where: Mapping[str, tuple[str, int]]) -> Where:
    numbers: dict[tuple[str, int], int] = {}
    count_by_root: dict[str, int] = {}
    for name in sorted(where):
        instance = where[name]
        if instance not in numbers:
            numbers[instance] = count_by_root.get(instance[0], 0)
            count_by_root[instance[0]] = numbers[instance] + 1
    return tuple((name, (where[name][0], numbers[where[name]])) for name in sorted(where))


def size(graph: Graph, root: str) -> int:
    value = graph.value_by_name[root]
    return 0 if isinstance(value, Input) and not value.is_counted else value.size_bytes
