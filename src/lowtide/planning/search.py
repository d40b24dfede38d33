"""One planning: ask a planner, replay what it proposes, add a bound, let the referee check the whole."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from lowtide.errors import InputError, MissingDependency, RefereeError
from lowtide.ir import Incumbent, Plan, PlanResult, Status, Step
from lowtide.ir.sequence import baseline_steps
from lowtide.ir.serde import graph_sha256
from lowtide.layouts.protocol import Layouter
from lowtide.planners.protocol import Planner, PlanRequest, Proposal
from lowtide.planning.addresses import Addresses
from lowtide.planning.attempt import Attempt, as_answer_to, as_free_order, settle
from lowtide.planning.facts import Facts
from lowtide.planning.failures import PlannerFailed
from lowtide.planning.fitting import lower_until_it_fits
from lowtide.planning.smallest import smallest_known_to_work
from lowtide.planning.words import describe_scope
from lowtide.referee import Replay, VerifiedPlan, check_plan, replay
from lowtide.units import Bytes, format_bytes

if TYPE_CHECKING:
    from lowtide.planners.bounds import Bound

__all__ = ["Attempt", "Search"]

_logger = logging.getLogger("lowtide")

_MOST_EXTRA_SECONDS = 10.0  # for what nobody asked for by name: a bound, a plan for the sake of addresses
_MOST_SECONDS_BELOW = 1.0  # for planner and addresses each, where nothing can fit: how low the graph can go
_MOST_SECONDS_KNOWN = 3.0  # for all tries of budgets that are to be named as known to work
_SHORTEST_SECONDS = 0.05
_PLANNER_SHARE = 0.75  # of a time limit that planner and bound share
_FIRST_SHARE = 0.5  # of what the planner gets, where it may have to plan again for the sake of addresses
_RETRY_SHARE = 0.4  # of what is left then
_MIN_BUDGET_RESOLUTION = 256
_BISECTION_SHARE = 0.6  # of a time limit: the rest is for a plan within the smallest budget that was found
_SECONDS_BETWEEN_LOOKS = 0.05
_GRACE_SECONDS = 2.0  # for a solver that looks at its time limit late

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Search:
    """A graph, a planner, and what was asked of it.

    Attributes:
        facts: Of the graph.
        planner: Who is asked.
        request: Everything but the budget.
        keep_order: Refuse plans that leave the given order.
        bound: Whether a lower bound is wanted.
        started: ``time.perf_counter()`` at the start, from which the time limit counts.
        layouter: Who gives plans addresses, or None for plans without.
        requires_addresses: Whether a plan whose live bytes fit is none where its addresses do not.
    """

    facts: Facts
    planner: Planner
    request: PlanRequest
    keep_order: bool
    bound: bool
    started: float
    layouter: Layouter | None = None
    requires_addresses: bool = True
    _addresses: Addresses | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.layouter is not None:
            addresses = Addresses(
                self.facts, self.layouter, self.request.seed, self._seconds_left, self.request.should_stop
            )
            object.__setattr__(self, "_addresses", addresses)

    def attempt(self, budget_bytes: Bytes) -> Attempt:
        """Answer one budget, which applies to the footprint where plans get addresses."""
        if budget_bytes < self.facts.largest_working_set_bytes:
            return self._attempt_impossible(budget_bytes)
        planned = self._attempt_peak(budget_bytes)
        first = self._laid_out(planned)
        if first.fits or first.replayed.peak_bytes > budget_bytes or first.status is Status.INFEASIBLE:
            return first
        started = time.perf_counter()
        found = lower_until_it_fits(
            first,
            lambda peak_budget_bytes: self._attempt_below(peak_budget_bytes, budget_bytes, start=first.steps),
            least_bytes=self.facts.largest_working_set_bytes,
            resolution_bytes=self.request.graph.alignment,
            is_over=lambda: self.is_over or self._is_time_for_bound or self._is_overlong(started),
        )
        if found.fits or self.requires_addresses:
            return as_answer_to(first, found)
        return replace(planned, unplaced_footprint_bytes=found.needed_bytes)

    def _attempt_below(self, peak_budget_bytes: Bytes, budget_bytes: Bytes, *, start: tuple[Step, ...]) -> Attempt:
        """Plan for a smaller peak, from the plan of a larger one, for the sake of addresses within the budget."""
        tried = self._consult(peak_budget_bytes, most_seconds=_MOST_EXTRA_SECONDS, is_reported=False, start=start)
        return replace(self._laid_out(tried, capacity_bytes=budget_bytes, is_retry=True), budget_bytes=budget_bytes)

    def _attempt_peak(self, budget_bytes: Bytes) -> Attempt:
        """Answer one budget for the peak; the planner is asked only where it is of use."""
        if budget_bytes >= self.facts.baseline.peak_bytes:
            return self._baseline_attempt(budget_bytes)
        return self._consult(budget_bytes)

    def _attempt_impossible(self, budget_bytes: Bytes) -> Attempt:
        """Answer a budget below the largest working set: look for a moment how low the graph can go instead."""
        least_bytes = self.facts.largest_working_set_bytes
        smallest = self._baseline_attempt(budget_bytes)
        if least_bytes < smallest.replayed.peak_bytes:
            smallest = self._consult(least_bytes, most_seconds=_MOST_SECONDS_BELOW, is_reported=False)
        layout = None
        if self._addresses is not None:
            layout = self._addresses.place(smallest.replayed, capacity_bytes=None, most_seconds=_MOST_SECONDS_BELOW)
        smallest = replace(
            smallest,
            budget_bytes=budget_bytes,
            status=Status.INFEASIBLE,
            scope=self.request.scope,
            layout=layout,
            lower_bound_duration=None,
            incumbents=(),
        )
        return replace(smallest, known_bytes=least_bytes if smallest.needed_bytes <= least_bytes else None)

    def _laid_out(self, attempt: Attempt, *, capacity_bytes: Bytes | None = None, is_retry: bool = False) -> Attempt:
        """The attempt with addresses, where any are wanted; by default within its budget, if that can be.

        The exact search of some seconds is for the first try: after another one, planning for less is sooner done.
        """
        if self._addresses is None:
            return attempt
        if attempt.replayed is self.facts.baseline:
            return replace(attempt, layout=self._addresses.baseline)
        capacity_bytes = attempt.budget_bytes if capacity_bytes is None else capacity_bytes
        layout = self._addresses.place(attempt.replayed, capacity_bytes=capacity_bytes)
        if not is_retry and attempt.replayed.peak_bytes <= capacity_bytes < layout.footprint_bytes:
            layout = self._addresses.place_exactly(attempt.replayed, capacity_bytes=capacity_bytes) or layout
        return replace(attempt, layout=layout)

    def attempt_smallest(self) -> Attempt:
        """Bisect for the smallest budget with a plan: what that needs is then the budget."""
        facts = self.facts
        best = self._laid_out(self._baseline_attempt(facts.baseline.peak_bytes))
        low, high = facts.largest_working_set_bytes, best.needed_bytes
        resolution_bytes = max(self.request.graph.alignment, (high - low) // _MIN_BUDGET_RESOLUTION)
        budget_bytes = low
        bisecting = self.with_share(_BISECTION_SHARE)
        while low < high and not bisecting.is_over:
            tried = self._laid_out(bisecting._consult(budget_bytes, start=best.steps))
            if tried.needed_bytes < best.needed_bytes:
                best = tried
            low = low if tried.fits else budget_bytes + resolution_bytes
            high = min(high, best.needed_bytes)
            budget_bytes = (low + high) // 2
        if not (best.fits and best.status is Status.OPTIMAL):
            best = self._asked_for(best)
        # The search went on at larger budgets than the one now named: its course says nothing about this one.
        return replace(best, budget_bytes=best.needed_bytes, incumbents=())

    def _asked_for(self, met: Attempt) -> Attempt:
        """What was met on the way, from the plan of another budget or for a smaller one, or what comes of its own."""
        if not self.is_over:
            asked = self._laid_out(self._consult(met.needed_bytes))
            if asked.fits and asked.replayed.duration <= met.replayed.duration:
                return asked
        if met.fits:
            return met
        return replace(met, status=Status.FEASIBLE, lower_bound_duration=None)  # nothing is claimed for this budget

    def with_known_budget(
        self, attempt: Attempt, *, most_seconds: float = _MOST_SECONDS_KNOWN, other: Search | None = None
    ) -> Attempt:
        """Where it does not fit, add a budget that does: one that was asked for, if there is time for that.

        Args:
            attempt: The one that may not fit.
            most_seconds: For all tries.
            other: Asked, too, where this planner has no plan within a moment.
        """
        if attempt.fits or attempt.known_bytes is not None or self.is_over:
            return attempt
        started = time.perf_counter()
        known_bytes = smallest_known_to_work(
            attempt.needed_bytes,
            lambda budget_bytes: self._works(budget_bytes) or (other is not None and other._works(budget_bytes)),
            least_bytes=max(self.facts.largest_working_set_bytes, attempt.budget_bytes + 1),
            known_bytes=self._baseline_needed_bytes,
            is_over=lambda: self.is_over or time.perf_counter() - started > most_seconds,
        )
        return replace(attempt, known_bytes=known_bytes)

    def smallest_budget(self, met_bytes: Bytes, *, known_bytes: Bytes) -> tuple[Bytes, Attempt | None]:
        """The smallest budget known to work, after a look of a moment for how low the graph can go.

        Args:
            met_bytes: What the best plan that was met needs.
            known_bytes: A budget that works.

        Returns:
            The budget, and its plan; None where it is ``known_bytes``.
        """
        least_bytes = self.facts.largest_working_set_bytes
        found: list[Attempt] = []

        def works(budget_bytes: Bytes) -> bool:
            tried = self._tried(budget_bytes)
            found.extend([tried] if tried.fits else [])
            return tried.fits

        if not self.is_over and least_bytes < met_bytes:
            lowest = self._laid_out(self._consult(least_bytes, most_seconds=_MOST_SECONDS_BELOW, is_reported=False))
            met_bytes = min(met_bytes, lowest.needed_bytes)
        started = time.perf_counter()
        smallest_bytes = smallest_known_to_work(
            met_bytes,
            works,
            least_bytes=least_bytes,
            known_bytes=known_bytes,
            is_over=lambda: self.is_over or time.perf_counter() - started > _MOST_SECONDS_KNOWN,
        )
        return smallest_bytes, found[-1] if found else None

    def with_share(self, share: float) -> Search:
        """The same with a share of the time that is left, where there is a limit."""
        seconds_left = self._seconds_left()
        return self if seconds_left is None else self.within(share * seconds_left)

    def within(self, seconds: float) -> Search:
        """The same with a time limit that begins now: so many seconds, or what is left where that is less."""
        seconds_left = self._seconds_left()
        limit = seconds if seconds_left is None else min(seconds, max(0.0, seconds_left))
        return replace(self, request=replace(self.request, time_limit_seconds=limit), started=time.perf_counter())

    def _works(self, budget_bytes: Bytes) -> bool:
        """Whether a moment is enough for a plan within the budget."""
        return self._tried(budget_bytes).fits

    def _tried(self, budget_bytes: Bytes) -> Attempt:
        """What comes of a budget within a moment, with addresses where a plan without is none."""
        tried = self._consult(budget_bytes, most_seconds=_MOST_SECONDS_BELOW, is_reported=False)
        if not tried.fits or self._addresses is None or not self.requires_addresses:
            return tried
        layout = self._addresses.place(tried.replayed, capacity_bytes=budget_bytes, most_seconds=_MOST_SECONDS_BELOW)
        return replace(tried, layout=layout)

    def with_bound(self, attempt: Attempt) -> Attempt:
        """Add the best lower bound, where one is wanted, is meant for the scope, and has time left."""
        if not self.bound:
            return attempt
        from lowtide.planners.bounds import best_bound, order_free_bound
        from lowtide.planners.cpsat import small_graph_bound

        if attempt.scope.order == "free":
            return self._bounded(attempt, order_free_bound)
        # What holds for all plans in the given order holds for the staged ones among them.
        bounded = self._bounded(attempt, best_bound)
        return self._bounded(bounded, partial(small_graph_bound, should_stop=self.request.should_stop))

    def _bounded(self, attempt: Attempt, bound_of: Callable[..., Bound | None]) -> Attempt:
        """Add what one function proves, where there is something left to prove."""
        if attempt.status in (Status.OPTIMAL, Status.INFEASIBLE) or self.is_over:
            return attempt
        seconds_left = self._seconds_left()
        seconds = _MOST_EXTRA_SECONDS if seconds_left is None else seconds_left
        found = _stoppable(
            lambda: bound_of(self.request.graph, attempt.budget_bytes, time_limit_seconds=seconds),
            should_stop=self.request.should_stop,
            most_seconds=seconds + _GRACE_SECONDS,
        )
        if found is None:
            return attempt
        duration = attempt.replayed.duration
        if attempt.fits and (found.is_infeasible or found.duration > duration):
            _logger.error("bound %s is wrong for a plan of duration %d, dropped: please report it", found, duration)
            return attempt
        if found.is_infeasible:
            return settle(replace(attempt, status=Status.INFEASIBLE))
        bounded = replace(attempt, lower_bound_duration=max(found.duration, attempt.lower_bound_duration or 0))
        if self.request.on_progress is not None:
            elapsed_seconds = time.perf_counter() - self.started
            self.request.on_progress(
                Incumbent(elapsed_seconds, duration if attempt.fits else None, bounded.lower_bound_duration)
            )
        return settle(bounded)

    def result(self, attempt: Attempt) -> PlanResult:
        """Have the referee check the whole plan, and put the figures together."""
        facts, replayed = self.facts, attempt.replayed
        verified = self._checked_plan(attempt) if attempt.fits else None
        return PlanResult(
            status=attempt.status,
            plan=None if verified is None else verified.plan,
            scope=attempt.scope,
            planner=self.planner.name,
            budget_bytes=attempt.budget_bytes,
            baseline_peak_bytes=facts.baseline.peak_bytes,
            largest_working_set_bytes=facts.largest_working_set_bytes,
            bottleneck_node=facts.bottleneck_node,
            smallest_known_peak_bytes=self._smallest_known_bytes(attempt),
            baseline_duration=facts.baseline.duration,
            num_recomputes=replayed.num_recomputes if attempt.fits else 0,
            lower_bound_duration=attempt.lower_bound_duration,
            unplaced_footprint_bytes=attempt.unplaced_footprint_bytes,
            solve_seconds=time.perf_counter() - self.started,
        )

    def _checked_plan(self, attempt: Attempt) -> VerifiedPlan:
        graph, request = self.request.graph, self.request
        proposed = Plan(
            graph_sha256=graph_sha256(graph),
            planner=self.planner.name,
            seed=request.seed,
            threads=request.threads,
            status=attempt.status,
            scope=attempt.scope,
            budget_bytes=attempt.budget_bytes,
            peak_bytes=attempt.replayed.peak_bytes,
            footprint_bytes=None if attempt.layout is None else attempt.layout.footprint_bytes,
            layout=attempt.layout,
            duration=attempt.replayed.duration,
            baseline_duration=self.facts.baseline.duration,
            durations=tuple(node.duration for node in graph.nodes),
            steps=attempt.steps,
            lower_bound_duration=attempt.lower_bound_duration,
            incumbents=attempt.incumbents,
        )
        try:
            return check_plan(
                graph, proposed, budget_bytes=attempt.budget_bytes, keep_order=attempt.scope.order != "free"
            )
        except RefereeError as error:
            raise PlannerFailed(self.planner, f"proposed what breaks a rule: {error}") from error

    def _smallest_known_bytes(self, attempt: Attempt) -> Bytes:
        """What a budget must allow for the best that was met, be it the plan without recomputation."""
        if attempt.known_bytes is not None:
            return attempt.known_bytes
        needed_bytes = attempt.needed_bytes
        if needed_bytes <= self.facts.baseline.peak_bytes:  # as no footprint is below the peak
            return needed_bytes
        return min(needed_bytes, self._baseline_needed_bytes)

    @property
    def _baseline_needed_bytes(self) -> Bytes:
        """What a budget must allow for the plan without recomputation."""
        if self._addresses is None or not self.requires_addresses:
            return self.facts.baseline.peak_bytes
        return self._addresses.baseline.footprint_bytes

    def _baseline_attempt(self, budget_bytes: Bytes) -> Attempt:
        return Attempt(
            budget_bytes=budget_bytes,
            status=Status.OPTIMAL,
            scope=self.request.scope,
            steps=baseline_steps(self.request.graph),
            replayed=self.facts.baseline,
            lower_bound_duration=self.facts.baseline.duration,
        )

    def _consult(
        self,
        budget_bytes: Bytes,
        *,
        most_seconds: float | None = None,
        is_reported: bool = True,
        start: tuple[Step, ...] | None = None,
    ) -> Attempt:
        """Ask the planner, and replay its answer; plans and bounds for another budget are not reported."""
        request = replace(
            self.request,
            budget_bytes=budget_bytes,
            time_limit_seconds=self._planner_seconds(most_seconds, is_retry=not is_reported),
            on_progress=self.request.on_progress if is_reported else None,
            start=start,
        )
        proposal = self._proposal(request)
        if proposal.steps is None:
            baseline_attempt = self._baseline_attempt(budget_bytes)
            return replace(
                baseline_attempt,
                status=proposal.status,
                lower_bound_duration=proposal.lower_bound_duration,
                incumbents=proposal.incumbents,
            )
        steps = tuple(proposal.steps)
        try:
            replayed = replay(request.graph, steps)
        except RefereeError as error:
            raise PlannerFailed(self.planner, f"proposed what breaks a rule: {error}") from error
        _check_claims(self.planner, request, proposal, replayed)
        is_in_order = replayed.first_executions == request.graph.order
        is_narrower = request.scope.order == "free" and is_in_order and proposal.status.has_plan
        scope = replace(request.scope, order="fixed") if is_narrower else request.scope
        if proposal.scope not in (None, scope):
            raise PlannerFailed(self.planner, f"makes a claim {describe_scope(proposal.scope)} for other steps")
        if self.keep_order and not is_in_order:
            raise PlannerFailed(self.planner, "was asked to keep the given order and left it")
        attempt = Attempt(
            budget_bytes=budget_bytes,
            status=proposal.status,
            scope=scope,
            steps=steps,
            replayed=replayed,
            lower_bound_duration=proposal.lower_bound_duration,
            incumbents=proposal.incumbents,
        )
        # A claim about all orders holds for the given one, too, but not the other way round.
        return settle(attempt) if is_in_order or request.scope.order == "free" else as_free_order(attempt)

    def _proposal(self, request: PlanRequest) -> Proposal:
        """The planner's answer, with in-place operations merged into what they overwrite where that gives a plan."""
        merged = self.facts.merged
        if merged is None:
            return _propose(self.planner, request)
        started = time.perf_counter()
        proposal = merged.proposal(_propose(self.planner, merged.request(request)))
        if proposal.status.has_plan or (request.should_stop is not None and request.should_stop()):
            return proposal
        seconds = request.time_limit_seconds
        if seconds is not None:
            seconds = max(_SHORTEST_SECONDS, seconds - (time.perf_counter() - started))
        unmerged = _propose(self.planner, replace(request, time_limit_seconds=seconds))
        return (
            unmerged if unmerged.status.has_plan or proposal.steps is None else replace(unmerged, steps=proposal.steps)
        )

    def _planner_seconds(self, most_seconds: float | None, *, is_retry: bool) -> float | None:
        seconds_left = self._seconds_left()
        if seconds_left is None:
            return most_seconds
        seconds = seconds_left * (_PLANNER_SHARE if self.bound else 1.0)
        if self.layouter is not None:
            seconds *= _RETRY_SHARE if is_retry else _FIRST_SHARE
        return max(_SHORTEST_SECONDS, seconds if most_seconds is None else min(seconds, most_seconds))

    def _seconds_left(self) -> float | None:
        limit = self.request.time_limit_seconds
        return None if limit is None else limit - (time.perf_counter() - self.started)

    @property
    def _is_time_for_bound(self) -> bool:
        """Whether what is left of a time limit is the bound's."""
        limit, seconds_left = self.request.time_limit_seconds, self._seconds_left()
        return (
            self.bound
            and limit is not None
            and seconds_left is not None
            and seconds_left < (1.0 - _PLANNER_SHARE) * limit
        )

    def _is_overlong(self, started: float) -> bool:
        """Whether what nobody asked for by name has taken long enough, where no limit says how long that is."""
        return self._seconds_left() is None and time.perf_counter() - started > _MOST_EXTRA_SECONDS

    @property
    def is_over(self) -> bool:
        """Whether the time is over or somebody wants an end."""
        seconds_left = self._seconds_left()
        if seconds_left is not None and seconds_left <= 0:
            return True
        return self.request.should_stop is not None and self.request.should_stop()


def _stoppable(
    work: Callable[[], T | None], *, should_stop: Callable[[], bool] | None, most_seconds: float
) -> T | None:
    """Work that a solver does in one piece; None where somebody wants an end before it is done, or it never ends.

    It then goes on in a daemon thread, and nobody waits for it.
    """
    if should_stop is None:
        return work()
    ends = time.perf_counter() + most_seconds
    future = Future[T | None]()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001  (whatever it is, it is raised again where it is waited for)
            future.set_exception(error)

    threading.Thread(target=run, name="lowtide-bound", daemon=True).start()
    while time.perf_counter() < ends and not should_stop():
        done, _ = wait([future], timeout=_SECONDS_BETWEEN_LOOKS)
        if done:
            return future.result()
    return None


def _propose(planner: Planner, request: PlanRequest) -> Proposal:
    try:
        proposal: object = planner.propose(request)
    except (InputError, MissingDependency):  # the request is at fault, or the installation
        raise
    except (Exception, SystemExit) as error:
        raise PlannerFailed(planner, f"failed with {type(error).__name__}: {_one_line(error)}") from error
    if not isinstance(proposal, Proposal):
        raise PlannerFailed(planner, f"answered with a {type(proposal).__name__}, not a Proposal")
    if proposal.steps is None and proposal.status.has_plan:
        raise PlannerFailed(planner, f"claims status {proposal.status} without steps")
    return proposal


def _check_claims(planner: Planner, request: PlanRequest, proposal: Proposal, replayed: Replay) -> None:
    """Refuse a proposal whose claims its own steps disprove."""
    budget_bytes = request.budget_bytes
    peak = f"peak {format_bytes(replayed.peak_bytes)}, budget {format_bytes(budget_bytes)} ({budget_bytes} bytes)"
    fits = replayed.peak_bytes <= budget_bytes
    if proposal.status.has_plan and not fits:
        raise PlannerFailed(planner, f"claims status {proposal.status} for steps that do not fit ({peak})")
    if proposal.status is Status.INFEASIBLE and fits:
        raise PlannerFailed(planner, f"claims that no plan fits, with steps that do ({peak})")
    bound = proposal.lower_bound_duration
    if fits and bound is not None and bound > replayed.duration:
        raise PlannerFailed(planner, f"claims the bound {bound} for steps that take only {replayed.duration}")
    node, num_copies = max(replayed.num_copies_by_node.items(), key=lambda item: item[1], default=("", 0))
    max_copies = request.scope.max_copies
    if max_copies is not None and num_copies > max_copies:
        raise PlannerFailed(planner, f"computes node {node!r} {num_copies} times, at most {max_copies} were asked for")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
