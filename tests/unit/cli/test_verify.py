"""lowtide verify: exit 1 with the first broken rule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lowtide.cli import main


@pytest.fixture
def document(workplace: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The document of a good plan for ``four.json``."""
    assert main(["plan", "four.json", "--budget", "20", "--planner", "cli_fakes:Recomputing", "-o", "plan.json"]) == 0
    capsys.readouterr()
    return json.loads(Path("plan.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"peak_bytes": 16}, "peak-bytes: the plan says peak_bytes 16, but it is 17"),
        ({"budget_bytes": 16}, "budget: footprint 17 bytes exceeds the budget 16 bytes"),
        ({"duration": 4, "lower_bound_duration": 4}, "duration: the plan says duration 4, but it is 5"),
    ],
)
def test_broken_promise_exits_1(
    document: dict[str, Any], capsys: pytest.CaptureFixture[str], change: dict[str, int], message: str
) -> None:
    Path("plan.json").write_text(json.dumps({**document, **change}), encoding="utf-8")
    assert main(["verify", "four.json", "plan.json"]) == 1
    assert capsys.readouterr() == ("", f"lowtide: {message}\n")


def test_plan_of_another_graph_exits_1(document: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    graph = json.loads(Path("four.json").read_text(encoding="utf-8"))
    graph["inputs"][0]["size_bytes"] = 2
    Path("other.json").write_text(json.dumps(graph), encoding="utf-8")
    assert main(["verify", "other.json", "plan.json"]) == 1
    assert capsys.readouterr().err.startswith("lowtide: graph: the plan is for graph ")


def test_file_that_is_no_plan_exits_2(document: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "four.json", "four.json"]) == 2
    assert capsys.readouterr().err == "lowtide: four.json: format is 'lowtide.graph', expected 'lowtide.plan'\n"
