"""All contenders on one model, in one fresh process under the malloc meter: first peaks and bits, then times.

train each     eager ─ checkpoint ─ ratio 1 ... 0 ─ lowtide 110% ... 45% ─ lowtide within checkpoint's peak
rounds         one step of each in turn, again and again: what disturbs the machine disturbs all alike
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.training.contender import Contender, count_differences
from benchmarks.training.peers import EAGER, LOWTIDE, PEERS, Setting
from benchmarks.training.peers.checkpoint_per_block import CheckpointPerBlock
from lowtide.errors import LowtideError

__all__ = ["AT_CHECKPOINT_PEAK", "run_course"]

AT_CHECKPOINT_PEAK = "at checkpoint's peak"
_NUM_STEPS = 3


def run_course(
    *, model: str, num_rounds: int, num_threads: int, seed: int, peers: Sequence[str] | None = None
) -> dict[str, Any]:
    """Runs in a child of ``measure_in_subprocess``.

    Args:
        model: Name of a function in ``lowtide.models``.
        num_rounds: How many steps of each contender are timed.
        num_threads: Threads of torch.
        seed: Of torch's generator before the first step, and of the order within a round.
        peers: Names of the peers to measure beside eager; None for all.

    Returns:
        ``{"records": [...]}``, as the result files hold them.
    """
    torch.set_num_threads(num_threads)
    gc.disable()
    records: list[dict[str, Any]] = []
    contenders: list[Contender] = []

    def add(setting: Setting) -> Contender | None:
        contender, record = _train(model, setting, contenders[0] if contenders else None, seed=seed)
        records.append(record)
        if contender is not None:
            contenders.append(contender)
        return contender

    chosen = [peer for peer in PEERS if peers is None or peer.name in (EAGER.name, *peers)]
    checkpoint_peak_bytes = None
    for peer in chosen:
        for setting in peer.settings():
            trained = add(setting)
            if isinstance(peer, CheckpointPerBlock) and trained is not None:
                checkpoint_peak_bytes = trained.peak_bytes()
    if LOWTIDE in chosen and checkpoint_peak_bytes is not None:
        add(LOWTIDE.setting(f"{checkpoint_peak_bytes} B", label=AT_CHECKPOINT_PEAK))
    records += _time(model, contenders, num_rounds=num_rounds, shuffle=random.Random(seed).shuffle)
    return {"records": records}


def _train(
    model: str, setting: Setting, eager: Contender | None, *, seed: int
) -> tuple[Contender | None, dict[str, Any]]:
    record: dict[str, Any] = {"record": "contender", "model": model, "peer": setting.peer, "setting": setting.label}
    try:
        contender = Contender(model, setting)
        contender.train(num_steps=_NUM_STEPS, seed=seed)
    except LowtideError as error:  # no plan within the budget, say: a result, too
        if setting.peer != LOWTIDE.name:
            raise
        return None, {**record, "error": str(error)}
    differences = count_differences(eager or contender, contender)
    return contender, {
        **record,
        "peak_bytes": contender.peak_bytes(),
        "peak_bytes_of_first_step": contender.peak_bytes_by_step[0],
        "first_step_cpu_seconds": round(contender.first_step_cpu_seconds, 3),
        "num_tensors_compared": len(contender.digests),
        "num_tensors_different": differences,
        **contender.report,
    }


def _time(
    model: str, contenders: list[Contender], *, num_rounds: int, shuffle: Callable[[list[Contender]], None]
) -> list[dict[str, Any]]:
    """One record per round: CPU seconds of a step of each contender, and of eager at start, middle and end."""
    eager, *others = contenders
    assert eager.setting.peer == EAGER.name, "the first contender is the one to which others are compared"
    records = []
    for round_index in range(num_rounds):
        order = list(others)
        shuffle(order)
        middle = len(order) // 2
        eager_seconds = [eager.step_cpu_seconds()]
        seconds = {}
        for position, contender in enumerate(order, start=1):
            seconds[_key(contender.setting)] = contender.step_cpu_seconds()
            if position in (middle, len(order)):
                eager_seconds.append(eager.step_cpu_seconds())
        records.append(
            {
                "record": "round",
                "model": model,
                "round": round_index,
                "eager_cpu_seconds": [round(item, 5) for item in eager_seconds],
                "cpu_seconds": {name: round(item, 5) for name, item in sorted(seconds.items())},
            }
        )
    return records


def _key(setting: Setting) -> str:
    return f"{setting.peer}|{setting.label}"
