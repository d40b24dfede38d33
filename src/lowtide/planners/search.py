"""A portfolio of annealings and of ruin and recreate, over threads and seeds; order and recomputation together.

The engine is native (``native/include/lowtide/portfolio.hpp``, ``order.hpp``). Its members search sets of pairs (stage,
node before it), as ``greedy`` does, each from the best that all of them have found, or from nothing. Where the order is
free, an order with less above the budget is searched first, then a plan in it, then an order for that plan, in turn.

Sources: Kirkpatrick, Gelatt, Vecchi, "Optimization by simulated annealing" (1983); Glover, "Heuristics for integer
programming using surrogate constraints" (1977), for the walk along the rim of the budget; those of ``greedy``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from lowtide.ir import Status
from lowtide.planners.answers import Recorder, baseline_if_it_fits, steps_of
from lowtide.planners.flat import FlatGraph, Recomputation, flatten
from lowtide.planners.protocol import PlanRequest, Proposal

__all__ = ["SearchPlanner"]

_logger = logging.getLogger("lowtide")

_WORK_PER_NODE = 8_000_000
_MOST_WORK = 16_000_000_000
_ORDER_SHARE = 0.2  # of the work and of the time: for the first order
_WORTHWHILE = 0.9  # of the overflow in the given order: with more, another order gains nothing
_TIGHTENINGS = (0.95, 1.0, 0.9, 0.97, 0.85, 1.0)  # of the budget, for the orders of the plans that follow
_NUM_TURNS = 24  # of order and plan
_SEED_STRIDE = 0x9E3779B97F4A7C15


class SearchPlanner:
    """Plans with the native portfolio.

    How long it improves a plan is counted in work per thread, a few seconds for a thousand nodes; a time limit ends it
    earlier. The same seed and threads give the same plan.

    Args:
        max_work: Stages touched and moves drawn by each thread (a few hundred million per second); None for the
            default.

    Attributes:
        searches_order: It leaves the given order where the scope allows that and it helps.
    """

    name = "search"
    searches_order = True

    def __init__(self, *, max_work: int | None = None) -> None:
        self._max_work = max_work

    def propose(self, request: PlanRequest) -> Proposal:
        """Propose a plan that fits the budget, or else the one of the smallest peak met."""
        started = time.monotonic()
        flat = flatten(request.graph)
        if proposal := baseline_if_it_fits(flat, request, started):
            return proposal
        recorder = Recorder(flat, request.on_progress, started)
        course = _Course(request, recorder, started, self._work(flat))
        found = course.search(flat, (), share=1.0) if request.scope.order == "fixed" else course.search_order(flat)
        _logger.debug(
            "search: %d recomputations, peak %d bytes, %.2f s",
            len(found.recomputations),
            found.peak_bytes,
            time.monotonic() - started,
        )
        is_free = found.extra_duration == 0 and found.fits  # every node is executed at least once, in any order
        return Proposal(
            status=Status.OPTIMAL if is_free else Status.FEASIBLE if found.fits else Status.TIMEOUT,
            steps=steps_of(found.flat, found.recomputations),
            lower_bound_duration=request.graph.baseline_duration if is_free else None,
            incumbents=tuple(recorder.incumbents),
        )

    def _work(self, flat: FlatGraph) -> int:
        if self._max_work is not None:
            return self._max_work
        return min(_MOST_WORK, _WORK_PER_NODE * len(flat.nodes))


@dataclass(frozen=True, slots=True)
class _Found:
    """A plan in the order of a flat graph."""

    flat: FlatGraph
    recomputations: tuple[Recomputation, ...]
    fits: bool
    peak_bytes: int
    extra_duration: int

    @property
    def rank(self) -> tuple[bool, int]:
        """Smaller is better."""
        return (False, self.extra_duration) if self.fits else (True, self.peak_bytes)


class _Course:
    """One search, step by step, with what is left of its work and its time."""

    def __init__(self, request: PlanRequest, recorder: Recorder, started: float, work: int) -> None:
        self._request = request
        self._recorder = recorder
        self._work = work
        limit = request.time_limit_seconds
        self._deadline = None if limit is None else started + limit

    def search(
        self,
        flat: FlatGraph,
        start: Sequence[Recomputation],
        *,
        share: float,
        budget_bytes: int | None = None,
        turn: int = 0,
    ) -> _Found:
        """Search a plan in one order, with a share of all work and of the time that is left.

        Args:
            flat: The graph in that order.
            start: Recomputations to begin with.
            share: Of the work, and of the time that is left.
            budget_bytes: Another budget than the one asked for.
            turn: Number of this search: the seeds of two turns differ.
        """
        from lowtide import _search
        from lowtide.planners.core import native_problem, recomputations_from

        request = self._request
        asked_bytes = request.budget_bytes

        def note(stages: list[int], nodes: list[int]) -> None:
            if budget_bytes is None or budget_bytes <= asked_bytes:
                self._recorder.note_in(flat, stages, nodes)

        outcome = _search.search(
            native_problem(flat),
            budget_bytes=asked_bytes if budget_bytes is None else budget_bytes,
            seed=(request.seed + turn * _SEED_STRIDE) % 2**64,
            threads=request.threads,
            max_copies=request.scope.max_copies,
            max_work=int(self._work * share),
            seconds=self._seconds_left(share),
            on_better=note,
            should_stop=request.should_stop,
            start_stages=[again.stage for again in start],
            start_nodes=[again.node for again in start],
        )
        chosen = tuple(recomputations_from(outcome.stages, outcome.nodes))
        return _Found(flat, chosen, outcome.peak_bytes <= asked_bytes, outcome.peak_bytes, outcome.extra_duration)

    def search_order(self, given: FlatGraph) -> _Found:
        """Search orders and plans in turn."""
        first = self._ordered(given, (), budget_bytes=self._request.budget_bytes, share=_ORDER_SHARE)
        if first is None:
            return self.search(given, (), share=1.0)
        best = self.search(first[0], (), share=0.2)
        if best.fits and not best.extra_duration:
            return best
        best = min(best, self.search(given, (), share=0.1), key=lambda found: found.rank)
        for turn in range(1, _NUM_TURNS + 1):
            if self._is_over:
                break
            best = min(best, self._take_turn(best, turn), key=lambda found: found.rank)
        return best

    def _take_turn(self, best: _Found, turn: int) -> _Found:
        """An order for the best plan, then a plan in it; where none fits, for a budget on the way to the one asked."""
        share = 0.5 / _NUM_TURNS
        budget_bytes = self._request.budget_bytes
        if not best.fits:
            budget_bytes += (best.peak_bytes - budget_bytes) * (turn % 4) // 5
        tightening = _TIGHTENINGS[turn % len(_TIGHTENINGS)]
        ordered = self._ordered(
            best.flat, best.recomputations, budget_bytes=int(budget_bytes * tightening), share=0.4 * share, turn=turn
        )
        if ordered is None:
            return best
        return self.search(ordered[0], ordered[1], share=0.6 * share, budget_bytes=budget_bytes, turn=turn)

    def _ordered(
        self,
        flat: FlatGraph,
        recomputations: Sequence[Recomputation],
        *,
        budget_bytes: int,
        share: float,
        turn: int = 0,
    ) -> tuple[FlatGraph, tuple[Recomputation, ...]] | None:
        """A better order for a plan, or None if there is none worth its while."""
        from lowtide.planners.core import load_bytes_by_stage, native_problem
        from lowtide.planners.search_order import order_plan

        seconds = self._seconds_left(share)
        end = None if seconds is None else time.monotonic() + seconds
        asked = self._request.should_stop

        def should_stop() -> bool:
            return (end is not None and time.monotonic() > end) or (asked is not None and asked())

        ordering = order_plan(
            flat,
            recomputations,
            budget_bytes=budget_bytes,
            seed=(self._request.seed + turn * _SEED_STRIDE) % 2**64,
            max_work=int(self._work * share),
            should_stop=should_stop,
        )
        if not recomputations:
            loads = load_bytes_by_stage(native_problem(flat), ())
            if ordering.overflow_bytes > _WORTHWHILE * sum(max(0, load - budget_bytes) for load in loads):
                return None
        return flatten(ordering.graph), ordering.recomputations

    def _seconds_left(self, share: float) -> float | None:
        if self._deadline is None:
            return None
        return max(0.01, (self._deadline - time.monotonic()) * share)

    @property
    def _is_over(self) -> bool:
        if self._deadline is not None and time.monotonic() >= self._deadline:
            return True
        return self._request.should_stop is not None and self._request.should_stop()
