"""What a budget means for a trace: bytes, a share of its peak, or a ratio between what must stay and that peak.

    0 ───────── P ─────────────────────────────── peak         "60%"    floor(60 % of the peak)
                └──── r = 0 ... r = 1 ────────────┘            "r=0.5"  P + r · (peak - P)

P is what no policy can evict: the bytes alive at the end, e.g. weights, gradients and optimizer state after a training
step (or those of leaves alone, where these are more).
"""

from __future__ import annotations

import math
import re

from lowtide.errors import UnitError
from lowtide.simulator.program import CompiledTrace
from lowtide.units import Budget, parse_budget

__all__ = ["CAPACITY_UNIT_BYTES", "budget_at", "budget_of", "capacity_of", "is_abstract", "ratio_of"]

CAPACITY_UNIT_BYTES = 4096
"""Capacities of real arenas are multiples of this."""

_LARGEST_ABSTRACT_PEAK = 2**20
_RATIO = re.compile(r"\s*r\s*=\s*(?P<number>[0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*\Z")


def budget_of(compiled: CompiledTrace, budget: Budget) -> int:
    """Read a budget.

    Args:
        compiled: The trace that it is for.
        budget: Bytes, text with a unit, ``"60%"`` of the peak without eviction, or ``"r=0.5"``.

    Returns:
        Bytes.

    Raises:
        UnitError: It cannot be read.
    """
    match = _RATIO.match(budget) if isinstance(budget, str) else None
    if match is not None:
        ratio = float(match["number"])
        if ratio > 10:
            raise UnitError(f"budget {budget!r:.64}: the ratio must be at most 10; 1 is the peak without eviction")
        return budget_at(compiled, ratio)
    smallest_bytes = 1 if is_abstract(compiled) else 1024
    return parse_budget(budget, baseline_peak_bytes=compiled.peak_bytes, smallest_bytes=smallest_bytes)


def budget_at(compiled: CompiledTrace, ratio: float) -> int:
    """P + ratio · (peak - P), in whole bytes."""
    return compiled.floor_bytes + math.floor(ratio * (compiled.peak_bytes - compiled.floor_bytes))


def ratio_of(compiled: CompiledTrace, budget_bytes: int) -> float | None:
    """Where a budget lies between P (0) and the peak (1); None where both are the same."""
    span_bytes = compiled.peak_bytes - compiled.floor_bytes
    return (budget_bytes - compiled.floor_bytes) / span_bytes if span_bytes else None


def capacity_of(compiled: CompiledTrace, budget_bytes: int) -> int:
    """The largest arena within a budget, in bytes: a multiple of 4096, or of the alignment for abstract graphs."""
    unit_bytes = compiled.alignment
    if not is_abstract(compiled):
        unit_bytes = math.lcm(unit_bytes, CAPACITY_UNIT_BYTES)
    return budget_bytes // unit_bytes * unit_bytes


def is_abstract(compiled: CompiledTrace) -> bool:
    """Whether a trace is so small that its sizes are hardly bytes: then no request counts as small."""
    return compiled.peak_bytes < _LARGEST_ABSTRACT_PEAK
