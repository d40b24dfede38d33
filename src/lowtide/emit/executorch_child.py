"""What ``executorch_check`` runs under the malloc meter: one program, once for its memory, several times for time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch

from lowtide.importers.executorch_runtime import open_method
from lowtide.measure import active_meter
from lowtide.measure.numerics import digest_tensor

__all__ = ["measure_program"]


def measure_program(*, program_file: str, inputs_file: str, repeats: int) -> dict[str, Any]:
    """Run a program under the meter.

    Args:
        program_file: The .pte file.
        inputs_file: Sets of flat inputs, as ``torch.save`` writes them.
        repeats: Runs that are timed.

    Returns:
        ``outputs``, ``method_bytes``, ``run_bytes`` and ``seconds``, as ``ExecutorchRun`` has them.
    """
    meter = active_meter()
    input_sets = torch.load(inputs_file, weights_only=True)
    before_bytes = meter.live_bytes()
    program, method = open_method(Path(program_file))
    method_bytes = meter.live_bytes() - before_bytes
    outputs: dict[str, str] = {}
    run_bytes = 0
    for number, inputs in enumerate(input_sets):
        held_bytes = meter.reset_peak()
        found = method(inputs)
        run_bytes = max(run_bytes, meter.peak_bytes() - held_bytes)
        outputs.update({f"{number}/{index}": _digest(value) for index, value in enumerate(found)})
        del found
    durations = []
    for _ in range(repeats):
        started = time.process_time()
        method(input_sets[0])
        durations.append(time.process_time() - started)
    del method, program  # in this order
    return {
        "outputs": outputs,
        "method_bytes": method_bytes,
        "run_bytes": run_bytes,
        "seconds": min(durations, default=0.0),
    }


def _digest(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    digest = digest_tensor(value)
    return f"{digest.dtype} {digest.shape} {digest.sha256}"
