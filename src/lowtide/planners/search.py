"""A portfolio of annealings and of ruin and recreate, over threads and seeds.

The engine is native (``native/include/lowtide/portfolio.hpp``): its members search sets of pairs (stage, node before
it), as ``greedy`` does, each from the best that all of them have found, or from nothing.

Sources: Kirkpatrick, Gelatt, Vecchi, "Optimization by simulated annealing" (1983); Glover, "Heuristics for integer
programming using surrogate constraints" (1977), for the walk along the rim of the budget; those of ``greedy``.
"""

from __future__ import annotations

import logging
import time

from lowtide.ir import Status
from lowtide.planners.answers import Recorder, baseline_if_it_fits, steps_of
from lowtide.planners.flat import FlatGraph, flatten
from lowtide.planners.protocol import PlanRequest, Proposal

__all__ = ["SearchPlanner"]

_logger = logging.getLogger("lowtide")

_WORK_PER_NODE = 4_000_000
_MOST_WORK = 16_000_000_000


class SearchPlanner:
    """Plans with the native portfolio.

    How long it improves a plan is counted in work per thread, a few seconds for a thousand nodes; a time limit ends it
    earlier. The same seed and threads give the same plan.

    Args:
        max_work: Stages touched and moves drawn by each thread (a few hundred million per second); None for the
            default.
    """

    name = "search"

    def __init__(self, *, max_work: int | None = None) -> None:
        self._max_work = max_work

    def propose(self, request: PlanRequest) -> Proposal:
        """Propose a plan that fits the budget, or else the one of the smallest peak met."""
        started = time.monotonic()
        flat = flatten(request.graph)
        if proposal := baseline_if_it_fits(flat, request, started):
            return proposal
        from lowtide import _search
        from lowtide.planners.core import native_problem, recomputations_from

        recorder = Recorder(flat, request.on_progress, started)
        outcome = _search.search(
            native_problem(flat),
            budget_bytes=request.budget_bytes,
            seed=request.seed % 2**64,
            threads=request.threads,
            max_copies=request.scope.max_copies,
            max_work=self._work(flat),
            seconds=request.time_limit_seconds,
            on_better=recorder.note,
            should_stop=request.should_stop,
        )
        chosen = recomputations_from(outcome.stages, outcome.nodes)
        _logger.debug(
            "search: %d recomputations, peak %d bytes, %d rounds, %.2f s",
            len(chosen),
            outcome.peak_bytes,
            outcome.num_rounds,
            time.monotonic() - started,
        )
        return Proposal(
            status=Status.FEASIBLE if outcome.is_feasible else Status.TIMEOUT,
            steps=steps_of(flat, chosen),
            incumbents=tuple(recorder.incumbents),
        )

    def _work(self, flat: FlatGraph) -> int:
        if self._max_work is not None:
            return self._max_work
        return min(_MOST_WORK, _WORK_PER_NODE * len(flat.nodes))
