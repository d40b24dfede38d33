"""What the process takes beside the arena: every malloc is counted, the arena itself is mapped and is not."""

from __future__ import annotations

import gc
from typing import Any

import torch

import lowtide
from benchmarks.online.programs import build
from lowtide.measure import active_meter

__all__ = ["measure_growth"]

_AMPLE_BYTES = 2**34
_STEPS = 6


def measure_growth(*, name: str, ratio: float) -> dict[str, Any]:
    """Runs in a child of ``measure_in_subprocess``.

    Args:
        name: In `PROGRAMS`.
        ratio: r of the budget.

    Returns:
        Bytes from malloc at the peak within the budget, beyond those before it was entered; the same for plain eager.
    """
    torch.set_num_threads(1)
    program = build(name)
    with lowtide.budget(_AMPLE_BYTES) as session:
        for seed in range(2):
            program.step(seed)
        kept_bytes, peak_bytes = session.stats.resident_bytes, session.stats.peak_bytes
    budget_bytes = int(kept_bytes + ratio * (peak_bytes - kept_bytes))
    meter = active_meter()
    growth_by_kind: dict[str, int] = {}
    high_water = 0
    for kind in ("within the budget", "eager"):
        program = build(name)
        gc.collect()
        start_bytes = meter.reset_peak()
        if kind == "eager":
            for seed in range(_STEPS):
                program.step(seed)
            growth_by_kind[kind] = meter.peak_bytes() - start_bytes
            continue
        with lowtide.budget(budget_bytes) as session:
            for seed in range(_STEPS):
                program.step(seed)
            growth_by_kind[kind] = meter.peak_bytes() - start_bytes
            high_water = session.stats.peak_bytes
    return {
        "record": "growth",
        "program": name,
        "ratio": ratio,
        "budget_bytes": budget_bytes,
        "arena_peak_bytes": high_water,
        "growth_bytes": growth_by_kind["within the budget"],
        "eager_growth_bytes": growth_by_kind["eager"],
        "allowed_bytes": int(0.02 * budget_bytes) + 8 * 10**6,
    }
