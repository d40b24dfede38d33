"""The absence relaxation as a program that grows: memory rows of chosen stages, rows about returns as they are broken.

    stage        a           t                b
    u            ●───────────×────────────────●        absent at t: its node runs again between t and b
    p, an input  ●──● last use                         not resident at t: its node runs again between t and b, too,
    q, of p      ●─────● last use                      and so on for the inputs of p, to full depth

Variables, all 0 or 1. ``run(v, span)``: node v runs again between two consecutive *points* of v: the uses of its
families and of those that its readers make, and the first overloaded stage after its families' last uses.
``absent(u, t)`` for a family that is live at stage t, ``held(p, t)`` for one that is not. Write R(v, t, b) for the sum
of the runs of v in spans that meet the moments after stage t and up to stage b, and resident(p, t) for 1 - absent(p, t)
or held(p, t). Every plan gives a solution, at the cost of its recomputations, of these rows:

    memory   load(t) - budget <= bytes absent at t - bytes held at t             for each overloaded stage t
    path     absent(u, t) <= resident(p1, t) + ... + resident(pk, t) + R(pk, t, b)
                 u is next used at b; p1 an input of u's node, p2 one of p1's, ...; k = 0: absent(u, t) <= R(u, t, b)
    path     run(v, span) <= the same with t the last chosen stage at or before the span's start and b its end
    chain    resident(p, t) <= resident(p, t') + R(p, t', t)                     for stages t' < t

A path row holds because each p along it, where it is not resident at t, must be made again before it is read between t
and b. There are exponentially many; a violated one is found as a shortest path, resident(., t) being the lengths.
An absence starts out *implicit*: the memory row of t holds R(u, t, b) in its place, the most it can be. The variable
comes with the first other row that needs it. So the first program is a cover of the memory rows by runs, and small.

Source: found for this project, after lot sizing's inequalities for demand windows. Any subset of rows and stages gives
a valid, weaker bound. Several outputs: cost per node and span. Aliases and overwrites: families. Left out, which only
lowers the bound: memory between stages, workspace and inputs of recomputations at the moment they run, recomputed
aliases.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from lowtide.ir import Interval
from lowtide.planners.bounds.covering import CoverProgram, Floats, Row
from lowtide.planners.bounds.families import Family, Stages

__all__ = ["AbsenceRelaxation"]


class AbsenceRelaxation:
    """The program over the stages chosen so far.

    Args:
        stages: The graph, stage by stage.
        budget_bytes: Most bytes resident at any step.

    Attributes:
        program: Rows and variables so far.
        chosen: Stages with a memory row, increasing.
        is_impossible: Whether some memory row cannot be met even with everything absent that can be.
    """

    def __init__(self, stages: Stages, budget_bytes: int) -> None:
        self.program = CoverProgram()
        self.chosen: list[int] = []
        self.is_impossible = False
        self.stages = stages
        self.budget_bytes = budget_bytes
        self._points = _points_by_node(stages, stages.overloaded(budget_bytes))
        self._runs: dict[tuple[int, int], int] = {}
        self._changed: dict[tuple[int, int], int] = {}
        self._memory: dict[int, Row] = {}
        self._is_fixed: dict[tuple[int, int], bool] = {}

    # ---------------------------------------------------------------- what a solution says
    def changed(self) -> dict[tuple[int, int], int]:
        """By (family, stage) the variable of its absence or holding, where there is one."""
        return self._changed

    def runs(self) -> dict[tuple[int, Interval], int]:
        """The variable of each (node, span): that it runs again after stage ``start`` and up to stage ``end``."""
        return {(node, self.span(node, index)): variable for (node, index), variable in self._runs.items()}

    def span(self, node: int, index: int) -> Interval:
        """The stages between two consecutive points of a node."""
        points = self._points[node]
        return Interval(points[index], points[index + 1])

    def pieces(self, node: int, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Cut stages at the points of a node: within a piece its runs up to the next use are the same."""
        cuts = [start, *(point for point in self._points[node] if start < point < end), end]
        return pairwise(cuts)

    def is_fixed(self, index: int, stage: int) -> bool:
        """Whether a family counts as resident at a stage in every solution, e.g. because it costs no bytes."""
        is_fixed = self._is_fixed.get((index, stage))
        if is_fixed is None:
            family = self.stages.families[index]
            is_fixed = self._is_fixed[index, stage] = not family.size_bytes or family.is_needed_at(stage)
        return is_fixed

    def run_value(self, node: int, stage: int, end: int, values: Floats) -> float:
        """How often a node runs again after one stage and up to another."""
        total = 0.0
        points = self._points[node]
        for place in range(max(0, bisect_right(points, stage) - 1), len(points) - 1):
            if points[place] >= end:
                break
            variable = self._runs.get((node, place))
            if variable is not None:
                total += values[variable]
        return total

    def resident_value(self, index: int, stage: int, values: Floats) -> float:
        """How far a family is resident at a stage."""
        if self.is_fixed(index, stage):
            return 1.0
        variable = self._changed.get((index, stage))
        family = self.stages.families[index]
        is_live = family.is_live_at(stage)
        if variable is not None:
            return float(1.0 - values[variable] if is_live else values[variable])
        if not is_live or family.node is None:
            return 0.0
        return max(0.0, 1.0 - self.run_value(family.node, stage, family.next_use(stage), values))

    def absent_by_stage(self, stages: Sequence[int], values: Floats, *, least: float) -> dict[int, dict[int, float]]:
        """By stage the live families that are absent there, and how far; some may be above 1."""
        absent: dict[int, dict[int, float]] = {stage: {} for stage in stages}
        running = {node for (node, _), variable in self._runs.items() if values[variable] > least}
        for node in running:
            for index in self.stages.families_by_node[node]:
                family = self.stages.families[index]
                if not family.can_return or not family.size_bytes:
                    continue
                for stage in stages[bisect_right(stages, family.produced) : bisect_right(stages, family.last_use)]:
                    if self.is_fixed(index, stage):
                        continue
                    variable = self._changed.get((index, stage))
                    value = (
                        self.run_value(node, stage, family.next_use(stage), values)
                        if variable is None
                        else float(values[variable])
                    )
                    if value > least:
                        absent[stage][index] = value
        return absent

    # ---------------------------------------------------------------- rows
    def choose(self, stage: int) -> None:
        """Add the memory row of a stage."""
        insort(self.chosen, stage)
        terms: list[tuple[int, int]] = []
        most_absent_bytes = 0
        for index, family in enumerate(self.stages.families):
            if family.node is None or not family.is_live_at(stage) or self.is_fixed(index, stage):
                continue
            most_absent_bytes += family.size_bytes
            runs = self._runs_within(family.node, stage, family.next_use(stage))
            terms.extend((run, family.size_bytes) for run in runs)
        excess_bytes = self.stages.load_bytes[stage] - self.budget_bytes
        self.is_impossible = self.is_impossible or most_absent_bytes < excess_bytes
        self._memory[stage] = self.program.add_row(terms, least=excess_bytes, is_kept=True)

    def add_path(self, root: int, path: Sequence[int], stage: int, end: int, *, node: int | None) -> None:
        """Require of a run or absence that one of a path is resident at a stage, or the last one runs again by an end.

        Args:
            root: Variable of the run or absence.
            path: Families, each an input of the node of the one before; may be empty.
            stage: Where they are resident, or not.
            end: The stage up to which a run helps.
            node: The node whose runs help, or None where it cannot run again.
        """
        terms = [(root, -1)]
        least = 0
        for index in path:
            variable, sign = self._resident(index, stage)
            terms.append((variable, sign))
            least -= sign < 0
        if node is not None:
            terms.extend((run, 1) for run in self._runs_within(node, stage, end))
        self.program.add_row(terms, least=least)

    def add_chain(self, index: int, before: int, stage: int) -> None:
        """Require that what is resident at a stage was so at one before, or ran in between."""
        family = self.stages.families[index]
        terms: list[tuple[int, int]] = []
        least = 0
        for moment, factor in ((stage, -1), (before, 1)):
            if moment == before and self.is_fixed(index, before):
                return
            variable, sign = self._resident(index, moment)
            terms.append((variable, sign * factor))
            least -= factor if sign < 0 else 0
        if family.can_return and family.node is not None:
            terms.extend((run, 1) for run in self._runs_within(family.node, before, stage))
        self.program.add_row(terms, least=least)

    def absent(self, index: int, stage: int) -> int:
        """The variable of an absence; makes it explicit."""
        if (index, stage) in self._changed:
            return self._changed[index, stage]
        family = self.stages.families[index]
        assert family.node is not None
        variable = self._changed[index, stage] = self.program.add_variable()
        runs = self._runs_within(family.node, stage, family.next_use(stage))
        row = self._memory[stage]
        for run in runs:
            self.program.change_row(row, run, by=-family.size_bytes)
        self.program.change_row(row, variable, by=family.size_bytes)
        self.program.add_implication(variable, needs_one_of=runs).is_kept = True
        return variable

    def _resident(self, index: int, stage: int) -> tuple[int, int]:
        """A variable and its sign: being resident is it where positive, and 1 less it where negative."""
        family = self.stages.families[index]
        if family.is_live_at(stage):
            return self.absent(index, stage), -1
        if (index, stage) not in self._changed:
            variable = self._changed[index, stage] = self.program.add_variable()
            self.program.change_row(self._memory[stage], variable, by=-family.size_bytes)
        return self._changed[index, stage], 1

    def _runs_within(self, node: int, stage: int, end: int) -> list[int]:
        points = self._points[node]
        runs: list[int] = []
        for place in range(max(0, bisect_right(points, stage) - 1), len(points) - 1):
            if points[place] >= end:
                break
            if (node, place) not in self._runs:
                self._runs[node, place] = self.program.add_variable(cost=self.stages.duration_by_node[node])
            runs.append(self._runs[node, place])
        return runs

    def run_variables(self) -> dict[tuple[int, int], int]:
        """The variable of each (node, number of its span)."""
        return self._runs


def _points_by_node(stages: Stages, overloaded: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    readers: defaultdict[int, set[int]] = defaultdict(set)
    for node, indices in enumerate(stages.inputs_by_node):
        for index in indices:
            readers[index].add(node)
    return tuple(_points(stages, indices, readers, overloaded) for indices in stages.families_by_node)


def _points(
    stages: Stages, indices: Sequence[int], readers: defaultdict[int, set[int]], overloaded: Sequence[int]
) -> tuple[int, ...]:
    families = [stages.families[index] for index in indices if stages.families[index].can_return]
    if not families:
        return ()
    points = {stages.end}
    for family in families:
        points.update(_stages_of(family))
        after = bisect_right(overloaded, family.last_use)
        if after < len(overloaded):
            points.add(overloaded[after])
    for index in indices:
        for node in readers[index]:
            for other in stages.families_by_node[node]:
                points.update(_stages_of(stages.families[other]))
    first = min(family.produced for family in families)
    return tuple(sorted(point for point in points if first <= point <= stages.end))


def _stages_of(family: Family) -> tuple[int, ...]:
    return family.uses + family.latest
