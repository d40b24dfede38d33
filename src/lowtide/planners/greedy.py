"""Greedy insertion of recomputations, then ruin and recreate.

The engine is native (``native/include/lowtide/greedy.hpp``) and searches sets of pairs (stage, node before it): stage
j executes its recomputations in order and then the j-th node of the given order, every copy lives until its last use.
Any such set is a legal sequence; only memory constrains.

Sources: the staged sequences are those of Bartan et al., "Moccasin" (ICML 2023), without their limit of copies; ruin
and recreate is Schrimpf et al., "Record breaking optimization results using the ruin and recreate principle" (2000).
"""

from __future__ import annotations

import logging
import time

from lowtide.ir import Status
from lowtide.planners.answers import Recorder, baseline_if_it_fits, steps_of
from lowtide.planners.flat import FlatGraph, flatten
from lowtide.planners.protocol import PlanRequest, Proposal

__all__ = ["GreedyPlanner"]

_logger = logging.getLogger("lowtide")

_WORK_PER_NODE = 4_000_000
_MOST_WORK = 8_000_000_000


class GreedyPlanner:
    """Plans with the native greedy search.

    Its plans keep the given order, also where the scope leaves the order free. It uses one thread. How long it improves
    a plan is counted in work, about two seconds for a thousand nodes; a time limit ends it earlier.

    Args:
        max_work: Stages touched while improving (a few hundred million per second); None for the default, 0 for
            greedy alone.
    """

    name = "greedy"

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
        outcome = _search.greedy(
            native_problem(flat),
            budget_bytes=request.budget_bytes,
            seed=request.seed % 2**64,
            max_copies=request.scope.max_copies,
            max_work=self._work(flat),
            seconds=request.time_limit_seconds,
            on_better=recorder.note,
            should_stop=request.should_stop,
        )
        chosen = recomputations_from(outcome.stages, outcome.nodes)
        _logger.debug(
            "greedy: %d recomputations, peak %d bytes, %d rounds, work %d, %.2f s",
            len(chosen),
            outcome.peak_bytes,
            outcome.num_rounds,
            outcome.work,
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
