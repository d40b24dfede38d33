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
from collections.abc import Callable
from typing import TYPE_CHECKING

from lowtide.ir import Status
from lowtide.planners.answers import Recorder, baseline_if_it_fits, steps_of
from lowtide.planners.flat import FlatGraph, flatten
from lowtide.planners.protocol import PlanRequest, Proposal

if TYPE_CHECKING:
    from lowtide._search import GreedyOutcome

__all__ = ["GreedyPlanner", "default_work", "run_greedy"]

_logger = logging.getLogger("lowtide")

_WORK_PER_NODE = 4_000_000
_MOST_WORK = 8_000_000_000


def default_work(flat: FlatGraph) -> int:
    """Stages touched while improving, where nothing else is said."""
    return min(_MOST_WORK, _WORK_PER_NODE * len(flat.nodes))


def run_greedy(
    flat: FlatGraph,
    request: PlanRequest,
    *,
    max_work: int,
    seconds: float | None,
    on_better: Callable[[list[int], list[int]], None],
    should_stop: Callable[[], bool] | None,
) -> GreedyOutcome:
    """The native search, in the given order.

    Args:
        flat: The graph of the request.
        request: What to plan.
        max_work: Stages touched while improving.
        seconds: Wall-clock time, or None.
        on_better: Told of every better plan that fits, as stages and nodes, by the calling thread.
        should_stop: Asked a few times per second by the calling thread, or None.
    """
    from lowtide import _search
    from lowtide.planners.core import native_problem

    return _search.greedy(
        native_problem(flat),
        budget_bytes=request.budget_bytes,
        seed=request.seed % 2**64,
        max_copies=request.scope.max_copies,
        max_work=max_work,
        seconds=seconds,
        on_better=on_better,
        should_stop=should_stop,
    )


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
        from lowtide.planners.core import recomputations_from

        recorder = Recorder(flat, request.on_progress, started)
        outcome = run_greedy(
            flat,
            request,
            max_work=default_work(flat) if self._max_work is None else self._max_work,
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
