"""The benchmark keeps what it has measured, and its page says what that was, losses first."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.comparison.__main__ import budgets_that_peers_took
from benchmarks.comparison.report import render_section

ROOT = Path(__file__).parents[2]
RUN = {
    "processor": "a processor",
    "num_cores": 2,
    "system": "Linux",
    "python": "3.11",
    "packages": {"torch": "2.13"},
    "load_average_at_start": [1.25, 1.0, 1.0],
    "started": "2026-01-01",
    "commit": "abc",
}


def run_module(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)


def row(kind: str, method: str, needed_bytes: int | None, duration: int | None, **others: Any) -> dict[str, Any]:
    given = {"budget": "60%", "budget_bytes": 600, "outcome": "completed", "bits": "same", "seconds": 1.0, **others}
    figures = {"needed_bytes": needed_bytes, "duration": duration, "lower_bound_duration": None}
    return {"kind": kind, "method": method, "baseline_duration": 1000, **figures, **given}


def rows_of(*, greedy: int, compiled: int) -> list[dict[str, Any]]:
    return [
        row("bound", "bound, given order", None, None) | {"lower_bound_duration": 1010},
        row("planner", "greedy", 590, greedy),
        row("planner", "sqrt", 500, 1400),
        row("peer", "amb", 550, 1050),
        row("peer", "checkpoint", None, None, outcome="over budget"),
        row("policy", "coop", 600, 1080),
        row("measured", "eager", 1000, 1000, budget="", budget_bytes=None),
        row("measured", "checkpoint", 400, 1300, budget="", budget_bytes=None, bits="others"),
        row("measured", "amb-aot_eager", 595, 1060),
        row("measured", "lowtide.compile", 590, compiled),
        row("measured", "lowtide.budget", 610, 1090, outcome="over budget"),
    ]


def test_where_nobody_is_faster_the_page_says_by_how_much() -> None:
    page = render_section([RUN], {"unet": rows_of(greedy=1020, compiled=1030)})
    assert (
        "| 60%, 600 B | +1.00 % | +2.00 %, 590 B (`greedy`) | +8.00 %, 600 B (`coop`) | +5.00 %, 550 B | none |" in page
    )
    assert (
        "- The best planner, in 1 cells in which a peer finds something: behind a peer in none, ahead in 1 by 3.00 to "
        "3.00 points of TDI.\n"
    ) in page
    assert "behind a peer in 1: U-Net (GroupNorm) within 60%, `amb` (3.00 points).\n" in page  # the policy
    assert "| 60%, 600 B | +3.00 %, 590 B | +9.00 %, 610 B, over budget | +6.00 %, 595 B |  |  |" in page
    assert "| without |  |  |  |  | +30.00 %, 400 B, bits differ |" in page
    checkpoint = "U-Net (GroupNorm), `checkpoint` without a budget (+30.00 %, 400 B)"
    assert f"- behind at 1 of 2: {checkpoint}: no run of ours needs so little;\n- no slower at 1;\n- 1 runs of" in page


def test_losses_come_first() -> None:
    page = render_section([RUN], {"unet": rows_of(greedy=1090, compiled=1075)})
    assert "behind a peer in 1: U-Net (GroupNorm) within 60%, `amb` (4.00 points).\n" in page
    assert "- behind at 2 of 2: " in page
    assert "`amb-aot_eager` 60% (+6.00 %, 595 B): 1.5 points" in page


def test_a_budget_without_a_plan_is_said() -> None:
    missed = row("measured", "lowtide.compile", None, None, budget="30%", outcome="timeout")
    page = render_section([RUN], {"unet": [*rows_of(greedy=1020, compiled=1030), missed]})
    assert "- without a plan of ours: U-Net (GroupNorm) within 30%;\n" in page
    assert "| 30%, 600 B | none (timeout) |" in page


def test_page_is_that_of_the_result_files() -> None:
    done = run_module("benchmarks.comparison.report", "--check")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_what_is_there_is_not_run_again(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="captures a torch model")
    arguments = ["--model", "unet_tiny", "--budgets", "85%", "--time-limit", "1", "--no-measure", "-o", str(tmp_path)]
    arguments += ["--peers", "checkpoint"]
    first, again = (run_module("benchmarks.comparison", *arguments) for _ in range(2))
    assert (first.returncode, again.returncode) == (0, 0), first.stderr + again.stderr
    assert "checkpoint within 85%" in first.stderr
    assert "within 85%:" not in again.stderr
    runs = [json.loads(line) for line in (tmp_path / "comparison_runs.jsonl").read_text().splitlines()]
    assert [run["models"] for run in runs] == [["unet_tiny"]] * 2
    assert (tmp_path / "comparison_unet_tiny.jsonl").is_file()


def test_what_peers_took_is_given_to_lowtide_too() -> None:
    rows = [
        {"method": "eager", "peak_bytes": 3000},
        {"method": "checkpoint", "peak_bytes": 1000},
        {"method": "amb-inductor", "peak_bytes": 2998},
        {"method": "amb-aot_eager", "peak_bytes": 1001},
        {"method": "amb-aot_eager", "peak_bytes": 1500, "outcome": "over budget"},
        {"method": "amb-aot_eager", "peak_bytes": 3000},
        {"method": "lowtide.compile", "peak_bytes": 2000},
        {"method": "greedy", "peak_bytes": 1700, "kind": "planner"},
    ]
    lines = [json.dumps({"kind": "measured", "outcome": "completed", **row}) for row in rows]
    assert budgets_that_peers_took(lines) == ["99.9%", "33.3%"]
    assert budgets_that_peers_took(lines[1:]) == []
