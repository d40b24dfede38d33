"""Durations and scratch of one op at a time, measured.

    warm-up   the first execution: what libraries set up once and keep is the first step's, not the op's
    counted   one execution or two with malloc counted: how far its bytes rise above those that stay, the results
    timed     executions until there are enough, each after the caches have been cleared; the median counts

Only the one op's tensors exist at that time, and they are gone before the next one: profiling a graph needs no more
memory than its largest op. All of malloc is counted, with what oneDNN, MKL and OpenMP take for themselves; scratch
below 4 KiB is noise (small objects of Python and torch around the op) and becomes 0. Where malloc cannot be counted,
torch's allocator is watched instead, through its profiler, which misses what the libraries take by themselves.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median_low
from typing import Any

import torch
from torch._C import _autograd as native
from torch._C._profiler import ProfilerConfig, ProfilerState, _ExperimentalConfig
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from lowtide import _allocations
from lowtide.importers.torch_cost_call import OpCall
from lowtide.importers.torch_cost_inputs import make_arguments
from lowtide.units import align_up

__all__ = ["Profile", "as_plain_torch", "make_cooler", "measure_workspace_bytes", "profile_call"]

ALIGNMENT_BYTES = 64
_NOISE_BYTES = 4096
_COOLER_BYTES = 16 * 1024 * 1024
_ENOUGH_NS = 30_000_000
_MOST_NS = 200_000_000
_FEWEST_REPEATS = 3
_MOST_REPEATS = 5

_logger = logging.getLogger("lowtide")


@dataclass(frozen=True, slots=True)
class Profile:
    """What was measured.

    Attributes:
        duration_ns: Median time of an execution.
        workspace_bytes: Scratch beyond the outputs, a multiple of 64; None where a profiler of the caller kept it from
            being measured.
    """

    duration_ns: int
    workspace_bytes: int | None


@contextmanager
def as_plain_torch() -> Iterator[None]:
    """Run the block without autograd, modes and dispatch of the caller; its random generator is put back afterwards."""
    with (
        torch.random.fork_rng(devices=[]),
        torch.no_grad(),
        _disable_current_modes(),
        torch._C.DisableTorchFunctionSubclass(),
        torch.autocast("cpu", enabled=False),
    ):
        yield


def profile_call(call: OpCall, *, cooler: torch.Tensor) -> Profile:
    """Measure one call on made-up tensors; to be used within `as_plain_torch`.

    Args:
        call: What is executed; its tensors are fake.
        cooler: What `make_cooler` gave. It is written before each execution: in a training step the inputs of an op
            have often left the caches, and one that moves memory then takes several times as long.

    Raises:
        Exception: Whatever the op raises on the made-up tensors.
    """
    args, kwargs = make_arguments(call)

    def execute() -> Any:
        return call.target(*args, **kwargs)

    if native._profiler_enabled():
        _logger.debug("a profiler is running: scratch memory of %s is not measured", call.name)
        workspace_bytes = None
        execute()
    else:
        workspace_bytes = measure_workspace_bytes(execute)
    duration_ns = _median_ns(execute, cooler=cooler, synchronize=_synchronize_of(call))
    return Profile(duration_ns=duration_ns, workspace_bytes=workspace_bytes)


def make_cooler() -> torch.Tensor:
    """Memory that fills the caches of a core when it is written."""
    return torch.empty(_COOLER_BYTES, dtype=torch.uint8, device="cpu")


def _median_ns(execute: Callable[[], Any], *, cooler: torch.Tensor, synchronize: Callable[[], None] | None) -> int:
    samples: list[int] = []
    total_ns = 0
    while True:
        cooler.fill_(0)
        start = time.perf_counter_ns()
        result = execute()
        if synchronize is not None:
            synchronize()
        samples.append(time.perf_counter_ns() - start)
        del result
        total_ns += samples[-1]
        is_enough = len(samples) >= _FEWEST_REPEATS and total_ns >= _ENOUGH_NS
        if is_enough or len(samples) >= _MOST_REPEATS or total_ns >= _MOST_NS:
            return median_low(samples)


def _synchronize_of(call: OpCall) -> Callable[[], None] | None:
    """What waits for the device that a call runs on; None on the CPU, which needs none."""
    device_types = {tensor.device.type for tensor in (*call.argument_tensors(), *call.result_tensors())} - {"cpu"}
    return torch.accelerator.synchronize if device_types else None


def measure_workspace_bytes(execute: Callable[[], Any]) -> int:
    """Most bytes that one execution holds beyond those of its results, caches filled; a multiple of 64.

    Args:
        execute: Executes the op and returns its results. Called two or three times.
    """
    execute()
    if _allocations.unsupported_reason() is None:
        try:
            return _workspace_of_malloc(execute)
        except _allocations.WindowError as error:  # refused by the system, or someone else counts
            _logger.debug("malloc is not counted: %s", error)
    return _workspace_of_torch(execute)


def _workspace_of_malloc(execute: Callable[[], Any]) -> int:
    """Scratch as malloc sees it: the smaller of two counts, as other threads may allocate during one of them."""
    smallest = 0
    for index in range(2):
        _allocations.start()
        try:
            result = execute()
        finally:
            counted = _allocations.stop()
        del result
        scratch_bytes = counted.peak_bytes - max(0, counted.end_bytes)  # at the end there are the results
        smallest = scratch_bytes if index == 0 else min(smallest, scratch_bytes)
        if smallest < _NOISE_BYTES:
            return 0
    return align_up(smallest, ALIGNMENT_BYTES)


def _workspace_of_torch(execute: Callable[[], Any]) -> int:
    """Most bytes that torch's CPU allocator held during one execution, beyond those of the results."""
    deltas, result = _allocations_of(execute)
    storages = {
        leaf.untyped_storage()._cdata: leaf.untyped_storage().nbytes()
        for leaf in pytree.tree_leaves(result)
        if isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu"
    }
    result_bytes = sum(align_up(num_bytes, ALIGNMENT_BYTES) for num_bytes in storages.values())
    live_bytes = peak_bytes = 0
    for delta in deltas:
        live_bytes += delta
        peak_bytes = max(peak_bytes, live_bytes)
    scratch_bytes = peak_bytes - result_bytes
    return align_up(scratch_bytes, ALIGNMENT_BYTES) if scratch_bytes >= _NOISE_BYTES else 0


def _allocations_of(execute: Callable[[], Any]) -> tuple[list[int], Any]:
    """Bytes taken (above 0) and given back (below 0) during one execution, in order, and its result.

    Torch's older profiler is used because it is quiet, starts in microseconds, and needs no tracing library. Where the
    caller profiles at the same time, it must not be called.
    """
    only_memory = (False, True, False, False, False)
    config = ProfilerConfig(ProfilerState.CPU, *only_memory, _ExperimentalConfig())
    native._enable_profiler_legacy(config)
    try:
        result = execute()
    finally:
        threads = native._disable_profiler_legacy()
    events = [event for thread in threads for event in thread if str(event.kind()) == "memory_alloc"]
    return [int(event.cpu_memory_usage()) for event in events], result
