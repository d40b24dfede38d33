"""Malloc counted within a window: known blocks, from everywhere, and nothing once the window is closed."""

from __future__ import annotations

import ctypes
import gc
import platform
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lowtide import _allocations

pytestmark = pytest.mark.skipif(
    platform.system() != "Linux" or platform.libc_ver()[0] != "glibc",
    reason="malloc is counted on Linux with glibc only",
)

MIB = 1 << 20
NOISE_BYTES = 20_000
"""Small objects of the interpreter, made or given back, and the pages that malloc rounds a large block up to."""


@pytest.fixture(autouse=True)
def _closed_window() -> Iterator[None]:
    gc.collect()
    gc.disable()  # what other tests left behind is not given back within a window
    yield
    gc.enable()
    with pytest.raises(_allocations.WindowError):  # no test leaves a window open
        _allocations.stop()


def count(function: Callable[[], Any]) -> tuple[int, int]:
    """Peak and end of a window around a call, whose result is alive at the end."""
    _allocations.start()
    try:
        result = function()
    finally:
        counted = _allocations.stop()
    del result
    return counted.peak_bytes, counted.end_bytes


CALLER_SOURCE = r"""
#include <stdlib.h>
#include <malloc.h>
void *by_malloc(size_t n) { return malloc(n); }
void *by_calloc(size_t n) { return calloc(n, 1); }
void *by_realloc(size_t n) { return realloc(malloc(n / 2), n); }
void *by_memalign(size_t n) { return memalign(256, n); }
void *by_aligned_alloc(size_t n) { return aligned_alloc(256, n); }
void *by_posix_memalign(size_t n) { void *p; return posix_memalign(&p, 256, n) == 0 ? p : NULL; }
static void *(*volatile pointer)(size_t) = malloc;
void *by_pointer(size_t n) { return pointer(n); }
void give_back(void *p) { free(p); }
int refused(void) {
  void *p = malloc(100000), *q = realloc(p, (size_t)1 << 62);
  free(p);
  return q == NULL;
}
void churn(int rounds, size_t n) {
  for (int i = 0; i < rounds; ++i) {
    char *volatile p = malloc(n);
    p[0] = 1;
    free(p);
  }
}
"""
WAYS = ("malloc", "calloc", "realloc", "memalign", "aligned_alloc", "posix_memalign", "pointer")


def compile_caller(folder: Path, *options: str) -> ctypes.CDLL:
    """A library that calls malloc in every way; compiled anew, so that it is loaded for the first time."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler to make a library that was never loaded before")
    folder.mkdir(parents=True, exist_ok=True)
    source, library_path = folder / "caller.c", folder / "caller.so"
    source.write_text(CALLER_SOURCE, encoding="utf-8")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-fno-builtin", *options, str(source), "-o", str(library_path)], check=True
    )
    library = ctypes.CDLL(str(library_path))
    for way in WAYS:
        function = getattr(library, f"by_{way}")
        function.restype, function.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.give_back.argtypes = [ctypes.c_void_p]
    library.churn.argtypes = [ctypes.c_int, ctypes.c_size_t]
    return library


@pytest.fixture(scope="module", params=["lazy", "now"])
def caller(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Bound at the first call, or at load with its table of addresses made read-only."""
    return compile_caller(tmp_path_factory.mktemp(request.param), f"-Wl,-z,relro,-z,{request.param}")


def test_this_machine_is_supported() -> None:
    assert _allocations.unsupported_reason() is None


def test_an_empty_window_holds_nothing() -> None:
    for _ in range(3):
        peak_bytes, end_bytes = count(lambda: None)
        assert 0 <= end_bytes <= peak_bytes < 1000


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_allocate_is_counted(caller: ctypes.CDLL, way: str) -> None:
    allocate = getattr(caller, f"by_{way}")
    kept: list[int] = []
    for _ in range(2):  # a lazy slot is unbound at first, bound afterwards
        peak_bytes, end_bytes = count(lambda: kept.append(allocate(MIB)))
        assert abs(end_bytes - MIB) <= NOISE_BYTES
        assert end_bytes <= peak_bytes <= MIB + NOISE_BYTES
    for address in kept:
        peak_bytes, end_bytes = count(lambda address=address: caller.give_back(address))  # type: ignore[misc]
        assert -MIB - NOISE_BYTES <= end_bytes <= -MIB + NOISE_BYTES  # a block from before lowers the level
        assert peak_bytes < NOISE_BYTES


def test_the_peak_is_the_most_at_a_time_not_the_sum(caller: ctypes.CDLL) -> None:
    peak_bytes, end_bytes = count(lambda: caller.churn(100, MIB))
    assert abs(peak_bytes - MIB) < NOISE_BYTES
    assert abs(end_bytes) < NOISE_BYTES


def test_a_refused_realloc_leaves_the_old_block_counted_once(caller: ctypes.CDLL) -> None:
    refused: list[int] = []
    peak_bytes, end_bytes = count(lambda: refused.append(caller.refused()))
    assert refused == [1]
    assert 100_000 <= peak_bytes < 100_000 + NOISE_BYTES
    assert abs(end_bytes) < NOISE_BYTES


def test_numpy_and_the_interpreter_are_counted() -> None:
    for make in (lambda: np.ones(MIB, dtype=np.uint8), lambda: bytearray(MIB), lambda: b"x" * MIB):
        peak_bytes, end_bytes = count(make)
        assert MIB - NOISE_BYTES < end_bytes <= peak_bytes < MIB + NOISE_BYTES


def test_torch_is_counted() -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones(MIB // 4)
    peak_bytes, end_bytes = count(lambda: (x + 1).sum())
    assert abs(peak_bytes - MIB) < NOISE_BYTES
    assert abs(end_bytes) < NOISE_BYTES


def test_threads_count_together(caller: ctypes.CDLL) -> None:
    num_threads, size = 4, MIB
    everyone_holds = threading.Barrier(num_threads)

    def hold(_: int) -> None:
        address = caller.by_malloc(size)
        everyone_holds.wait()
        caller.give_back(address)

    with ThreadPoolExecutor(num_threads) as pool:
        list(pool.map(hold, range(num_threads)))  # the threads are there before the window
        peak_bytes, end_bytes = count(lambda: list(pool.map(hold, range(num_threads))))
    assert num_threads * size <= peak_bytes < num_threads * (size + NOISE_BYTES)
    assert abs(end_bytes) < num_threads * NOISE_BYTES


def test_windows_open_and_close_while_others_allocate(caller: ctypes.CDLL) -> None:
    is_over = threading.Event()

    def churn() -> int:
        rounds = 0
        while not is_over.is_set():
            caller.churn(1000, 5000)  # without the GIL
            rounds += 1
        return rounds

    with ThreadPoolExecutor(3) as pool:
        churning = [pool.submit(churn) for _ in range(3)]
        counts = [count(lambda: np.ones(MIB, dtype=np.uint8)) for _ in range(300)]
        is_over.set()
        assert min(future.result() for future in churning) > 0
    for peak_bytes, end_bytes in counts:
        assert MIB - NOISE_BYTES <= end_bytes <= peak_bytes <= MIB + NOISE_BYTES + 3 * 5008


def test_windows_do_not_nest() -> None:
    _allocations.start()
    try:
        with pytest.raises(_allocations.WindowError, match="a window is open already: call stop first"):
            _allocations.start()
        kept = bytearray(MIB)  # the refusal did not spoil the open one
    finally:
        counted = _allocations.stop()
    assert abs(counted.end_bytes - len(kept)) <= NOISE_BYTES


def test_stop_without_start_is_refused() -> None:
    with pytest.raises(_allocations.WindowError, match="no window is open: call start first"):
        _allocations.stop()


def words_in(span: tuple[int, int]) -> list[int]:
    return list((ctypes.c_uint64 * ((span[1] - span[0]) // 8)).from_address(span[0]))


def mappings(path: str) -> list[tuple[int, int, str]]:
    """Begin, end and rights of the mappings of a file."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    fields = [line.split() for line in lines if line.endswith(path)]
    spans = [(tuple(int(part, 16) for part in field[0].split("-")), field[1]) for field in fields]
    return [(span[0], span[1], rights) for span, rights in spans]


def test_afterwards_memory_and_its_protection_are_as_before(caller: ctypes.CDLL) -> None:
    count(lambda: [getattr(caller, f"by_{way}")(8) for way in WAYS])  # binds what binds late
    [getattr(caller, f"by_{way}")(8) for way in WAYS]
    before = mappings(caller._name)
    data = [(begin, end) for begin, end, rights in before if "r" in rights and "x" not in rights]
    words = [words_in(span) for span in data]
    _allocations.start()
    try:
        inside = [words_in(span) for span in data]
    finally:
        _allocations.stop()
    assert inside != words  # something was redirected
    assert [words_in(span) for span in data] == words
    assert mappings(caller._name) == before


def test_nothing_is_counted_between_windows(caller: ctypes.CDLL) -> None:
    count(lambda: None)
    address = caller.by_malloc(MIB)
    peak_bytes, _ = count(lambda: None)
    assert peak_bytes < NOISE_BYTES
    caller.give_back(address)


def test_a_library_loaded_between_windows_is_counted(tmp_path: Path) -> None:
    count(lambda: None)
    num_slots = _allocations.num_slots()
    library = compile_caller(tmp_path)
    kept: list[int] = []
    _, end_bytes = count(lambda: kept.append(library.by_malloc(MIB)))
    assert abs(end_bytes - MIB) <= NOISE_BYTES
    assert _allocations.num_slots() > num_slots
    library.give_back(kept[0])


def test_libraries_may_come_and_go_within_a_window(tmp_path: Path) -> None:
    going, coming = compile_caller(tmp_path / "going"), tmp_path / "coming"
    close = ctypes.CDLL(None).dlclose
    close.argtypes = [ctypes.c_void_p]
    compile_caller(coming)  # compiled; loaded once more below
    _allocations.start()
    try:
        assert close(going._handle) == 0
        staying = ctypes.CDLL(shutil.copy(coming / "caller.so", tmp_path / "staying.so"))
        staying.churn(10, ctypes.c_size_t(MIB))
    finally:
        _allocations.stop()
    for _ in range(2):
        peak_bytes, _ = count(lambda: staying.churn(10, ctypes.c_size_t(MIB)))
        assert abs(peak_bytes - MIB) < NOISE_BYTES


def test_threads_may_load_libraries_meanwhile(tmp_path: Path) -> None:
    compile_caller(tmp_path)
    paths = [Path(shutil.copy(tmp_path / "caller.so", tmp_path / f"copy{index}.so")) for index in range(40)]

    def load() -> list[ctypes.CDLL]:
        return [ctypes.CDLL(str(path)) for path in paths]

    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(load)
        while not loading.done():
            count(lambda: None)
        libraries = loading.result()
    for library in libraries:
        peak_bytes, _ = count(lambda library=library: library.churn(1, ctypes.c_size_t(MIB)))  # type: ignore[misc]
        assert abs(peak_bytes - MIB) < NOISE_BYTES


def test_a_window_costs_about_a_millisecond() -> None:
    count(lambda: None)
    seconds = []
    for _ in range(20):
        start = time.perf_counter()
        count(lambda: None)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 1e-2  # 0.5 ms with torch loaded, on an idle machine


def test_a_child_forked_within_a_window_lives() -> None:
    program = (
        "import os; from lowtide import _allocations as a; a.start(); pid = os.fork()\n"
        "x = bytearray(1 << 20); c = a.stop(); assert c.end_bytes >= 1 << 20\n"
        "a.start(); a.stop()\n"
        "if pid == 0: os._exit(0)\n"
        "assert os.waitpid(pid, 0)[1] == 0"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_the_process_may_end_within_a_window() -> None:
    program = "from lowtide import _allocations as a; import numpy; a.start(); x = numpy.ones(1000000)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
