"""The absence relaxation solved in rounds, each of which gives a bound.

    a linear program over some overloaded stages
      └─▶ add the rows that its solution breaks, solve again; when none are left
            └─▶ choose stages that its solution overloads, solve again; when none are left
                  └─▶ with whole variables, the same again

Few stages suffice: in a transformer the fullest one says nearly all. The best bound by the deadline is the answer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import numpy as np

from lowtide.ir import Interval, Scope
from lowtide.planners.bounds.bound import Bound
from lowtide.planners.bounds.covering import CoverBound, Floats
from lowtide.planners.bounds.families import Stages, fullest_stages, stages_within
from lowtide.planners.bounds.linear import LinearSession
from lowtide.planners.bounds.relaxation import AbsenceRelaxation
from lowtide.planners.bounds.separation import add_broken_rows, overloaded_stages, tightened_stages
from lowtide.planners.bounds.solution import AbsenceOptions, AbsenceSolution

__all__ = ["relax"]

_logger = logging.getLogger("lowtide")

_MOST_TERMS = 8_000  # of the first program's memory rows
_MOST_NEW_STAGES = 12  # per round
_MOST_CANDIDATES = 48  # stages that are looked at closely per round
_LEAST_VALUE = 1e-6  # of what a solution lists
_LP_SHARE = 0.8  # of the time, where whole variables are wanted as well: rows first, they tell more


def relax(
    stages: Stages,
    budget_bytes: int,
    *,
    options: AbsenceOptions,
    name: str = "absence",
    scope: Scope | None = None,
) -> AbsenceSolution:
    """Solve the relaxation of a graph, however its stages were made.

    Args:
        stages: The graph, stage by stage.
        budget_bytes: Most bytes resident at any step.
        options: How far to go.
        name: Of the method.
        scope: The plans that the stages speak of; None: those in the given order.
    """
    work = _Work(stages, budget_bytes, options)
    work.run()
    method = f"{name}-{'mip' if options.are_whole else 'lp'}"
    bound = Bound(stages.baseline_duration + work.best, scope or Scope(), method, is_infeasible=work.is_infeasible)
    return work.solution(bound)


class _Work:
    """The rounds on one relaxation."""

    def __init__(self, stages: Stages, budget_bytes: int, options: AbsenceOptions) -> None:
        seconds = options.time_limit_seconds
        self.best = 0
        self.is_infeasible = False
        self._stages = stages
        self._options = options
        self._ends = None if seconds is None else time.monotonic() + seconds
        self._overloaded = stages.overloaded(budget_bytes)
        self._may_choose = options.max_stages is None and options.stages is None
        self._relaxation = AbsenceRelaxation(stages, budget_bytes)
        self._values: Floats | None = None
        self._is_whole = False
        self._is_settled = False
        for stage in self._first_stages():
            self._relaxation.choose(stage)

    def run(self) -> None:
        """Solve, add what is broken, and again."""
        if self._relaxation.is_impossible:
            self.is_infeasible = True
            return
        if not self._relaxation.chosen:  # nothing to give up
            self._is_whole = self._is_settled = True
            return
        session = LinearSession(self._relaxation.program)
        seconds_left = self._seconds_left()
        lp_ends = self._ends
        if self._options.are_whole and seconds_left is not None:
            lp_ends = time.monotonic() + _LP_SHARE * seconds_left
        is_open = True
        while is_open:
            is_open = self._is_open(session.solve(ends=lp_ends), is_whole=False)
        if not self._options.are_whole or self.is_infeasible:
            return
        self._is_settled = False
        while (left := self._seconds_left()) is None or left > 0:
            answer = self._relaxation.program.solve_mip(
                time_limit_seconds=left, max_search_nodes=self._options.max_search_nodes
            )
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
            is_settled=self._is_settled,
            cost=cost,
        )

    def _first_stages(self) -> tuple[int, ...]:
        options, stages = self._options, self._stages
        if options.stages is not None:
            return options.stages
        most = options.max_stages
        if most is None:
            most = max(1, int(_MOST_TERMS / max(1.0, _mean_live(stages, self._overloaded))))
        return fullest_stages(stages, self._overloaded, max_stages=most)

    def _is_open(self, answer: CoverBound, *, is_whole: bool) -> bool:
        """Take the answer of a solve; whether another one may say more."""
        self.best = max(self.best, answer.cost)
        self.is_infeasible = answer.is_infeasible or self._relaxation.is_impossible
        if answer.values is not None and (answer.is_solved or self._values is None):
            self._values, self._is_whole = answer.values, is_whole
        _logger.debug(
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
        self._is_settled = self._may_choose
        return False

    def _add(self, values: Floats) -> bool:
        """Add rows and stages that a solution breaks; whether there were any."""
        relaxation = self._relaxation
        num_broken = add_broken_rows(relaxation, values) if self._options.are_returns_checked else 0
        if num_broken or not self._may_choose:  # more stages before the present ones are settled: slower by far
            return num_broken > 0
        overloaded = overloaded_stages(relaxation, values)[:_MOST_NEW_STAGES]
        if not overloaded and self._options.are_returns_checked:
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
