"""Runs in a fresh process under the malloc meter: what lowtide takes from malloc while tensors live in the arena."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))

import budget_models

import lowtide
from lowtide.measure import active_meter

RATIO = 0.5
NUM_STEPS = 5


def measure(name: str) -> dict[str, int]:
    """Bytes from malloc at the peak beyond those before the block, within the budget and in plain PyTorch."""
    torch.set_num_threads(1)
    make = budget_models.SMALL[name]
    training = make()
    with lowtide.budget(2**31) as session:
        for step in range(2):
            training.step(step)
        kept_bytes, peak_bytes = session.stats.resident_bytes, session.stats.peak_bytes
    budget_bytes = int(kept_bytes + RATIO * (peak_bytes - kept_bytes))
    meter = active_meter()
    training = make()
    gc.collect()
    start_bytes = meter.reset_peak()
    with lowtide.budget(budget_bytes):
        for step in range(NUM_STEPS):
            training.step(step)
        growth_bytes = meter.peak_bytes() - start_bytes
    training = make()
    gc.collect()
    start_bytes = meter.reset_peak()
    for step in range(NUM_STEPS):
        training.step(step)
    return {
        "budget_bytes": budget_bytes,
        "growth_bytes": growth_bytes,
        "plain_growth_bytes": meter.peak_bytes() - start_bytes,
    }
