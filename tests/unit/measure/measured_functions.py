"""Functions for the tests to run in a child process. They import nothing that the meter is not to see."""

from __future__ import annotations

import ctypes
import os
import pathlib
import signal
import sys
import time

from lowtide.measure.meter import active_meter


def echo(**kwargs: object) -> dict[str, object]:
    return {"kwargs": kwargs, "preload": os.environ.get("LD_PRELOAD"), "marker": os.environ.get("LOWTIDE_TEST_MARKER")}


def print_and_return() -> dict[str, object]:
    print("a line on stdout")
    print("a line on stderr", file=sys.stderr)
    return {"done": True}


def raise_error() -> dict[str, object]:
    raise ZeroDivisionError("on purpose")


def exit_early() -> dict[str, object]:
    print("last words", file=sys.stderr, flush=True)
    os._exit(7)


def call_sys_exit() -> dict[str, object]:
    sys.exit("no result today")


def be_killed() -> dict[str, object]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def sleep_long(pid_path: str | None = None) -> dict[str, object]:
    if pid_path is not None:
        partial = pathlib.Path(f"{pid_path}.partial")
        partial.write_text(str(os.getpid()))
        partial.rename(pid_path)
    time.sleep(60)
    return {}


def return_list() -> list[int]:
    return [1]


def return_object() -> dict[str, object]:
    return {"value": object()}


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    for name in ("malloc", "calloc", "realloc", "reallocarray", "memalign", "aligned_alloc", "valloc", "pvalloc"):
        getattr(libc, name).restype = ctypes.c_void_p
    size = ctypes.c_size_t
    libc.malloc.argtypes = libc.valloc.argtypes = libc.pvalloc.argtypes = [size]
    libc.calloc.argtypes = libc.memalign.argtypes = libc.aligned_alloc.argtypes = [size, size]
    libc.realloc.argtypes = [ctypes.c_void_p, size]
    libc.reallocarray.argtypes = [ctypes.c_void_p, size, size]
    libc.free.argtypes = [ctypes.c_void_p]
    libc.free.restype = None
    libc.posix_memalign.argtypes = [ctypes.POINTER(ctypes.c_void_p), size, size]
    libc.malloc_usable_size.argtypes = [ctypes.c_void_p]
    libc.malloc_usable_size.restype = size
    return libc


def allocate_each_way(*, size_bytes: int) -> dict[str, object]:
    """Allocates and frees by every function; returns what the meter saw of each."""
    libc, meter = _libc(), active_meter()

    def posix_memalign() -> int:
        block = ctypes.c_void_p()
        assert libc.posix_memalign(ctypes.byref(block), 64, size_bytes) == 0
        return block.value or 0

    ways = {
        "malloc": lambda: libc.malloc(size_bytes),
        "calloc": lambda: libc.calloc(size_bytes // 8, 8),
        "realloc": lambda: libc.realloc(None, size_bytes),
        "realloc_grown": lambda: libc.realloc(libc.malloc(size_bytes // 3), size_bytes),
        "realloc_shrunk": lambda: libc.realloc(libc.malloc(size_bytes * 3), size_bytes),
        "reallocarray": lambda: libc.reallocarray(None, size_bytes // 8, 8),
        "memalign": lambda: libc.memalign(128, size_bytes),
        "aligned_alloc": lambda: libc.aligned_alloc(64, size_bytes),
        "posix_memalign": posix_memalign,
        "valloc": lambda: libc.valloc(size_bytes),
        "pvalloc": lambda: libc.pvalloc(size_bytes),
    }
    seen = {}
    for name, allocate in ways.items():
        libc.free(allocate())  # what ctypes itself allocates at a first call is not the point
        before = meter.live_bytes()
        block = allocate()
        held = meter.live_bytes() - before
        usable = libc.malloc_usable_size(block)
        libc.free(block)
        seen[name] = {"held": held, "usable": usable, "left": meter.live_bytes() - before}
    return seen


def refuse_allocations() -> dict[str, object]:
    """Allocations that must fail, and leave the count as it was."""
    libc, meter = _libc(), active_meter()
    block = libc.malloc(1000)
    huge = 2**62
    results = {}

    def attempt() -> None:
        results["calloc_overflow"] = libc.calloc(2**63, 2)
        results["reallocarray_overflow"] = libc.reallocarray(block, 2**63, 2)
        results["realloc_huge"] = libc.realloc(block, huge)
        results["malloc_huge"] = libc.malloc(huge)

    attempt()
    before = meter.live_bytes()
    attempt()
    left = meter.live_bytes() - before
    freed_by_realloc = libc.realloc(block, 0)
    return {"results": results, "left": left, "freed": freed_by_realloc, "after_free": meter.live_bytes() - before}


def follow_peak(*, size_bytes: int) -> dict[str, object]:
    meter = active_meter()
    meter.reset_peak(), meter.peak_bytes(), meter.live_bytes()
    start = meter.reset_peak()
    at_reset = meter.peak_bytes() - start
    first = bytearray(size_bytes)
    second = bytearray(2 * size_bytes)
    del first
    live = meter.live_bytes() - start
    peak = meter.peak_bytes() - start
    del second
    peak_after_free = meter.peak_bytes() - start
    restart = meter.reset_peak()
    return {
        "at_reset": at_reset,
        "live": live,
        "peak": peak,
        "peak_after_free": peak_after_free,
        "after_second_reset": meter.peak_bytes() - restart,
        "left": restart - start,
    }


def torch_tensor(*, size_bytes: int) -> dict[str, object]:
    import torch

    meter = active_meter()
    torch.empty(100, dtype=torch.uint8)  # what torch allocates once is not the point
    start = meter.reset_peak()
    tensor = torch.empty(size_bytes, dtype=torch.uint8)
    held = meter.live_bytes() - start
    del tensor
    return {"held": held, "left": meter.live_bytes() - start, "peak": meter.peak_bytes() - start}


def torchless_live_bytes() -> dict[str, object]:
    return {"live_bytes": active_meter().live_bytes()}
