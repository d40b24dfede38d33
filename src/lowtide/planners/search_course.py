"""One search of a plan: the native portfolio in one order, with what is left of its work and its time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lowtide.ir import Status
from lowtide.planners import greedy
from lowtide.planners.answers import Recorder, duration_of, steps_of
from lowtide.planners.countdown import countdown
from lowtide.planners.flat import FlatGraph, Recomputation
from lowtide.planners.protocol import PlanRequest, Proposal

if TYPE_CHECKING:
    from lowtide._search import GreedyOutcome, SearchOutcome

__all__ = ["Course", "Found", "better_of", "default_work", "proposal_of", "seed_of_turn"]

_logger = logging.getLogger("lowtide")

_SEED_STRIDE = 0x9E3779B97F4A7C15


def default_work(flat: FlatGraph) -> int:
    """Stages touched and moves drawn by each thread, where nothing else is said: half of it is greedy's."""
    return 2 * greedy.default_work(flat)


def seed_of_turn(seed: int, turn: int) -> int:
    """Seeds that differ from turn to turn."""
    return (seed + turn * _SEED_STRIDE) % 2**64


@dataclass(frozen=True, slots=True)
class Found:
    """A plan in the order of a flat graph.

    Attributes:
        flat: The graph.
        recomputations: What runs again, where.
        fits: Whether it is within the budget that was asked for.
        peak_bytes: Most bytes resident.
        extra_duration: Beyond the baseline's duration.
    """

    flat: FlatGraph
    recomputations: tuple[Recomputation, ...]
    fits: bool
    peak_bytes: int
    extra_duration: int

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Smaller is better; of plans that take no time more, the one that executes fewer nodes again."""
        if not self.fits:
            return True, self.peak_bytes, self.extra_duration
        return False, self.extra_duration, 0 if self.extra_duration else len(self.recomputations)


def better_of(first: Found | None, second: Found) -> Found:
    """The better of two plans, the first of equal ones."""
    return second if first is None or second.rank < first.rank else first


def proposal_of(
    request: PlanRequest,
    recorder: Recorder,
    found: Found,
    *,
    least_extra_duration: int | None,
    is_infeasible: bool,
) -> Proposal:
    """The answer that a plan and a proof come to.

    Args:
        request: What was asked.
        recorder: Who took down the course of the search.
        found: The best plan, or the one of the smallest peak.
        least_extra_duration: No plan in the given order takes less beyond the baseline's duration; None: not known.
        is_infeasible: Whether it is proven that no plan in the given order fits.
    """
    if found.fits and least_extra_duration is not None and least_extra_duration > found.extra_duration:
        _logger.error(
            "bound %d is wrong for a plan of %d, dropped: please report it", least_extra_duration, found.extra_duration
        )
        least_extra_duration = None
    scope, incumbents = None, tuple(recorder.incumbents)
    if request.scope.order != "fixed":  # another order may need less time, or less memory
        is_infeasible = False
        if found.fits and least_extra_duration and found.flat.graph.order == request.graph.order:
            scope = replace(request.scope, order="fixed")
        else:
            least_extra_duration = None
            incumbents = tuple(replace(incumbent, lower_bound_duration=None) for incumbent in incumbents)
    if found.fits and found.extra_duration == 0:  # every node is executed at least once, in any order
        least_extra_duration = 0
    if not found.fits:
        status = Status.INFEASIBLE if is_infeasible else Status.TIMEOUT
    else:
        is_met = least_extra_duration is not None and found.extra_duration <= least_extra_duration
        status = Status.OPTIMAL if is_met else Status.FEASIBLE
    bound = None
    if least_extra_duration is not None and status is not Status.INFEASIBLE:
        bound = request.graph.baseline_duration + least_extra_duration
    return Proposal(
        status=status,
        steps=steps_of(found.flat, found.recomputations),
        lower_bound_duration=bound,
        incumbents=incumbents,
        scope=scope,
    )


class Course:
    """One search, step by step, with what is left of its work and its time.

    Args:
        request: What to plan.
        recorder: Told of every better plan.
        started: ``time.monotonic()`` at the start.
        work: Stages touched and moves drawn by each thread in the whole search.

    Attributes:
        threads: Of each search from now on.
    """

    def __init__(self, request: PlanRequest, recorder: Recorder, started: float, work: int) -> None:
        self.request = request
        self.recorder = recorder
        self.work = work
        self.threads = request.threads
        limit = request.time_limit_seconds
        self._deadline = None if limit is None else started + limit

    def search(
        self,
        flat: FlatGraph,
        *starts: Sequence[Recomputation],
        share: float,
        budget_bytes: int | None = None,
        time_share: float | None = None,
        turn: int = 0,
        least_work: int = 0,
    ) -> Found:
        """Search a plan in one order, with a share of all work and of the time that is left.

        Args:
            flat: The graph in that order.
            starts: Recomputations to begin with, or none, and then those of plans to combine with what is found.
            share: Of the work.
            budget_bytes: Another budget than the one asked for.
            time_share: Of the time that is left; None: as of the work.
            turn: Number of this search: the seeds of two turns differ.
            least_work: At least so much of the work, if there is so much.
        """
        from lowtide import _search
        from lowtide.planners.core import native_problem

        request = self.request
        asked_bytes = request.budget_bytes

        def note(stages: list[int], nodes: list[int]) -> None:
            if budget_bytes is None or budget_bytes <= asked_bytes:
                self.recorder.note_in(flat, stages, nodes)

        outcome = _search.search(
            native_problem(flat),
            budget_bytes=asked_bytes if budget_bytes is None else budget_bytes,
            seed=seed_of_turn(request.seed, turn),
            threads=self.threads,
            max_copies=request.scope.max_copies,
            max_work=max(int(self.work * share), min(least_work, self.work)),
            seconds=self.seconds_left(share if time_share is None else time_share),
            on_better=note,
            should_stop=request.should_stop,
            starts=[([again.stage for again in start], [again.node for again in start]) for start in starts],
        )
        return self.found_in(flat, outcome)

    def found_in(self, flat: FlatGraph, outcome: SearchOutcome | GreedyOutcome) -> Found:
        """What the native core answered for a graph."""
        from lowtide.planners.core import recomputations_from

        chosen = tuple(recomputations_from(outcome.stages, outcome.nodes))
        extra_duration = duration_of(flat, chosen) - flat.graph.baseline_duration
        return Found(flat, chosen, outcome.peak_bytes <= self.request.budget_bytes, outcome.peak_bytes, extra_duration)

    def seconds_left(self, share: float = 1.0) -> float | None:
        """A share of the time that is left, or None where there is no limit."""
        if self._deadline is None:
            return None
        return max(0.01, (self._deadline - time.monotonic()) * share)

    def countdown(self, share: float) -> Callable[[], float | None]:
        """A clock that runs down a share of the time that is left now."""
        return countdown(self.seconds_left(share))

    @property
    def is_over(self) -> bool:
        """Whether time is up, or somebody asked to stop."""
        if self._deadline is not None and time.monotonic() >= self._deadline:
            return True
        return self.request.should_stop is not None and self.request.should_stop()
