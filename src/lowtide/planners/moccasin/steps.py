"""From retention intervals to steps: compute where executions start, evict where copies end.

Where a copy is retained beyond its last use it is evicted right after that use, and recomputations none of whose copies
is used are left out; neither raises the memory of any step. For graphs whose values share no storages the result equals
``lowtide.ir.sequence.steps_from_sequence``; with aliases an old copy may be kept while its node runs again for another
output, which a sequence of nodes alone cannot say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lowtide.ir import Compute, Evict, Graph, Node, Step
from lowtide.planners.moccasin.problem import Problem

__all__ = ["RetainedCopy", "Run", "steps_from_retention"]


@dataclass(frozen=True, slots=True)
class Run:
    """One execution that takes place.

    Attributes:
        event: When.
        position: Column of the node.
        index: How many times it ran before.
    """

    event: int
    position: int
    index: int


@dataclass(frozen=True, slots=True)
class RetainedCopy:
    """One copy that is made.

    Attributes:
        value: Of which value.
        start: The event that makes it; before the first one for a graph input.
        end: Its last event.
    """

    value: str
    start: int
    end: int


def steps_from_retention(
    graph: Graph, problem: Problem, runs: Sequence[Run], copies: Sequence[RetainedCopy]
) -> tuple[Step, ...]:
    """Turn a solution into the steps of a plan.

    Args:
        graph: What is executed.
        problem: The same graph in columns.
        runs: All executions.
        copies: All copies that are made.
    """
    useful_runs, last_use = _useful(problem, runs, copies)
    kept = set(graph.outputs) | {name for name, value in graph.value_by_name.items() if not value.evictable}
    end_of_plan = problem.last_event if graph.outputs else problem.last_event + 1
    machine = _Residents(graph)
    steps: list[Step] = []

    def evict(names: Sequence[str], event: int) -> None:
        for name in names:
            is_wanted = name in kept and (not graph.value_by_name[name].evictable or _until(name, event) >= end_of_plan)
            if machine.is_resident(name) and not is_wanted and _until(name, event) <= event:
                machine.evict(name)
                steps.append(Evict(name))

    def _until(name: str, event: int) -> int:
        return max((end for start, end in last_use[name].items() if start <= event), default=event)

    evict([graph_input.name for graph_input in graph.inputs], -1)
    for run in useful_runs:
        column = problem.columns[run.position]
        if column.node is None:
            continue
        node = graph.node_by_name[column.node]
        machine.compute(node, is_first=run.index == 0)
        steps.append(Compute(node.name))
        touched = dict.fromkeys([*node.inputs, *node.recompute_inputs, *(value.name for value in node.outputs)])
        evict(list(touched), run.event)
    return tuple(steps)


def _useful(
    problem: Problem, runs: Sequence[Run], copies: Sequence[RetainedCopy]
) -> tuple[list[Run], Mapping[str, dict[int, int]]]:
    """The runs that are of use, and for each value the last use of each of its copies, by the copy's start."""
    last_use: dict[str, dict[int, int]] = {value.name: {} for value in problem.values}
    copies_by_value: dict[str, list[RetainedCopy]] = {value.name: [] for value in problem.values}
    for copy in copies:
        copies_by_value[copy.value].append(copy)
        last_use[copy.value][copy.start] = copy.start
    made: dict[int, list[str]] = {}
    read: dict[int, list[str]] = {}
    reread: dict[int, list[str]] = {}
    for value in problem.values:
        if value.column is not None:
            made.setdefault(value.column, []).append(value.name)
        for reader in value.readers:
            read.setdefault(reader, []).append(value.name)
        for reader in value.recompute_readers:
            reread.setdefault(reader, []).append(value.name)
    useful: list[Run] = []
    for run in sorted(runs, key=lambda run: run.event, reverse=True):
        is_used = any(last_use[name].get(run.event, run.event) > run.event for name in made.get(run.position, ()))
        if run.index and not is_used:
            for name in made.get(run.position, ()):
                last_use[name].pop(run.event, None)
            continue
        useful.append(run)
        for name in [*read.get(run.position, ()), *(reread.get(run.position, ()) if run.index else ())]:
            source = next(c for c in copies_by_value[name] if c.start < run.event <= c.end)
            last_use[name][source.start] = max(last_use[name][source.start], run.event)
    return useful[::-1], last_use


class _Residents:
    """Which values are resident, and which of them share an instance: overwriting ends them together."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._num_instances = 0
        self._instance_by_value = {graph_input.name: self._fresh() for graph_input in graph.inputs}

    def is_resident(self, name: str) -> bool:
        return name in self._instance_by_value

    def evict(self, name: str) -> None:
        del self._instance_by_value[name]

    def compute(self, node: Node, *, is_first: bool) -> None:
        """Let the outputs refer to their instances; what is overwritten is gone."""
        source_by_value = {name: self._instance_by_value[name] for name in node.inputs}
        pending = [value for value in node.outputs if is_first or not value.first_only]
        while pending:
            value = pending.pop(0)
            source = value.overwrites or value.alias_of
            if source is not None and source not in source_by_value:
                pending.append(value)
                continue
            source_by_value[value.name] = self._fresh() if source is None else source_by_value[source]
        self._end({source_by_value[value.overwrites] for value in node.outputs if value.overwrites in source_by_value})
        for value in node.outputs:
            if value.name in source_by_value:
                self._instance_by_value.setdefault(value.name, source_by_value[value.name])

    def _fresh(self) -> int:
        self._num_instances += 1
        return self._num_instances

    def _end(self, instances: set[int]) -> None:
        ended = [name for name, instance in self._instance_by_value.items() if instance in instances]
        for name in ended:
            del self._instance_by_value[name]
