"""The benchmark of online policies: its page says what its results say, and it can be run again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run_module(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)


def test_the_page_says_what_the_results_say() -> None:
    done = run_module("benchmarks.online_sim.report", "--check")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_small_network_is_recorded_and_measured(tmp_path: Path) -> None:
    output = tmp_path / "results.jsonl"
    done = run_module("benchmarks.online_sim", "--short", "--only", "unet_tiny", "-o", str(output))
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    sweep = [row for row in rows if row["record"] == "sweep"]
    assert {row["policy"] for row in sweep} >= {"coop", "coop-paper", "dtr", "dte", "lru", "dtr-ideal"}
    assert all(row["overhead"] >= 1 for row in sweep if row["completed"])
    assert {row["record"] for row in rows} == {"run", "network", "sweep", "ablation", "minimum", "speed", "latency"}
