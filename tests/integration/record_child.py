"""Runs in a process whose malloc is counted: one training step measured, and the same step recorded."""

from __future__ import annotations

import gc

import torch

from lowtide.importers.torch_record import record
from lowtide.ir import Call
from lowtide.ir.trace_sizes import LEAF_OP, memory_of_trace
from lowtide.measure import active_meter
from lowtide.models import training_program


def measure_and_record(*, name: str) -> dict[str, int]:
    """Most bytes beyond what was there before the step, by malloc and by the trace; and what is left after it."""
    torch.set_num_threads(1)
    meter = active_meter()
    program = training_program(name)
    for _ in range(2):
        program.step(1)
    program.optimizer.zero_grad(set_to_none=True)
    gc.collect()
    gc.disable()
    start_bytes = meter.reset_peak()
    program.step(1)
    measured = {"peak": meter.peak_bytes() - start_bytes, "end": meter.live_bytes() - start_bytes}
    program.optimizer.zero_grad(set_to_none=True)
    trace = record(lambda: program.step(1))
    memory = memory_of_trace(trace)
    found_bytes = peak_bytes = 0  # what the step found is no part of what it took
    for event, memory_bytes in zip(trace.events, memory.memory_bytes, strict=True):
        if isinstance(event, Call) and event.op == LEAF_OP:
            found_bytes += sum(event.meta["size_bytes"].values())
        peak_bytes = max(peak_bytes, memory_bytes - found_bytes)
    return {**measured, "trace_peak": peak_bytes, "trace_end": memory.end_bytes - found_bytes}
