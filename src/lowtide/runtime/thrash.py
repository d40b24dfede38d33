"""A budget that is far too small: more time goes into recomputation than into all else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

from lowtide.runtime.stats import SessionStats
from lowtide.units import format_bytes

__all__ = ["Thrash", "advise_budget", "budget_to_try"]


def budget_to_try(too_small_bytes: int, *, enough_bytes: int) -> int:
    """What to try next: halfway to what is enough, as what is evicted then is what is cheap to recompute.

    Args:
        too_small_bytes: A budget that is too small.
        enough_bytes: One of which nothing would be evicted, fragmentation aside.

    Returns:
        Bytes, never less than ``too_small_bytes``.
    """
    return (too_small_bytes + max(enough_bytes, too_small_bytes)) // 2


def advise_budget(too_small_bytes: int, *, enough_bytes: int, write: Callable[[int], str] = format_bytes) -> str:
    """A clause that names what `budget_to_try` says.

    Args:
        too_small_bytes: As there.
        enough_bytes: As there.
        write: Writes bytes for people.
    """
    next_bytes = budget_to_try(too_small_bytes, enough_bytes=enough_bytes)
    return (
        f"try {write(next_bytes)}, which should be comfortable (less may do): of {write(enough_bytes)} nothing would "
        "have been evicted so far"
    )


@dataclass(frozen=True, slots=True)
class Thrash:
    """Figures of a session at the moment when thrashing was noticed.

    Attributes:
        budget_bytes: The session's.
        wait_percent: Share of the time since it was entered that ops waited for inputs to be recomputed.
        recomputes_per_op: Ops executed again for each that was executed first.
        enough_bytes: A budget of which nothing would have been evicted so far, fragmentation aside.
    """

    budget_bytes: int
    wait_percent: float
    recomputes_per_op: float
    enough_bytes: int

    @classmethod
    def of(cls, stats: SessionStats, *, elapsed_seconds: float) -> Thrash:
        """Of a session that was entered ``elapsed_seconds`` ago."""
        share = stats.wait_seconds / elapsed_seconds if elapsed_seconds > 0 else 1.0
        return cls(
            budget_bytes=stats.budget_bytes,
            wait_percent=100.0 * min(share, 1.0),
            recomputes_per_op=stats.num_recomputes / max(stats.num_ops, 1),
            enough_bytes=stats.peak_demand_bytes,
        )

    @property
    def next_bytes(self) -> int:
        """What to try next, by `budget_to_try`."""
        return budget_to_try(self.budget_bytes, enough_bytes=self.enough_bytes)

    def as_dict(self) -> dict[str, float]:
        """The attributes, and `next_bytes`."""
        return {**asdict(self), "next_bytes": self.next_bytes}

    def __str__(self) -> str:
        """One line: what happens, and what to do."""
        return (
            f"the budget of {format_bytes(self.budget_bytes)} is too small: {self.wait_percent:.0f} % of the time goes "
            f"into recomputation, {self.recomputes_per_op:.1f} recomputed ops for each new one; "
            f"{advise_budget(self.budget_bytes, enough_bytes=self.enough_bytes)}"
        )
