"""Which rows a solution of the absence relaxation breaks, and which stages it overloads.

A path row of ``relaxation`` is broken where the lengths of a path, resident(p, t) of its families, and the runs of its
last node add up to less than the demand that the path starts from: an absence or a run. Dijkstra's shortest paths find
one where there is one. Chains are looked at one by one.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from lowtide.planners.bounds.covering import Floats
from lowtide.planners.bounds.relaxation import AbsenceRelaxation

__all__ = ["add_broken_rows", "overloaded_stages", "tightened_stages"]

_TOLERANCE = 1e-4
_MOST_PATHS = 3  # from one absence or run: more make the program large, fewer make more rounds


@dataclass(frozen=True, slots=True)
class _Path:
    """A broken path row without its root."""

    violation: float
    families: tuple[int, ...]
    stage: int
    end: int
    node: int | None


def add_broken_rows(relaxation: AbsenceRelaxation, values: Floats) -> int:
    """Add the path and chain rows that a solution breaks; returns how many."""
    chosen = relaxation.chosen
    absent = relaxation.absent_by_stage(chosen, values, least=_TOLERANCE)
    found = [
        ((index, stage), path)
        for stage in chosen
        for index, value in absent[stage].items()
        for path in _paths_of_absence(relaxation, index, stage, value, values)
    ]
    paths_of_runs = list(_paths_of_runs(relaxation, values))
    chains = list(_chains(relaxation, values))
    for (index, stage), path in found:
        root = relaxation.absent(index, stage)
        if path.families:
            relaxation.add_path(root, path.families, path.stage, path.end, node=path.node)
    for root, path in paths_of_runs:
        relaxation.add_path(root, path.families, path.stage, path.end, node=path.node)
    for index, before, stage in chains:
        relaxation.add_chain(index, before, stage)
    return len(found) + len(paths_of_runs) + len(chains)


def _paths_of_absence(
    relaxation: AbsenceRelaxation, index: int, stage: int, value: float, values: Floats
) -> Iterator[_Path]:
    family = relaxation.stages.families[index]
    assert family.node is not None
    end = family.next_use(stage)
    if value > 1.0 + _TOLERANCE:  # implicit: an absence is at most 1, the runs in its place may be more
        yield _Path(value - 1.0, (), stage, end, family.node)
        return
    inputs = relaxation.stages.inputs_by_node[family.node]
    yield from _walk(relaxation, inputs, stage, end, value, values, origin=index)


def _paths_of_runs(relaxation: AbsenceRelaxation, values: Floats) -> Iterator[tuple[int, _Path]]:
    stages = relaxation.stages
    for (node, number), root in relaxation.run_variables().items():
        value = float(values[root])
        span = relaxation.span(node, number)
        place = bisect_right(relaxation.chosen, span.start) - 1
        if value <= _TOLERANCE or place < 0:
            continue
        inputs = stages.inputs_by_node[node]
        for path in _walk(relaxation, inputs, relaxation.chosen[place], span.end, value, values, origin=None):
            yield root, path


def _chains(relaxation: AbsenceRelaxation, values: Floats) -> Iterator[tuple[int, int, int]]:
    before_by_stage = {stage: before for before, stage in pairwise(relaxation.chosen)}
    for index, stage in relaxation.changed():
        before = before_by_stage.get(stage)
        family = relaxation.stages.families[index]
        if before is None or before < family.produced:
            continue
        value = relaxation.resident_value(index, stage, values)
        source = relaxation.resident_value(index, before, values) if value > _TOLERANCE else value
        if family.can_return and family.node is not None and source < value - _TOLERANCE:
            source += relaxation.run_value(family.node, before, stage, values)
        if source < value - _TOLERANCE:
            yield index, before, stage


def _walk(
    relaxation: AbsenceRelaxation,
    inputs: Iterable[int],
    stage: int,
    end: int,
    demand: float,
    values: Floats,
    *,
    origin: int | None,
) -> Iterator[_Path]:
    """The broken rows among the paths from some inputs, shortest paths first, each ending where it first breaks."""
    families = relaxation.stages.families
    parent: dict[int, int | None] = {}
    length: dict[int, float] = {}
    queue: list[tuple[float, int]] = []
    done: set[int] = set() if origin is None else {origin}
    num_found = 0

    def visit(index: int, source: int | None, base: float) -> None:
        if index in done or families[index].produced > stage:
            return
        reached = base + relaxation.resident_value(index, stage, values)
        if reached < min(demand - _TOLERANCE, length.get(index, demand)):
            length[index], parent[index] = reached, source
            heapq.heappush(queue, (reached, index))

    for index in inputs:
        visit(index, None, 0.0)
    while queue and num_found < _MOST_PATHS:
        base, index = heapq.heappop(queue)
        if index in done:
            continue
        done.add(index)
        node = families[index].node if families[index].can_return else None
        short = demand - base - (0.0 if node is None else relaxation.run_value(node, stage, end, values))
        if short > _TOLERANCE:
            num_found += 1
            yield _Path(short, _back(index, parent), stage, end, node)
        elif node is not None:
            for source in relaxation.stages.inputs_by_node[node]:
                visit(source, index, base)


def _back(index: int, parent: dict[int, int | None]) -> tuple[int, ...]:
    path: list[int] = []
    place: int | None = index
    while place is not None:
        path.append(place)
        place = parent[place]
    return tuple(reversed(path))


# ---------------------------------------------------------------- stages


def overloaded_stages(relaxation: AbsenceRelaxation, values: Floats) -> list[int]:
    """The stages that a solution overloads even if all that may be absent there is; the worst first."""
    stages = relaxation.stages
    excess = (
        np.asarray(stages.load_bytes, dtype=np.float64) - relaxation.budget_bytes - _implied_bytes(relaxation, values)
    )
    excess[relaxation.chosen] = 0.0
    least = _TOLERANCE * max((family.size_bytes for family in stages.families), default=0)
    order = np.argsort(-excess, kind="stable")
    return [int(stage) for stage in order if excess[stage] > max(least, 0.0)]


def _implied_bytes(relaxation: AbsenceRelaxation, values: Floats) -> Floats:
    """By stage the bytes that the runs let be absent there."""
    stages = relaxation.stages
    change = np.zeros(stages.end + 2)
    nodes = {node for (node, _), variable in relaxation.run_variables().items() if values[variable] > 0.0}
    for node in nodes:
        for index in stages.families_by_node[node]:
            family = stages.families[index]
            if not family.can_return or not family.size_bytes:
                continue
            last = family.last_use if family.pinned_from is None else min(family.last_use, family.pinned_from - 1)
            for start, end in relaxation.pieces(node, family.produced, last + 1):
                middle = start + 1 if family.is_needed_at(start) else start
                if middle < end:
                    value = relaxation.run_value(node, middle, family.next_use(middle), values)
                    change[middle] += family.size_bytes * min(1.0, value)
                    change[end] -= family.size_bytes * min(1.0, value)
    implied: Floats = np.cumsum(change)[: stages.end]
    return implied


def tightened_stages(
    relaxation: AbsenceRelaxation, values: Floats, candidates: Sequence[int], *, most: int
) -> list[int]:
    """Some of the candidates that a solution overloads once absences there obey their path rows."""
    stages = relaxation.stages
    absent = relaxation.absent_by_stage(candidates, values, least=_TOLERANCE)
    found: list[tuple[float, int]] = []
    for stage in candidates:
        excess = float(stages.load_bytes[stage] - relaxation.budget_bytes)
        for index, value in absent[stage].items():
            family = stages.families[index]
            assert family.node is not None
            inputs = stages.inputs_by_node[family.node]
            end = family.next_use(stage)
            paths = _walk(relaxation, inputs, stage, end, min(1.0, value), values, origin=index)
            short = max((path.violation for path in paths), default=0.0)
            excess -= family.size_bytes * (min(1.0, value) - short)
        if excess > _TOLERANCE * max(1.0, stages.load_bytes[stage]):
            found.append((excess, stage))
    return [stage for _, stage in sorted(found, reverse=True)[:most]]
