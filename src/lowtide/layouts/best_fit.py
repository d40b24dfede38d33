"""Layouter ``best_fit``: lowest fit ordered by contention, improved by local search where that is not perfect.

One by one, each lifespan goes to the lowest offset that is free while it lives. First come those that live while most
bytes are live; ties go to the longer, larger or bigger ones, whichever of seven orders ends lowest. The native core
(``layout_fit.hpp``) says how the order is improved where the best of them exceeds what is enough.

Lowest fit in a clever order is how TensorFlow Lite's arena planner and others lay out inference graphs (Pisarchyk and
Lee, *Efficient Memory Management for Deep Neural Net Inference*, 2020, greedy by size). Departure: contention first.
"""

from __future__ import annotations

from lowtide import _layout
from lowtide.layouts.core import packing_problem
from lowtide.layouts.protocol import LayoutProposal, LayoutRequest

__all__ = ["BestFitLayouter"]

_MOST_WORK = 500_000_000
"""Spans looked at in the local search: about a second."""

_MOST_WORK_PER_SPAN = 500_000
"""Few lifespans have few orders."""


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
        capacity_units = problem.capacity_units
        outcome = _layout.fit(
            problem.spans,
            enough=problem.least_units if capacity_units is None else max(capacity_units, problem.least_units),
            max_work=min(_MOST_WORK, _MOST_WORK_PER_SPAN * len(problem.placed)),
            seed=request.seed,
            seconds=request.time_limit_seconds,
            should_stop=request.should_stop,
        )
        return problem.proposal(outcome.offsets, bound_units=problem.spans.peak)
