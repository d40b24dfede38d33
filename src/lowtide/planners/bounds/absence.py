"""The bound of the absence relaxation, and the solution behind it.

Rows are generated: a linear program over some overloaded stages is solved, the rows it breaks are added, stages that
its solution overloads are chosen, and so on until nothing is broken; then, with whole variables, the same again. Every
solve gives a bound, so that the best one by the deadline is the answer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lowtide.ir import Graph, Interval, Scope
from lowtide.planners.bounds.bound import Bound
from lowtide.planners.bounds.covering import CoverBound, Floats
from lowtide.planners.bounds.families import Stages, fullest_stages, stages_from_graph, stages_within
from lowtide.planners.bounds.linear import LinearSession
from lowtide.planners.bounds.relaxation import AbsenceRelaxation
from lowtide.planners.bounds.separation import add_broken_rows, overloaded_stages, tightened_stages

__all__ = ["AbsenceSolution", "absence_bound", "absence_solution", "mean_absences", "relax"]

logger = logging.getLogger("lowtide")

_MOST_TERMS = 8_000  # of the first program's memory rows: a second or so
_MOST_NEW_STAGES = 12  # per round
_MOST_CANDIDATES = 48  # stages that are looked at closely per round
_LEAST_VALUE = 1e-6  # of what a solution lists
_LP_SHARE = 0.5  # of the time, where whole variables are wanted as well


@dataclass(frozen=True, slots=True)
class AbsenceSolution:
    """What the relaxation proved, and the best solution it met: where a plan of that cost would recompute and keep.

    Values are between 0 and 1, whole where the solution is; only those above 0 are listed. Families and nodes are
    those of ``stages``, by position.

    Attributes:
        bound: What is proven.
        stages: The graph, stage by stage.
        chosen: The overloaded stages that the solution speaks of, increasing.
        runs: By (node, span): the node runs again after stage ``start`` of the span and up to stage ``end`` of it.
        absent: By (family, chosen stage): live, but not resident there.
        held: By (family, chosen stage): resident there although nothing in the given order needs it any more.
        is_whole: Whether the values are whole.
        is_optimal: Whether no solution of the relaxation over all overloaded stages costs less.
        cost: Of the solution: duration beyond the baseline's.
    """

    bound: Bound
    stages: Stages
    chosen: tuple[int, ...]
    runs: dict[tuple[int, Interval], float]
    absent: dict[tuple[int, int], float]
    held: dict[tuple[int, int], float]
    is_whole: bool
    is_optimal: bool
    cost: float


def absence_bound(
    graph: Graph,
    budget_bytes: int,
    *,
    are_whole: bool = True,
    max_stages: int | None = None,
    time_limit_seconds: float | None = None,
) -> Bound:
    """Bound the duration of any plan of a graph in its given order.

    Args:
        graph: What is planned.
        budget_bytes: Most bytes resident at any step.
        are_whole: Whether to end with whole variables (MIP, tighter) or without (LP, faster).
        max_stages: Use only so many overloaded stages, spread out and the fullest of their neighbourhoods; None: as
            many as it takes (tightest).
        time_limit_seconds: Wall-clock time, or None; the best bound reached by then holds.
    """
    return absence_solution(
        graph, budget_bytes, are_whole=are_whole, max_stages=max_stages, time_limit_seconds=time_limit_seconds
    ).bound


def absence_solution(
    graph: Graph,
    budget_bytes: int,
    *,
    are_whole: bool = True,
    max_stages: int | None = None,
    time_limit_seconds: float | None = None,
) -> AbsenceSolution:
    """Bound the duration of any plan of a graph in its given order, and tell the solution that comes nearest.

    Args:
        graph: What is planned.
        budget_bytes: Most bytes resident at any step.
        are_whole: Whether to end with whole variables.
        max_stages: Use only so many overloaded stages, or None.
        time_limit_seconds: Wall-clock time, or None.
    """
    return relax(
        stages_from_graph(graph),
        budget_bytes,
        are_whole=are_whole,
        max_stages=max_stages,
        time_limit_seconds=time_limit_seconds,
    )


def relax(
    stages: Stages,
    budget_bytes: int,
    *,
    name: str = "absence",
    scope: Scope | None = None,
    are_whole: bool = True,
    max_stages: int | None = None,
    time_limit_seconds: float | None = None,
    are_returns_checked: bool = True,
) -> AbsenceSolution:
    """Solve the relaxation of a graph, however its stages were made.

    Args:
        stages: The graph, stage by stage.
        budget_bytes: Most bytes resident at any step.
        name: Of the method.
        scope: The plans that the stages speak of; None: those in the given order.
        are_whole: Whether to end with whole variables.
        max_stages: Use only so many overloaded stages, or None.
        time_limit_seconds: Wall-clock time, or None.
        are_returns_checked: Whether what comes back needs its inputs; False leaves the gap cover.
    """
    ends = None if time_limit_seconds is None else time.monotonic() + time_limit_seconds
    work = _Work(stages, budget_bytes, ends=ends, max_stages=max_stages, are_returns_checked=are_returns_checked)
    work.run(are_whole=are_whole)
    method = f"{name}-{'mip' if are_whole else 'lp'}"
    bound = Bound(stages.baseline_duration + work.best, scope or Scope(), method, is_infeasible=work.is_infeasible)
    return work.solution(bound)


def mean_absences(stages: Stages, overloaded: Sequence[int]) -> float:
    """How many families one overloaded stage could do without on average: a measure of the program's size."""
    total = sum(
        len(stages_within(overloaded, gap))
        for family in stages.families
        if family.can_return and family.size_bytes
        for gap in family.gaps()
    )
    return total / max(1, len(overloaded))


class _Work:
    """The rounds on one relaxation."""

    def __init__(
        self,
        stages: Stages,
        budget_bytes: int,
        *,
        ends: float | None,
        max_stages: int | None,
        are_returns_checked: bool,
    ) -> None:
        self.best = 0
        self.is_infeasible = False
        self._stages = stages
        self._ends = ends
        self._are_returns_checked = are_returns_checked
        self._overloaded = stages.overloaded(budget_bytes)
        self._may_choose = max_stages is None
        self._relaxation = AbsenceRelaxation(stages, budget_bytes)
        self._values: Floats | None = None
        self._is_whole = False
        self._is_optimal = False
        most = max_stages
        if most is None:
            most = max(1, int(_MOST_TERMS / max(1.0, _mean_live(stages, self._overloaded))))
        for stage in fullest_stages(stages, self._overloaded, max_stages=most):
            self._relaxation.choose(stage)

    def run(self, *, are_whole: bool) -> None:
        """Solve, add what is broken, and again."""
        if self._relaxation.is_impossible:
            self.is_infeasible = True
            return
        session = LinearSession(self._relaxation.program)
        seconds_left = self._seconds_left()
        lp_ends = self._ends
        if are_whole and seconds_left is not None:
            lp_ends = time.monotonic() + _LP_SHARE * seconds_left
        is_open = True
        while is_open:
            is_open = self._is_open(session.solve(ends=lp_ends), is_whole=False)
        if not are_whole or self.is_infeasible:
            return
        self._is_optimal = False
        while (left := self._seconds_left()) is None or left > 0:
            answer = self._relaxation.program.solve_mip(time_limit_seconds=left)
            if not self._is_open(answer, is_whole=True):
                break

    def solution(self, bound: Bound) -> AbsenceSolution:
        """The best solution met, by name."""
        values, relaxation = self._values, self._relaxation
        if values is not None:  # rows that it breaks have brought new variables since
            values = np.pad(values, (0, relaxation.program.num_variables - len(values)))
        runs: dict[tuple[int, Interval], float] = {}
        absent: dict[tuple[int, int], float] = {}
        held: dict[tuple[int, int], float] = {}
        cost = 0.0
        if values is not None:
            cost = relaxation.program.cost_of(values)
            runs = {key: float(values[run]) for key, run in relaxation.runs().items() if values[run] > _LEAST_VALUE}
            by_stage = relaxation.absent_by_stage(relaxation.chosen, values, least=_LEAST_VALUE)
            absent = {(index, stage): min(1.0, value) for stage in by_stage for index, value in by_stage[stage].items()}
            held = {
                (index, stage): float(values[variable])
                for (index, stage), variable in relaxation.changed().items()
                if not self._stages.families[index].is_live_at(stage) and values[variable] > _LEAST_VALUE
            }
        return AbsenceSolution(
            bound=bound,
            stages=self._stages,
            chosen=tuple(relaxation.chosen),
            runs=runs,
            absent=absent,
            held=held,
            is_whole=self._is_whole,
            is_optimal=self._is_optimal,
            cost=cost,
        )

    def _is_open(self, answer: CoverBound, *, is_whole: bool) -> bool:
        """Take the answer of a solve; whether another one may say more."""
        self.best = max(self.best, answer.cost)
        self.is_infeasible = answer.is_infeasible or self._relaxation.is_impossible
        if answer.values is not None and (answer.is_solved or self._values is None):
            self._values, self._is_whole = answer.values, is_whole
        logger.debug(
            "bound: %d of %d stages, %d rows, %d variables: %d%s",
            len(self._relaxation.chosen),
            len(self._overloaded),
            self._relaxation.program.num_rows,
            self._relaxation.program.num_variables,
            self.best,
            " whole" if is_whole else "",
        )
        if self.is_infeasible or not answer.is_solved or answer.values is None:
            return False
        if self._add(answer.values):
            return True
        self._is_optimal = self._may_choose
        return False

    def _add(self, values: Floats) -> bool:
        """Add rows and stages that a solution breaks; whether there were any."""
        relaxation = self._relaxation
        num_broken = add_broken_rows(relaxation, values) if self._are_returns_checked else 0
        if num_broken or not self._may_choose:  # more stages before the present ones are settled: slower by far
            return num_broken > 0
        overloaded = overloaded_stages(relaxation, values)[:_MOST_NEW_STAGES]
        if not overloaded and self._are_returns_checked:
            chosen = set(relaxation.chosen)
            others = [stage for stage in self._overloaded if stage not in chosen]
            candidates = fullest_stages(self._stages, others, max_stages=_MOST_CANDIDATES)
            overloaded = tightened_stages(relaxation, values, candidates, most=_MOST_NEW_STAGES)
        for stage in overloaded:
            relaxation.choose(stage)
        return bool(overloaded)

    def _seconds_left(self) -> float | None:
        return None if self._ends is None else self._ends - time.monotonic()


def _mean_live(stages: Stages, overloaded: Sequence[int]) -> float:
    total = sum(
        len(stages_within(overloaded, Interval(max(0, family.produced), max(0, family.produced, family.last_use) + 1)))
        for family in stages.families
        if family.can_return and family.size_bytes
    )
    return total / max(1, len(overloaded))
