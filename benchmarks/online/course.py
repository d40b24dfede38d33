"""One program, trained in every setting: bits and counters first, then CPU seconds in interleaved rounds.

A setting is plain eager, checkpoint per block, or a policy within a budget of P + r (peak - P), where P is what is
alive after an optimizer's step and peak the most without evictions, both as the arena counts them.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

import lowtide
from benchmarks.online.programs import Program, build
from lowtide.errors import LowtideError
from lowtide.runtime.session import Session

__all__ = ["POLICIES", "RATIOS", "Setting", "run_course"]

POLICIES = ("coop", "dtr", "dte")
RATIOS = (0.7, 0.5, 0.4, 0.3)
_AMPLE_BYTES = 2**34
_STEPS = 4


@dataclass(frozen=True)
class Setting:
    """How to train.

    Attributes:
        policy: Of `lowtide.budget`; None for plain eager or checkpoint.
        ratio: r of the budget; None for memory to spare.
        is_checkpointed: ``torch.utils.checkpoint`` around every block.
        is_at_checkpoint: The budget is the peak of checkpoint per block.
    """

    policy: str | None = None
    ratio: float | None = None
    is_checkpointed: bool = False
    is_at_checkpoint: bool = False

    @property
    def label(self) -> str:
        """Short and unique."""
        if self.is_checkpointed:
            return "checkpoint per block"
        if self.policy is None:
            return "eager"
        if self.is_at_checkpoint:
            return f"{self.policy} at checkpoint's peak"
        return f"{self.policy} {'without limit' if self.ratio is None else self.ratio}"

    def budget_bytes(self, kept_bytes: int, peak_bytes: int, checkpoint_peak_bytes: int) -> int:
        """Of its arena."""
        if self.is_at_checkpoint:
            return checkpoint_peak_bytes
        if self.ratio is None:
            return _AMPLE_BYTES
        return int(kept_bytes + self.ratio * (peak_bytes - kept_bytes))


class _Contender:
    def __init__(self, name: str, setting: Setting, budget_bytes: int | None) -> None:
        self.setting = setting
        self._budget_bytes = budget_bytes
        self._program: Program = build(name, is_checkpointed=setting.is_checkpointed)

    def train(self) -> tuple[list[torch.Tensor], Session | None]:
        """The first steps: state after them, counters."""
        with self._block() as session:
            for seed in range(_STEPS):
                self._program.step(seed)
        return self._program.state(), session

    def cpu_seconds(self, num_steps: int) -> float:
        """Of one step, the mean of some in a block of their own, after one that is not timed."""
        with self._block():
            self._program.step(0)
            gc.collect()
            started = time.process_time()
            for seed in range(num_steps):
                self._program.step(seed)
            return (time.process_time() - started) / num_steps

    def _block(self) -> AbstractContextManager[Session | None]:
        if self.setting.policy is None:
            return nullcontext()
        assert self._budget_bytes is not None
        return lowtide.budget(self._budget_bytes, policy=self.setting.policy)


def run_course(*, name: str, num_rounds: int, steps_per_round: int, seed: int) -> Iterator[dict[str, Any]]:
    """Measure one program.

    Yields:
        Records: one per setting, one per round.
    """
    gc.disable()
    kept_bytes, peak_bytes = _arena_bytes(name, is_checkpointed=False)
    eager = _Contender(name, Setting(), None)
    wanted, _ = eager.train()
    yield {"record": "program", "program": name, "kept_bytes": kept_bytes, "peak_bytes": peak_bytes}
    contenders = []
    _, checkpoint_peak_bytes = _arena_bytes(name, is_checkpointed=True)
    settings = [Setting(is_checkpointed=True), Setting(policy="coop")]
    settings += [Setting(policy=policy, is_at_checkpoint=True) for policy in POLICIES]
    settings += [Setting(policy=policy, ratio=ratio) for ratio in RATIOS for policy in POLICIES]
    for setting in settings:
        budget_bytes = setting.budget_bytes(kept_bytes, peak_bytes, checkpoint_peak_bytes)
        record: dict[str, Any] = {"record": "setting", "program": name, "setting": setting.label}
        if setting.policy is not None:
            record |= {"policy": setting.policy, "ratio": setting.ratio, "budget_bytes": budget_bytes}
        contender = _Contender(name, setting, budget_bytes)
        try:
            state, session = contender.train()
        except (LowtideError, torch.OutOfMemoryError) as error:
            yield {**record, "error": str(error)}
            continue
        contenders.append(contender)
        record["num_tensors_different"] = sum(
            not torch.equal(one, other) for one, other in zip(wanted, state, strict=True)
        )
        yield {**record, "num_tensors_compared": len(wanted), **_figures(session, checkpoint_peak_bytes)}
    shuffle = random.Random(seed).shuffle
    for index in range(num_rounds):
        shuffle(contenders)
        before = eager.cpu_seconds(steps_per_round)
        seconds = {item.setting.label: item.cpu_seconds(steps_per_round) for item in contenders[::2]}
        middle = eager.cpu_seconds(steps_per_round)
        seconds |= {item.setting.label: item.cpu_seconds(steps_per_round) for item in contenders[1::2]}
        after = eager.cpu_seconds(steps_per_round)
        yield {
            "record": "round",
            "program": name,
            "round": index,
            "eager_cpu_seconds": [round(item, 6) for item in (before, middle, after)],
            "cpu_seconds": {label: round(item, 6) for label, item in sorted(seconds.items())},
        }


def _arena_bytes(name: str, *, is_checkpointed: bool) -> tuple[int, int]:
    program = build(name, is_checkpointed=is_checkpointed)
    with lowtide.budget(_AMPLE_BYTES) as session:
        for seed in range(2):
            program.step(seed)
        return session.stats.resident_bytes, session.stats.peak_bytes


def _figures(session: Session | None, checkpoint_peak_bytes: int) -> dict[str, Any]:
    if session is None:
        return {"peak_bytes": checkpoint_peak_bytes}
    stats = session.stats
    return {
        "peak_bytes": stats.peak_bytes,
        "num_ops_per_step": stats.num_ops / _STEPS,
        "num_recomputes_per_step": stats.num_recomputes / _STEPS,
        "num_evictions_per_step": stats.num_evictions / _STEPS,
        "recompute_cost_percent": round(stats.recompute_cost_percent, 2),
        "num_searches_per_step": stats.num_searches / _STEPS,
        "mean_search_us": round(stats.mean_search_us, 2),
        "fragmentation": round(stats.fragmentation, 4),
        "num_compactions": stats.num_compactions,
    }
