"""The malloc meter counts what is allocated, neither more nor less."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lowtide.measure import MeterUnavailable, active_meter, is_meter_active, measure_in_subprocess, meter_library_path

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the meter is preloaded by the Linux loader")

HERE = Path(__file__).parent
PAGE_BYTES = 4096


@pytest.fixture(autouse=True)
def _importable_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))


def test_inactive_in_a_process_that_was_not_started_with_it() -> None:
    assert not is_meter_active()
    with pytest.raises(MeterUnavailable) as caught:
        active_meter()
    assert str(caught.value) == (
        "the malloc meter is not active in this process: run the function through "
        f"lowtide.measure.measure_in_subprocess, or start Python with LD_PRELOAD={meter_library_path()}"
    )


def test_missing_library_says_how_to_build_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowtide.measure.meter.LIBRARY_NAME", "liblowtide_missing.so")
    with pytest.raises(
        MeterUnavailable, match=r"liblowtide_missing\.so lies in none of .*run `make build` in a source tree"
    ):
        meter_library_path()


@pytest.mark.parametrize("size_bytes", [24, 4096, 100_000, 10_000_000])
def test_every_way_to_allocate_is_counted_and_given_back(size_bytes: int) -> None:
    seen = measure_in_subprocess("measured_functions:allocate_each_way", kwargs={"size_bytes": size_bytes})
    assert len(seen) == 11
    for name, counts in seen.items():
        assert counts["held"] == counts["usable"], name
        assert counts["left"] == 0, name
        # by the size asked for: never less, at most two pages more (valloc and pvalloc round up to pages)
        assert size_bytes <= counts["held"] <= size_bytes + 2 * PAGE_BYTES, name


def test_failed_allocations_leave_the_count_alone() -> None:
    seen = measure_in_subprocess("measured_functions:refuse_allocations")
    assert set(seen["results"].values()) == {None}
    assert seen["left"] == 0
    assert seen["freed"] is None
    assert -1024 <= seen["after_free"] <= -1000, "realloc to 0 frees the 1000 bytes"


def test_peak_follows_and_can_be_reset() -> None:
    size_bytes = 1_000_000
    seen = measure_in_subprocess("measured_functions:follow_peak", kwargs={"size_bytes": size_bytes})
    slack_bytes = 3 * PAGE_BYTES  # page rounding of two blocks, and the ints between
    assert seen["at_reset"] <= 1024
    assert 2 * size_bytes <= seen["live"] <= 2 * size_bytes + slack_bytes
    assert 3 * size_bytes <= seen["peak"] <= 3 * size_bytes + slack_bytes
    assert seen["peak_after_free"] == seen["peak"]
    assert seen["after_second_reset"] <= 1024
    assert seen["left"] <= 1024


THREADS_SOURCE = r"""
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>
extern "C" int64_t lowtide_meter_live_bytes(void) __attribute__((weak));
extern "C" int64_t lowtide_meter_peak_bytes(void) __attribute__((weak));
extern "C" int64_t lowtide_meter_reset_peak(void) __attribute__((weak));

static void work() {  // holds at most 10 blocks at a time
    void *blocks[10];
    for (int round = 0; round < 100000; ++round) {
        for (void *&block : blocks) block = malloc(1000);
        for (void *block : blocks) free(block);
    }
}

int main() {
    int64_t start = lowtide_meter_reset_peak();
    std::vector<std::thread> threads;
    for (int index = 0; index < 4; ++index) threads.emplace_back(work);
    for (std::thread &thread : threads) thread.join();
    threads.clear();
    threads.shrink_to_fit();
    printf("%ld %ld", long(lowtide_meter_live_bytes() - start), long(lowtide_meter_peak_bytes() - start));
}
"""


def test_threads_at_the_same_time(tmp_path: Path) -> None:
    """Eight million updates by four threads, in C++ because Python's interpreter lock would keep them apart."""
    compiler = shutil.which("g++")
    assert compiler is not None, "building lowtide needs g++, and so does this test"
    (tmp_path / "threads.cpp").write_text(THREADS_SOURCE)
    subprocess.run(
        [compiler, "-O1", "-fno-builtin", "-pthread", "threads.cpp", "-o", "threads"], cwd=tmp_path, check=True
    )
    env = {**os.environ, "LD_PRELOAD": str(meter_library_path())}
    completed = subprocess.run([tmp_path / "threads"], env=env, capture_output=True, text=True, check=True)
    left_bytes, peak_bytes = map(int, completed.stdout.split())
    assert abs(left_bytes) < 4096, "an update was lost"  # the C++ runtime may keep some bytes of its own
    assert 10 * 1000 <= peak_bytes <= 4 * 10 * (1000 + 24) + 4096


def test_torch_tensors_are_counted() -> None:
    pytest.importorskip("torch", reason="counts a torch tensor")
    seen = measure_in_subprocess("measured_functions:torch_tensor", kwargs={"size_bytes": 10_000_000})
    assert 10_000_000 <= seen["held"] <= 10_000_000 + 3 * PAGE_BYTES
    assert seen["peak"] >= seen["held"]
    assert abs(seen["left"]) < 4096


def test_other_programs_run_under_it() -> None:
    """The dynamic loader's own first allocations, a program without Python, and a pipeline of threads and forks."""
    env = {**os.environ, "LD_PRELOAD": str(meter_library_path())}
    completed = subprocess.run(
        ["sh", "-c", "seq 1 20000 | sort -r | head -n 1"], env=env, capture_output=True, text=True, check=False
    )
    assert (completed.returncode, completed.stdout.strip(), completed.stderr) == (0, "9999", "")
