"""What a planner's answer to one budget comes to."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lowtide.ir import Incumbent, Layout, Scope, Status, Step
from lowtide.referee import Replay
from lowtide.units import Bytes

__all__ = ["Attempt", "as_free_order", "settle"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a planner's answer to one budget comes to once the referee has replayed it.

    Attributes:
        budget_bytes: The budget.
        status: What is claimed, as far as the replay bears it out.
        scope: The plans of which status and bound speak.
        steps: Those of the smallest peak met; they need not fit.
        replayed: These steps, replayed.
        layout: Their addresses, or None where nobody wants any.
        lower_bound_duration: Proven within the scope, or None.
        incumbents: The course of the search.
        unplaced_footprint_bytes: Smallest footprint met, above the budget, where addresses were given up; else None.
        known_bytes: Where it does not fit: the smallest budget that was asked for and got a plan; None: nobody asked.
    """

    budget_bytes: Bytes
    status: Status
    scope: Scope
    steps: tuple[Step, ...]
    replayed: Replay
    layout: Layout | None = None
    lower_bound_duration: int | None = None
    incumbents: tuple[Incumbent, ...] = ()
    unplaced_footprint_bytes: Bytes | None = None
    known_bytes: Bytes | None = None

    @property
    def needed_bytes(self) -> Bytes:
        """What a budget must allow: the footprint where there are addresses, else the peak."""
        return self.replayed.peak_bytes if self.layout is None else self.layout.footprint_bytes

    @property
    def fits(self) -> bool:
        """Whether the steps are a plan within the budget."""
        return self.needed_bytes <= self.budget_bytes


def settle(attempt: Attempt) -> Attempt:
    """Make status and bound agree with one another and with the steps."""
    if not attempt.fits:
        is_proof = attempt.status is Status.INFEASIBLE  # then there is no duration to bound
        return replace(attempt, lower_bound_duration=None) if is_proof else attempt
    duration = attempt.replayed.duration
    if attempt.status is Status.OPTIMAL or attempt.lower_bound_duration == duration:
        return replace(attempt, status=Status.OPTIMAL, lower_bound_duration=duration)
    return replace(attempt, status=Status.FEASIBLE)


def as_free_order(attempt: Attempt) -> Attempt:
    """A plan that left the given order: what was claimed for the fixed order says nothing about it."""
    return replace(
        attempt,
        scope=Scope(order="free", max_copies=attempt.scope.max_copies),
        status=Status.FEASIBLE if attempt.fits else Status.TIMEOUT,
        lower_bound_duration=None,
        incumbents=tuple(replace(incumbent, lower_bound_duration=None) for incumbent in attempt.incumbents),
    )


def as_answer_to(first: Attempt, found: Attempt) -> Attempt:
    """A plan made for a smaller peak, as the answer to the whole budget: what was claimed for less says nothing of it.

    Args:
        first: What came of the whole budget; its bound holds, as no footprint is below the peak.
        found: The best that came of less, or ``first``.
    """
    return settle(
        replace(
            found,
            status=Status.FEASIBLE if found.fits else Status.TIMEOUT,
            lower_bound_duration=first.lower_bound_duration if found.scope == first.scope else None,
            incumbents=(),
        )
    )
