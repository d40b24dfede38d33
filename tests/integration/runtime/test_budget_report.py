"""docs/budget-benchmarks.md says what benchmarks/results/online.jsonl says."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from benchmarks.online import report  # noqa: E402

RUN: dict[str, Any] = {
    "record": "run",
    "processor": "P",
    "num_cores": 2,
    "load_average_at_start": [1.5, 1.0, 1.0],
    "num_threads": 1,
    "packages": {"torch": "2"},
    "commit": "abc",
    "steps_per_round": 2,
    "num_rounds": 3,
}


def _setting(label: str, **more: Any) -> dict[str, Any]:
    return {"record": "setting", "program": "net", "setting": label, "budget_bytes": 2**20, **more}


def _round(index: int, *, eager: list[float], coop: float) -> dict[str, Any]:
    return {
        "record": "round",
        "program": "net",
        "round": index,
        "eager_cpu_seconds": eager,
        "cpu_seconds": {"coop 0.5": coop},
    }


def test_slow_down_is_the_median_of_the_rounds_ratios() -> None:
    figures = {"num_recomputes_per_step": 7.0, "num_evictions_per_step": 5.0, "mean_search_us": 12.4}
    kept = {"peak_bytes": 2**20, "num_ops_per_step": 9.0, "num_tensors_compared": 4}
    records = [
        RUN,
        {"record": "program", "program": "net", "kept_bytes": 2**19, "peak_bytes": 2**21},
        _setting("coop 0.5", num_tensors_different=0, **figures, **kept),
        _setting("dtr 0.5", error="no room"),
        _round(0, eager=[1.0, 2.0, 3.0], coop=3.0),
        _round(1, eager=[1.0, 1.0, 1.0], coop=1.2),
        _round(2, eager=[2.0, 2.0, 2.0], coop=2.2),
    ]
    text = report.render(json.dumps(record) for record in records)
    assert "| coop 0.5 | 1.00 MiB | x1.20 (1.10 to 1.50) | 7 | 5 | 12 us | equal |" in text
    assert "| dtr 0.5 | 1.00 MiB | out of memory |" in text


def test_the_page_is_up_to_date() -> None:
    results = ROOT / "benchmarks" / "results" / "online.jsonl"
    page = ROOT / "docs" / "budget-benchmarks.md"
    assert page.read_text(encoding="utf-8") == report.render(results.read_text(encoding="utf-8").splitlines())
