"""What a session may be told, checked before anything is touched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lowtide.errors import UnitError
from lowtide.units import format_bytes, parse_budget

__all__ = ["MIN_BUDGET_BYTES", "POLICIES", "SessionOptions", "read_budget"]

MIN_BUDGET_BYTES = 1 << 20
"""Smallest budget: below it not even the small values of a toy model fit."""

_PAGE_BYTES = 4096

POLICIES: dict[str, dict[str, Any]] = {
    "coop": {},
    "dtr": {"method": "one_by_one", "score": "dtr", "is_copy_on_write": True, "has_one_end": True},
    "dte": {"method": "one_by_one", "score": "dte", "is_copy_on_write": True, "has_one_end": True},
    "lru": {"method": "one_by_one", "score": "lru", "is_copy_on_write": True, "has_one_end": True},
}
"""The policies of the live runtime, and what each changes in the engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """How a session evicts, and when it gives up.

    Attributes:
        policy: One of :data:`POLICIES`.
        seed: For policies that draw.
        max_recompute_percent: Recomputation, in percent of the modelled duration of all other ops so far, from which
            the session gives up with an error instead of thrashing on.
    """

    policy: str = "coop"
    seed: int = 0
    max_recompute_percent: float = 900.0

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise UnitError(f"policy {self.policy!r:.40} is not known: choose one of {', '.join(POLICIES)}")
        if not self.max_recompute_percent > 0:
            raise UnitError(f"max_recompute_percent {self.max_recompute_percent} must be above 0")

    def for_shim(self, budget_bytes: int) -> dict[str, Any]:
        """The engine's configuration."""
        return {
            "capacity": budget_bytes // _PAGE_BYTES * _PAGE_BYTES,
            "seed": self.seed,
            "thrash_limit": self.max_recompute_percent / 100.0,
            **POLICIES[self.policy],
        }


def read_budget(budget: int | str) -> int:
    """Bytes of a budget.

    Raises:
        UnitError: It is no number of bytes, a percentage, or too small to be meant.
    """
    if isinstance(budget, str) and budget.strip().endswith("%"):
        raise UnitError(f"budget {budget!r:.40}: name bytes, e.g. '1GiB'; what eager code needs is not known ahead")
    budget_bytes = parse_budget(budget, baseline_peak_bytes=0, smallest_bytes=0)
    if budget_bytes < MIN_BUDGET_BYTES:
        raise UnitError(
            f"budget {budget!r:.40} is {budget_bytes} bytes; the smallest is {format_bytes(MIN_BUDGET_BYTES)}: "
            "did you forget the unit?"
        )
    return budget_bytes
