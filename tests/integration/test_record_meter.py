"""The sizes and releases of a recording are those that malloc sees."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="recordings are of torch programs")

from lowtide.measure import measure_in_subprocess

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the meter is preloaded by the Linux loader"),
    pytest.mark.slow,
]


@pytest.fixture(autouse=True)
def _importable_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.mark.parametrize("name", ["unet", "resnet50_like"])
def test_the_peak_of_a_trace_is_what_malloc_saw(name: str) -> None:
    """Malloc sees a little more: oneDNN's scratch memory, autograd's nodes, Python's objects."""
    result = measure_in_subprocess("record_child:measure_and_record", kwargs={"name": name})
    assert 0.97 * result["peak"] <= result["trace_peak"] <= result["peak"]
    assert 0.97 * result["end"] <= result["trace_end"] <= result["end"]
