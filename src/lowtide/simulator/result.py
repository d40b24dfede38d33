"""What a simulation found out, as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from lowtide.ir import Interval, Trace

__all__ = ["MinimumBudget", "RegionKind", "Simulation", "Snapshot"]


class RegionKind(StrEnum):
    """What a stretch of the arena holds."""

    FREE = "free"
    EVICTABLE = "evictable"
    BACKWARD = "backward"
    """Evictable, made inside backward."""
    KEPT = "kept"
    """What cannot be recomputed."""
    SMALL = "small"
    """A slab of small values, or scratch."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The arena at one moment; the fragmentation map is a row of them.

    Attributes:
        position: Instructions executed so far.
        clock: Modelled time so far.
        regions: Stretches of one kind in address order, as intervals of bytes.
    """

    position: int
    clock: float
    regions: tuple[tuple[Interval, RegionKind], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """What a budget would have cost.

    Two simulations of the same trace, budget, policy and seed are equal.

    Attributes:
        policy: Its name.
        budget_bytes: The budget.
        capacity_bytes: The arena within it.
        seed: Of the run.
        completed: Whether the program ran to its end.
        reason: Why not; empty where it did.
        num_executed: Instructions executed: calls, leaves and releases.
        num_calls: Ops executed, recomputations left out.
        overhead: Cost of all executed ops, recomputations and what was slid included, by that without eviction; of a
            run that did not complete by that of the ops it got to.
        num_recomputes: Executions beyond the first.
        num_evictions: Values evicted; those dropped because nobody needs them now are left out.
        num_searches: Requests that no hole could serve.
        num_compactions: How often blocks were slid together.
        bytes_moved: Bytes that were slid.
        mean_search_us: Mean microseconds of finding, evicting and finding again per such request; 0 without one.
        fragmentation: Mean share of the arena that was free just after such a request; 0 without one.
        peak_bytes: Most bytes resident.
        footprint_bytes: Highest address used; of no meaning for policies blind to addresses.
        plain_peak_bytes: Most bytes alive without eviction.
        floor_bytes: P, the bytes that no policy can evict.
        trace: What happened, event by event, if asked for.
        snapshots: The arena at even distances, if asked for.
    """

    policy: str
    budget_bytes: int
    capacity_bytes: int
    seed: int
    completed: bool
    reason: str
    num_executed: int
    num_calls: int
    overhead: float
    num_recomputes: int
    num_evictions: int
    num_searches: int
    num_compactions: int
    bytes_moved: int
    mean_search_us: float = field(compare=False)
    fragmentation: float
    peak_bytes: int
    footprint_bytes: int
    plain_peak_bytes: int
    floor_bytes: int
    trace: Trace | None = field(default=None, repr=False)
    snapshots: tuple[Snapshot, ...] = field(default=(), repr=False)

    @property
    def memory_ratio(self) -> float | None:
        """Budget by peak without eviction; None where that is 0."""
        return self.budget_bytes / self.plain_peak_bytes if self.plain_peak_bytes else None

    @property
    def ratio(self) -> float | None:
        """R in budget = P + r · (peak - P); None where both are the same."""
        span_bytes = self.plain_peak_bytes - self.floor_bytes
        return (self.budget_bytes - self.floor_bytes) / span_bytes if span_bytes else None

    def as_dict(self) -> dict[str, Any]:
        """The figures as ``lowtide simulate --json`` prints them; null where the run did not complete."""
        return {
            "policy": self.policy,
            "budget_bytes": self.budget_bytes,
            "completed": self.completed,
            "overhead": self._if_completed(self.overhead),
            "num_recomputes": self._if_completed(self.num_recomputes),
            "num_evictions": self._if_completed(self.num_evictions),
            "mean_search_us": self._if_completed(self.mean_search_us),
            "fragmentation": self._if_completed(self.fragmentation),
            "peak_bytes": self._if_completed(self.peak_bytes),
        }

    def as_row(self) -> dict[str, Any]:
        """A flat row for pandas: what :meth:`as_dict` has, and what it is to be compared by."""
        return {
            **self.as_dict(),
            "reason": self.reason,
            "seed": self.seed,
            "capacity_bytes": self.capacity_bytes,
            "memory_ratio": self.memory_ratio,
            "ratio": self.ratio,
            "plain_peak_bytes": self.plain_peak_bytes,
            "floor_bytes": self.floor_bytes,
            "num_calls": self.num_calls,
            "num_searches": self.num_searches,
            "num_compactions": self.num_compactions,
            "bytes_moved": self.bytes_moved,
        }

    def _if_completed(self, figure: float) -> float | None:
        return figure if self.completed else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimumBudget:
    """The lowest budget that a policy completes within, found by bisection.

    Attributes:
        policy: Its name.
        budget_bytes: That budget, or None where the policy does not even complete within the peak and what slabs take.
        memory_ratio: That budget by the peak without eviction.
        ratio: r in budget = P + r · (peak - P).
        overhead: At that budget.
    """

    policy: str
    budget_bytes: int | None
    memory_ratio: float | None
    ratio: float | None
    overhead: float | None

    def as_row(self) -> dict[str, Any]:
        """A flat row for pandas."""
        return {
            "policy": self.policy,
            "budget_bytes": self.budget_bytes,
            "memory_ratio": self.memory_ratio,
            "ratio": self.ratio,
            "overhead": self.overhead,
        }
