"""What a session cost, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from lowtide.units import count_of, format_bytes

__all__ = ["SessionStats"]


@dataclass(frozen=True, slots=True)
class SessionStats:
    """Figures of a session since it was entered.

    Attributes:
        budget_bytes: What was asked for.
        capacity_bytes: Bytes of the arena: the budget, rounded down to whole pages.
        resident_bytes: Bytes of the arena in use now.
        peak_bytes: Most bytes in use at any time.
        peak_demand_bytes: Most bytes at any time of what was in use and of evicted values that the program still held:
            with a budget of so many nothing would have been evicted, fragmentation aside.
        num_ops: Ops executed, recomputations left out.
        num_evictions: Values dropped to make room.
        evicted_bytes: Their bytes.
        num_recomputes: Ops executed again.
        recompute_seconds: Time in them.
        wait_seconds: Time that ops waited for their inputs to be recomputed: what was evicted for it, and searched
            for, included.
        recompute_cost_percent: Their modelled duration in percent of that of all other ops.
        has_thrashed: Whether such waiting has taken more time than all else, for a while: warned of once.
        num_searches: Requests that found no hole.
        search_seconds: CPU time of making room for them: finding, evicting, finding again. Sliding blocks together
            is not counted.
        fragmentation: Free bytes / capacity just after such a request, averaged; 0 where there was none.
        num_compactions: Times that blocks were slid together.
        moved_bytes: Bytes moved by it.
        num_frozen: Values that can no longer be evicted, as what they were computed from is gone for good.
        num_outside: Allocations of other threads, outside the arena.
        outside_bytes: Their bytes.
        num_survivors: Tensors in the arena that outlived the block; 0 until it is left.
        num_restored: Evicted ones among them, which were computed again outside the arena.
        num_lost: Those for which that was not possible: reading one raises an error.
    """

    budget_bytes: int
    capacity_bytes: int
    resident_bytes: int
    peak_bytes: int
    peak_demand_bytes: int
    num_ops: int
    num_evictions: int
    evicted_bytes: int
    num_recomputes: int
    recompute_seconds: float
    wait_seconds: float
    recompute_cost_percent: float
    has_thrashed: bool
    num_searches: int
    search_seconds: float
    fragmentation: float
    num_compactions: int
    moved_bytes: int
    num_frozen: int
    num_outside: int
    outside_bytes: int
    num_survivors: int = 0
    num_restored: int = 0
    num_lost: int = 0

    @property
    def mean_search_us(self) -> float:
        """Microseconds of CPU time per request that found no hole."""
        return 1e6 * self.search_seconds / self.num_searches if self.num_searches else 0.0

    def as_dict(self) -> dict[str, float]:
        """Flat figures with keys in the manner of ``torch.cuda.memory_stats``."""
        return {
            "budget_bytes": self.budget_bytes,
            "reserved_bytes.all.current": self.capacity_bytes,
            "allocated_bytes.all.current": self.resident_bytes,
            "allocated_bytes.all.peak": self.peak_bytes,
            "demanded_bytes.all.peak": self.peak_demand_bytes,
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
            "num_survivors": self.num_survivors,
            "num_restored": self.num_restored,
            "num_lost": self.num_lost,
            "recompute_seconds": self.recompute_seconds,
            "wait_seconds": self.wait_seconds,
            "recompute_cost_percent": self.recompute_cost_percent,
            "has_thrashed": self.has_thrashed,
            "search_seconds": self.search_seconds,
            "mean_search_us": self.mean_search_us,
            "fragmentation": self.fragmentation,
        }

    def with_survivors(self, figures: Mapping[str, float]) -> SessionStats:
        """The same, with what the shim counted when the block was left."""
        return replace(
            self,
            num_survivors=int(figures["num_survivors"]),
            num_restored=int(figures["num_restored"]),
            num_lost=int(figures["num_lost"]),
        )

    def __str__(self) -> str:
        """A few lines to print."""
        budget, peak = format_bytes(self.budget_bytes), format_bytes(self.peak_bytes)
        work = f"{self.recompute_cost_percent:.1f} % more work, {self.recompute_seconds:.2f} s"
        evictions = f"{count_of(self.num_evictions, 'eviction')} of {format_bytes(self.evicted_bytes)}"
        searches = f"{count_of(self.num_searches, 'search')} of {self.mean_search_us:.0f} us"
        arena = f"fragmentation {100 * self.fragmentation:.1f} %, {count_of(self.num_compactions, 'compaction')}"
        lines = [
            f"budget {budget}: peak {peak}, {format_bytes(self.resident_bytes)} in use at the end",
            f"{count_of(self.num_ops, 'op')}, {self.num_recomputes} recomputed ({work})",
            f"{evictions}, {searches}, {arena}",
        ]
        if self.has_thrashed:
            lines.append(
                f"thrashing: a larger budget recomputes less, one of {format_bytes(self.peak_demand_bytes)} nothing"
            )
        if self.num_frozen and self.num_evictions:
            lines.append(
                f"{count_of(self.num_frozen, 'value')} could no longer be evicted (normal, e.g. after a step): what "
                "they came from is overwritten or gone"
            )
        if self.num_outside:
            lines.append(
                f"{count_of(self.num_outside, 'allocation')} of other threads ({format_bytes(self.outside_bytes)} in "
                "all) outside the budget"
            )
        if self.num_restored or self.num_lost:
            lines.append(
                f"{count_of(self.num_survivors, 'tensor')} outlived the block: {self.num_restored} recomputed outside "
                f"the arena, {self.num_lost} lost"
            )
        return "\n".join(lines)

    @classmethod
    def from_shim(cls, figures: Mapping[str, float], *, budget_bytes: int) -> SessionStats:
        """Read what the shim counted."""
        whole = {name: int(figures[source]) for name, source in _SOURCE_BY_FIELD.items()}
        num_searches = whole["num_searches"]
        base_cost = figures["base_cost"]
        return cls(
            budget_bytes=budget_bytes,
            recompute_seconds=figures["recompute_seconds"],
            wait_seconds=figures["wait_seconds"],
            recompute_cost_percent=100.0 * figures["recompute_cost"] / base_cost if base_cost else 0.0,
            has_thrashed=bool(figures["has_thrashed"]),
            search_seconds=figures["search_seconds"],
            fragmentation=figures["fragmentation_sum"] / num_searches if num_searches else 0.0,
            **whole,
        )


_SOURCE_BY_FIELD = {
    "capacity_bytes": "capacity",
    "resident_bytes": "resident_bytes",
    "peak_bytes": "peak_bytes",
    "peak_demand_bytes": "peak_demand_bytes",
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
