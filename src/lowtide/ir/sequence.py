"""From a sequence of executions to the steps of a plan: every copy lives until its last use.

    sequence   a    b    c    a    d            d reads a
    a          ■────■         ■────■            its first copy dies after b, the second after d
    steps      a b (evict a) c (evict b, c) a d (evict a)

Planners choose only which nodes to execute and when; this gives the evictions that make memory least for that choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lowtide.ir.graph import Graph, Node
from lowtide.ir.plan import Compute, Evict, Step

__all__ = ["baseline_steps", "steps_from_sequence"]


def baseline_steps(graph: Graph) -> tuple[Step, ...]:
    """The given order without recomputation, each value evicted right after its last use."""
    return steps_from_sequence(graph, graph.order)


def steps_from_sequence(graph: Graph, sequence: Sequence[str]) -> tuple[Step, ...]:
    """Add the evictions to a sequence of node executions.

    A copy of a value is evicted right after its last use before the next execution that makes a fresh copy; a value
    that nobody uses right after it is made (graph inputs: before the first step). Unevictable values, and the last
    copies of graph outputs, stay. A value that an execution overwrites needs no eviction.

    Args:
        graph: What is executed.
        sequence: Node names; every node once, and more often where it is recomputed.

    Returns:
        Compute and evict steps. Whether the sequence is legal is for the referee to say.
    """
    evictions_after = _evictions_after(graph, [graph.node_by_name[name] for name in sequence])
    steps: list[Step] = [Evict(value) for value in evictions_after[0]]
    for name, evictions in zip(sequence, evictions_after[1:], strict=True):
        steps.append(Compute(name))
        steps.extend(map(Evict, evictions))
    return tuple(steps)


def _evictions_after(graph: Graph, executions: Sequence[Node]) -> list[list[str]]:
    """Values to evict before the first execution (index 0) and after each execution (index 1 + position)."""
    evictions: list[list[str]] = [[] for _ in range(len(executions) + 1)]
    kept = set(graph.outputs) | {name for name, value in graph.value_by_name.items() if not value.evictable}
    last_use: dict[str, int] = {}
    computed: set[str] = set()
    overwritten: set[str] = set()

    def touch(names: Iterable[str], moment: int) -> None:
        for name in names:
            last_use[name] = moment

    def end_copy(name: str) -> None:
        if name not in overwritten:
            evictions[last_use[name]].append(name)

    touch((graph_input.name for graph_input in graph.inputs), 0)
    for moment, node in enumerate(executions, start=1):
        is_again = node.name in computed
        touch(node.inputs, moment)
        if is_again:
            touch(node.recompute_inputs, moment)
        overwritten.update(v.overwrites for v in node.outputs if v.overwrites is not None)
        for value in node.outputs:
            if is_again and (value.first_only or not value.evictable):
                continue
            if is_again:
                end_copy(value.name)
            overwritten.discard(value.name)
            touch((value.name,), moment)
        computed.add(node.name)
    for name in last_use:
        if name not in kept:
            end_copy(name)
    return evictions
