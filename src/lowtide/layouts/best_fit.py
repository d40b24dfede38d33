"""Layouter ``best_fit``: lowest fit ordered by contention, improved by local search where that is not perfect.

One by one, each lifespan goes to the lowest offset that is free while it lives. First come those that live while most
bytes are live; ties go to the longer, larger or bigger ones, whichever of seven orders ends lowest. The native core
(``layout_fit.hpp``) says how the order is improved where the best of them exceeds what is enough.

Lowest fit in a clever order is how TensorFlow Lite's arena planner and others lay out inference graphs (Pisarchyk and
Lee, *Efficient Memory Management for Deep Neural Net Inference*, 2020, greedy by size). Departure: contention first.
"""

from __future__ import annotations

from lowtide import _layout
from lowtide.layouts.core import PackingProblem, packing_problem
from lowtide.layouts.protocol import LayoutProposal, LayoutRequest

__all__ = ["BestFitLayouter"]

_MOST_WORK = 500_000_000
"""Spans looked at in the local search: about a second."""

_MOST_WORK_PER_SPAN = 500_000
"""Few lifespans have few orders."""

_LEAST_SHARE = 20
"""What part of the work goes into a footprint below a capacity that is met anyway."""


class BestFitLayouter:
    """Fast, for any number of lifespans; its bound is the largest sum of sizes at one step."""

    name = "best_fit"

    def place(self, request: LayoutRequest) -> LayoutProposal:
        """Give every lifespan an offset so that no two share bytes at a step.

        Args:
            request: What to place. Without a time limit it ends after a fixed amount of work, a second or two.

        Raises:
            InputError: A size is no multiple of the alignment.
        """
        problem = packing_problem(request)
        least_units, capacity_units = problem.least_units, problem.capacity_units
        work = min(_MOST_WORK, _MOST_WORK_PER_SPAN * len(problem.placed))
        if capacity_units is None or capacity_units <= least_units:
            return problem.proposal(_fit(problem, least_units, work).offsets, bound_units=problem.spans.peak)
        # First a little work towards the least there can be, then what it takes to keep within the capacity.
        outcome = _fit(problem, least_units, work // _LEAST_SHARE)
        if outcome.footprint > capacity_units:
            outcome = min(outcome, _fit(problem, capacity_units, work), key=lambda fitted: fitted.footprint)
        return problem.proposal(outcome.offsets, bound_units=problem.spans.peak)


def _fit(problem: PackingProblem, enough_units: int, max_work: int) -> _layout.FitOutcome:
    request = problem.request
    return _layout.fit(
        problem.spans,
        enough=enough_units,
        max_work=max_work,
        seed=request.seed,
        seconds=request.time_limit_seconds,
        should_stop=request.should_stop,
    )
