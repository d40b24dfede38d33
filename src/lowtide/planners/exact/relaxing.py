"""Bounds and starts for a search, round after round, over more and more watched stages."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import groupby

from lowtide.planners.bounds.absence import mean_absences
from lowtide.planners.bounds.families import fullest_stages, stages_from_graph
from lowtide.planners.core import load_bytes_by_stage, native_problem
from lowtide.planners.countdown import countdown
from lowtide.planners.exact.grid import GridRelaxation
from lowtide.planners.exact.relaxation import Relaxation
from lowtide.planners.exact.rounding import recomputations_of
from lowtide.planners.flat import FlatGraph, Recomputation

__all__ = ["Relaxing"]

_logger = logging.getLogger("lowtide")

_MOST_ABSENCES = 4_000  # in the first round: a second or so
_GROWTH = 2  # of the number of watched stages, where the last plan does not say which ones are missing
_MOST_NEW = 16  # stages per round
_MOST_FRACTIONAL = 4  # recomputations, where the linear relaxation all but solves the problem
_FEW_VARIABLES = 2_000
_MOST_ITERATIONS = 8_000


class Relaxing:
    """Solves the relaxation of one graph and budget, in rounds.

    A round gives a bound and the recomputations of its solution. The first round is coarse (``relaxation``), the others
    are finer (``grid``). Where the recomputations overflow, the next round watches; where they fit without meeting the
    bound, it watches more of the overloaded stages.

    Args:
        flat: The graph; its order is the one that the bound speaks of.
        budget_bytes: Most bytes resident at any step.

    Attributes:
        extra_duration: The best bound so far: no plan takes less beyond the baseline's duration.
        is_infeasible: Whether it is proven that no plan fits.
        is_exhausted: Whether another round would tell nothing that the last one did not.
        is_small: Whether the last round was over in a moment, whatever the graph.
    """

    def __init__(self, flat: FlatGraph, budget_bytes: int) -> None:
        self.extra_duration = 0
        self.is_infeasible = False
        self.is_exhausted = False
        self.is_small = False
        self._is_fine = False
        self._flat = flat
        self._budget_bytes = budget_bytes
        self._stages = stages_from_graph(flat.graph)
        self._overloaded = self._stages.overloaded(budget_bytes)
        most = max(1, int(_MOST_ABSENCES / max(1.0, mean_absences(self._stages, self._overloaded))))
        self._watched = fullest_stages(self._stages, self._overloaded, max_stages=most)

    def is_clear(self, *, seconds: float | None) -> bool:
        """Whether the first round is likely to be solved soon and to describe a plan that all but fits.

        So it is with training graphs of any size: the linear relaxation leaves one or two recomputations undecided. On
        random layered graphs it leaves tens, and branch and bound takes longer than a search of equal quality.

        Args:
            seconds: Wall-clock time, or None.
        """
        seconds_left = countdown(seconds)
        relaxation = Relaxation(self._stages, self._budget_bytes, self._watched)
        if relaxation.num_variables <= _FEW_VARIABLES:
            return True
        fractional = relaxation.count_fractional_runs(
            time_limit_seconds=seconds_left(), max_iterations=_MOST_ITERATIONS
        )
        return fractional is not None and fractional <= _MOST_FRACTIONAL

    def run(self, *, seconds: float | None, max_search_nodes: int | None) -> tuple[Recomputation, ...]:
        """Run one round.

        Args:
            seconds: Wall-clock time, or None.
            max_search_nodes: Nodes of its branch and bound, or None.

        Returns:
            Recomputations to start a search from; they need not fit, and there are none where nothing was found.
        """
        seconds_left = countdown(seconds)
        kind = GridRelaxation if self._is_fine else Relaxation
        relaxation = kind(self._stages, self._budget_bytes, self._watched)
        self.is_small = relaxation.num_variables <= _FEW_VARIABLES
        relaxed = relaxation.solve(time_limit_seconds=seconds_left(), max_search_nodes=max_search_nodes)
        self.is_infeasible = self.is_infeasible or relaxed.is_infeasible
        self.extra_duration = max(self.extra_duration, relaxed.extra_duration)
        start: tuple[Recomputation, ...] = ()
        if relaxed.changed is not None:
            last_stage = self._flat.last_stage
            found = recomputations_of(self._stages, self._watched, relaxed.changed)
            start = tuple(again for again in found if again.stage <= last_stage[again.node])
        _logger.debug(
            "exact: %d stages watched, %d variables, bound %d%s, plan of %d",
            len(self._watched),
            relaxation.num_variables,
            relaxed.extra_duration,
            "" if relaxed.is_solved else " (not solved)",
            sum(self._flat.recompute_duration[again.node] for again in start),
        )
        self._watch_more(start, is_solved=relaxed.is_solved)
        return start

    def _watch_more(self, start: Sequence[Recomputation], *, is_solved: bool) -> None:
        loads = load_bytes_by_stage(native_problem(self._flat), start)
        missing = sorted(self._overflowing(loads), key=lambda stage: (self._budget_bytes - loads[stage], stage))
        watched = set(self._watched).union(missing[:_MOST_NEW]) if is_solved else set(self._watched)
        if self._is_fine and len(watched) == len(self._watched):
            watched.update(self._more_overloaded())
        is_last = self._is_fine and (not is_solved or len(watched) == len(self._watched))
        self.is_exhausted = self.is_infeasible or is_last
        self._is_fine = True
        self._watched = tuple(sorted(watched))

    def _more_overloaded(self) -> tuple[int, ...]:
        return fullest_stages(self._stages, self._overloaded, max_stages=_GROWTH * len(self._watched))

    def _overflowing(self, loads: Sequence[int]) -> list[int]:
        """The fullest stage of each run of stages above the budget that are not watched yet."""
        watched = set(self._watched)
        runs = groupby(range(len(loads)), key=lambda stage: loads[stage] > self._budget_bytes and stage not in watched)
        above = [list(run) for is_above, run in runs if is_above]
        return [max(run, key=lambda stage: (loads[stage], -stage)) for run in above]
