"""What it costs to see an op: steps within a budget that never runs out, against plain eager."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

import lowtide
from benchmarks.online.programs import Program
from lowtide import models

__all__ = ["TRACKED", "run_tracking"]

_AMPLE_BYTES = 2**28
"""Values of up to 4 KiB count as small in an arena of that size."""
_CHAIN_LENGTH = 300

Step = Callable[[], Any]


def _chain(*shape: int) -> Step:
    """Ops too small to take time, one after another, and backward through all of them."""
    value = torch.linspace(-1.0, 1.0, torch.Size(shape).numel()).reshape(shape).requires_grad_()

    def step() -> None:
        value.grad = None
        result: Tensor = value
        for _ in range(_CHAIN_LENGTH // 3):
            result = (result * 1.01).tanh() + value
        result.sum().backward()

    return step


def _gpt2(width: int, depth: int, batch: int, sequence_length: int) -> Step:
    torch.manual_seed(0)
    sizes = {"batch": batch, "sequence_length": sequence_length, "vocabulary_size": 8 * width}
    program = Program(models.gpt2(width=width, depth=depth, num_heads=4, **sizes))
    return lambda: program.step(0)


TRACKED: Mapping[str, Callable[[], Step]] = {
    "chain of 40 B": lambda: _chain(10),
    "chain of 8 KiB": lambda: _chain(32, 64),
    "gpt2 2x32": lambda: _gpt2(width=32, depth=2, batch=2, sequence_length=16),
    "gpt2 6x64": lambda: _gpt2(width=64, depth=6, batch=4, sequence_length=32),
    "gpt2 6x128": lambda: _gpt2(width=128, depth=6, batch=8, sequence_length=128),
}


def run_tracking(*, num_rounds: int, steps_per_round: int) -> Iterator[dict[str, Any]]:
    """Measure each program.

    Args:
        num_rounds: Plain and within the budget in turn.
        steps_per_round: Of the program that takes longest; those that take less time do more.

    Yields:
        Records: one per program, with CPU seconds of a step by round.
    """
    for name, build in TRACKED.items():
        step = build()
        num_steps = max(steps_per_round, round(steps_per_round * 0.1 / _cpu_seconds(step, 2)))
        num_ops = 0.0
        plain, tracked = [], []
        for _ in range(num_rounds):
            plain.append(_cpu_seconds(step, num_steps))
            with lowtide.budget(_AMPLE_BYTES) as session:
                before = session.stats.num_ops
                tracked.append(_cpu_seconds(step, num_steps))
                num_ops = (session.stats.num_ops - before) / (num_steps + 1)
        yield {
            "record": "tracking",
            "program": name,
            "budget_bytes": _AMPLE_BYTES,
            "num_ops_per_step": num_ops,
            "num_steps": num_steps,
            "eager_cpu_seconds": plain,
            "cpu_seconds": tracked,
        }


def _cpu_seconds(step: Step, num_steps: int) -> float:
    """Of one step, after one that is not timed."""
    step()
    gc.collect()
    gc.disable()
    started = time.process_time()
    for _ in range(num_steps):
        step()
    seconds = (time.process_time() - started) / num_steps
    gc.enable()
    return seconds
