"""Thousands of steps within half the memory: records stay as few as they were, results as they should be."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import lowtide
from lowtide.runtime.build import load_shim

__all__ = ["run_endurance"]

_WIDTH, _BATCH, _DEPTH = 64, 256, 5


class _Training:
    """Linear layers, dropout and batch norm; AdamW; a new batch each step."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        layers: list[nn.Module] = []
        for _ in range(_DEPTH):
            layers += [nn.Linear(_WIDTH, 2 * _WIDTH), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * _WIDTH, _WIDTH)]
            layers += [nn.BatchNorm1d(_WIDTH), nn.ReLU(inplace=True)]
        self.model = nn.Sequential(*layers, nn.Linear(_WIDTH, 10))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, foreach=True)
        torch.manual_seed(1)

    def step(self) -> None:
        batch = torch.randn(_BATCH, _WIDTH)
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(batch), torch.arange(_BATCH) % 10).backward()
        self.optimizer.step()

    def state(self) -> list[Tensor]:
        """All that has come of it."""
        momenta = [value for values in self.optimizer.state.values() for value in values.values()]
        tensors = [*self.model.parameters(), *self.model.buffers(), *momenta]
        return [item.detach().clone() for item in tensors] + [torch.get_rng_state()]


def run_endurance(*, num_steps: int, ratio: float = 0.5, num_samples: int = 20) -> dict[str, Any]:
    """Train plain, then within a budget.

    Args:
        num_steps: Optimizer steps.
        ratio: r of the budget.
        num_samples: How often records and cells are counted.

    Returns:
        Number of tensors that differ at the end, counts of records and cells on the way, counters.
    """
    plain = _Training()
    for _ in range(num_steps):
        plain.step()
    wanted = plain.state()
    ample = _Training()
    with lowtide.budget(2**33) as session:
        for _ in range(2):
            ample.step()
        kept_bytes, peak_bytes = session.stats.resident_bytes, session.stats.peak_bytes
    budget_bytes = int(kept_bytes + ratio * (peak_bytes - kept_bytes))
    training = _Training()
    shim = load_shim()
    num_records, num_cells, resident_bytes = [], [], []
    with lowtide.budget(budget_bytes) as session:
        for step in range(num_steps):
            training.step()
            if step % max(1, num_steps // num_samples) == 0:
                figures = shim.stats()
                num_records.append(figures["num_records"])
                num_cells.append(figures["num_cells"])
                resident_bytes.append(figures["resident_bytes"])
    state = training.state()
    return {
        "record": "endurance",
        "num_steps": num_steps,
        "ratio": ratio,
        "budget_bytes": budget_bytes,
        "num_tensors_different": sum(not torch.equal(one, other) for one, other in zip(wanted, state, strict=True)),
        "num_tensors_compared": len(wanted),
        "num_records": num_records,
        "num_cells": num_cells,
        "resident_bytes": resident_bytes,
        "num_evictions": session.stats.num_evictions,
        "num_recomputes": session.stats.num_recomputes,
    }
