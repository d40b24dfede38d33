"""A portfolio of ruin and recreate, of combined plans and annealings, over threads; order and recomputation together.

Where a relaxation (see ``exact``) all but solves the problem in the given order, as on training graphs, its solution is
the start, and the plan is often proven optimal in that order within a second; other orders are then looked at once, and
again only if one is better. Otherwise the portfolio starts from the better of that and ``greedy``'s plan, so that no
plan is longer than greedy's for the same request.

The engine is native (``native/include/lowtide/portfolio.hpp``, ``order.hpp``). Its members search sets of pairs (stage,
node before it), as ``greedy`` does: from nothing, from the best that all of them have found, or from what two of the
best recompute together. Where the order is free, an order with less above the budget is searched first, then a plan in
it, then an order for that plan, in turn.

Sources: Moscato, "On evolution, search, optimization, genetic algorithms and martial arts" (1989), for plans that are
combined and searched in turn; Kirkpatrick, Gelatt, Vecchi, "Optimization by simulated annealing" (1983); Glover,
"Heuristics for integer programming using surrogate constraints" (1977), for the walk along the rim of the budget; those
of ``greedy``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lowtide.ir import Compute, Step
from lowtide.planners.answers import Recorder, baseline_if_it_fits
from lowtide.planners.flat import FlatGraph, Recomputation, flatten, recomputations_in
from lowtide.planners.protocol import PlanRequest, Proposal
from lowtide.planners.search_course import Course, Found, better_of, default_work, proposal_of, seed_of_turn
from lowtide.planners.search_greedy import GreedyStart

if TYPE_CHECKING:
    from lowtide.planners.exact.meeting import Meeting

__all__ = ["SearchPlanner"]

_logger = logging.getLogger("lowtide")

_CLEAR_ROUNDS = 5  # of the relaxation where it is small, else one
_CLEAR_NODES = 20  # of branch and bound in each
_RELAXED_SHARE = 0.4  # of the time that is left, for all of them together
_START_SHARE = 0.1  # of the work, and
_START_TIME_SHARE = 0.5  # of the time, near a plan that was handed over
_AFTER_GREEDY = 0.5  # of the work: the other half is greedy's
_BESIDE_GREEDY = 0.5  # of the work: as long as greedy takes
_TIME_BESIDE_GREEDY = 0.5  # of the time that is left
_ORDER_SHARE = 0.2  # of the work and of the time: for the first order
_WORTHWHILE = 0.9  # of the overflow in the given order: with more, another order gains nothing
_TIGHTENINGS = (0.95, 1.0, 0.9, 0.97, 0.85, 1.0)  # of the budget, for the orders of the plans that follow
_NUM_TURNS = 24  # of order and plan


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
        work = default_work(flat) if self._max_work is None else self._max_work
        course = Course(request, recorder, started, work)
        if request.start is not None and (proposal := _improve(course, flat, request.start)):
            return proposal
        with GreedyStart(course, flat) as greedy:
            given = _Given(course, flat, greedy)
            given.approach()
            proposal = given.propose() if request.scope.order == "fixed" else _Orders(course, given).propose()
        _logger.debug("search: %s, %.2f s", proposal.status.value, time.monotonic() - started)
        return proposal


def _improve(course: Course, flat: FlatGraph, start: Sequence[Step]) -> Proposal | None:
    """The best plan near another one, in its order; None where none fits, or that order is not asked for."""
    request = course.request
    sequence = [step.node for step in start if isinstance(step, Compute)]
    order = tuple(dict.fromkeys(sequence))
    if order != flat.graph.order:
        if request.scope.order == "fixed" or set(order) != set(flat.graph.order):
            return None
        flat = flatten(replace(flat.graph, order=order))
    found = course.search(flat, recomputations_in(flat, sequence), share=_START_SHARE, time_share=_START_TIME_SHARE)
    if not found.fits:
        return None
    return proposal_of(request, course.recorder, found, least_extra_duration=None, is_infeasible=False)


class _Given:
    """Searches plans in the given order."""

    def __init__(self, course: Course, flat: FlatGraph, greedy: GreedyStart) -> None:
        from lowtide.planners.exact.meeting import Meeting

        self.flat = flat
        self.greedy = greedy
        self.meeting: Meeting = Meeting(course, flat)
        self._course = course

    def approach(self) -> None:
        """Start from the relaxation where it all but solves the problem, until a plan meets the bound."""
        relaxing = self.meeting.relaxing
        seconds_left = self._course.countdown(_RELAXED_SHARE)
        if not relaxing.is_clear(seconds=seconds_left()):
            return
        for _ in range(_CLEAR_ROUNDS):
            self.meeting.relax(seconds=seconds_left(), max_search_nodes=_CLEAR_NODES)
            is_last = relaxing.is_exhausted or not relaxing.is_small
            if self.meeting.is_settled or is_last or self._course.is_over or seconds_left() == 0.0:
                break

    def propose(self) -> Proposal:
        """The best plan in this order."""
        self.meeting.tell_bound()
        if not self.meeting.is_met:
            self._search_with_greedy()
        return self.meeting.proposal()

    def _search_with_greedy(self) -> None:
        """Search beside greedy, where there are threads for both, then from what the two have found."""
        meeting = self.meeting
        if self._course.request.threads > 1:
            meeting.search(meeting.best_start, share=_BESIDE_GREEDY, time_share=_TIME_BESIDE_GREEDY)
        best_start, found = meeting.best_start, self.greedy.found()
        meeting.take(found)
        if meeting.is_met:
            return
        assert meeting.best is not None
        start = () if meeting.best.fits else meeting.best_start
        meeting.search(start, best_start, found.recomputations, share=_AFTER_GREEDY, time_share=1.0)


class _Orders:
    """Searches orders and plans in turn."""

    def __init__(self, course: Course, given: _Given) -> None:
        self._course = course
        self._given = given
        self._request = course.request

    def propose(self) -> Proposal:
        """The best plan, in the order that suits it."""
        first = self._ordered(self._given.flat, (), budget_bytes=self._request.budget_bytes, share=_ORDER_SHARE)
        if first is None:
            return self._given.propose()
        best = self._take_turns(first[0])
        if best.flat is self._given.flat:
            self._given.meeting.take(best)
            return self._given.meeting.proposal()
        return proposal_of(self._request, self._course.recorder, best, least_extra_duration=None, is_infeasible=False)

    def _take_turns(self, ordered: FlatGraph) -> Found:
        """Search orders and plans in turn; where the plan in the given order is proven, only if another is better."""
        meeting = self._given.meeting
        best = better_of(meeting.best, self._course.search(ordered, (), share=0.2))
        is_best = best.fits and not best.extra_duration
        if is_best or (meeting.is_met and best is meeting.best):
            return best
        best = better_of(best, self._given.greedy.found())
        for turn in range(1, _NUM_TURNS + 1):
            if self._course.is_over:
                break
            best = better_of(best, self._take_turn(best, turn))
        return best

    def _take_turn(self, best: Found, turn: int) -> Found:
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
        return self._course.search(ordered[0], ordered[1], share=0.6 * share, budget_bytes=budget_bytes, turn=turn)

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

        seconds_left = self._course.countdown(share)
        asked = self._request.should_stop

        def should_stop() -> bool:
            return seconds_left() == 0.0 or (asked is not None and asked())

        ordering = order_plan(
            flat,
            recomputations,
            budget_bytes=budget_bytes,
            seed=seed_of_turn(self._request.seed, turn),
            max_work=int(self._course.work * share),
            should_stop=should_stop,
        )
        if not recomputations:
            loads = load_bytes_by_stage(native_problem(flat), ())
            if ordering.overflow_bytes > _WORTHWHILE * sum(max(0, load - budget_bytes) for load in loads):
                return None
        return flatten(ordering.graph), ordering.recomputations
