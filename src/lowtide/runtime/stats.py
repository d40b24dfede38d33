"""What a session cost, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["SessionStats"]


@dataclass(frozen=True, slots=True)
class SessionStats:
    """Figures of a session since it was entered.

    Attributes:
        budget_bytes: What was asked for.
        capacity_bytes: Bytes of the arena: the budget, rounded down to whole pages.
        resident_bytes: Bytes of the arena in use now.
        peak_bytes: Most bytes in use at any time.
        num_ops: Ops executed, recomputations left out.
        num_evictions: Values dropped to make room.
        evicted_bytes: Their bytes.
        num_recomputes: Ops executed again.
        recompute_seconds: Time in them.
        recompute_cost_percent: Their modelled duration in percent of that of all other ops.
        num_searches: Requests that found no hole.
        search_seconds: Time until room was made for them.
        fragmentation: Free bytes / capacity just after such a request, averaged; 0 where there was none.
        num_compactions: Times that blocks were slid together.
        moved_bytes: Bytes moved by it.
        num_frozen: Values that can no longer be evicted, as what they were computed from is gone for good.
        num_outside: Allocations of other threads, outside the arena.
        outside_bytes: Their bytes.
    """

    budget_bytes: int
    capacity_bytes: int
    resident_bytes: int
    peak_bytes: int
    num_ops: int
    num_evictions: int
    evicted_bytes: int
    num_recomputes: int
    recompute_seconds: float
    recompute_cost_percent: float
    num_searches: int
    search_seconds: float
    fragmentation: float
    num_compactions: int
    moved_bytes: int
    num_frozen: int
    num_outside: int
    outside_bytes: int

    @property
    def mean_search_us(self) -> float:
        """Microseconds per request that found no hole."""
        return 1e6 * self.search_seconds / self.num_searches if self.num_searches else 0.0

    def as_dict(self) -> dict[str, float]:
        """Flat figures with keys in the manner of ``torch.cuda.memory_stats``."""
        return {
            "budget_bytes": self.budget_bytes,
            "reserved_bytes.all.current": self.capacity_bytes,
            "allocated_bytes.all.current": self.resident_bytes,
            "allocated_bytes.all.peak": self.peak_bytes,
            "outside_bytes.all.allocated": self.outside_bytes,
            "evicted_bytes.all.freed": self.evicted_bytes,
            "moved_bytes.all.allocated": self.moved_bytes,
            "num_ops": self.num_ops,
            "num_evictions": self.num_evictions,
            "num_recomputes": self.num_recomputes,
            "num_searches": self.num_searches,
            "num_compactions": self.num_compactions,
            "num_frozen": self.num_frozen,
            "num_outside": self.num_outside,
            "recompute_seconds": self.recompute_seconds,
            "recompute_cost_percent": self.recompute_cost_percent,
            "search_seconds": self.search_seconds,
            "mean_search_us": self.mean_search_us,
            "fragmentation": self.fragmentation,
        }

    @classmethod
    def from_shim(cls, figures: Mapping[str, float], *, budget_bytes: int) -> SessionStats:
        """Read what the shim counted."""
        whole = {name: int(figures[source]) for name, source in _SOURCE_BY_FIELD.items()}
        num_searches = whole["num_searches"]
        base_cost = figures["base_cost"]
        return cls(
            budget_bytes=budget_bytes,
            recompute_seconds=figures["recompute_seconds"],
            recompute_cost_percent=100.0 * figures["recompute_cost"] / base_cost if base_cost else 0.0,
            search_seconds=figures["search_seconds"],
            fragmentation=figures["fragmentation_sum"] / num_searches if num_searches else 0.0,
            **whole,
        )


_SOURCE_BY_FIELD = {
    "capacity_bytes": "capacity",
    "resident_bytes": "resident_bytes",
    "peak_bytes": "peak_bytes",
    "num_ops": "num_calls",
    "num_evictions": "num_evictions",
    "evicted_bytes": "bytes_evicted",
    "num_recomputes": "num_recomputes",
    "num_searches": "num_searches",
    "num_compactions": "num_compactions",
    "moved_bytes": "bytes_moved",
    "num_frozen": "num_frozen",
    "num_outside": "num_foreign",
    "outside_bytes": "bytes_foreign",
}
