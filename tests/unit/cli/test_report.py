"""lowtide report, and --report of plan and simulate: files, exit codes, and what people see."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lowtide.cli import main
from lowtide.ir.serde import load_plan, load_trace

GENERATED = "generate:transformer?layers=2"


@pytest.fixture
def planned(workplace: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """``plan.json`` of ``four.json``: peak 17 of 24, one recomputation."""
    arguments = ["plan", "four.json", "--budget", "75%", "--planner", "cli_fakes:Recomputing", "-o", "plan.json"]
    assert main(arguments) == 0
    capsys.readouterr()
    return workplace


def test_a_plan_becomes_a_file(planned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "plan.json", "--graph", "four.json", "-o", "out.perfetto.json"]) == 0
    assert capsys.readouterr().out == "Report written to out.perfetto.json\n"
    events = json.loads((planned / "out.perfetto.json").read_text())["traceEvents"]
    slices = [event["name"] for event in events if event["ph"] == "X"]
    assert slices == ["a", "b", "c", "a (recomputed)", "d"]


def test_a_trace_becomes_a_file_without_a_graph(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", GENERATED, "--budget", "60%", "-o", "trace.jsonl"]) == 0
    assert main(["report", "trace.jsonl", "-o", "out.perfetto.json"]) == 0
    events = json.loads((workplace / "out.perfetto.json").read_text())["traceEvents"]
    trace = load_trace("trace.jsonl")
    assert max(event["args"]["bytes"] for event in events if event["ph"] == "C" and event["name"] == "memory held") > 0
    capacity = {event["args"]["bytes"] for event in events if event["ph"] == "C" and event["name"] == "memory capacity"}
    assert capacity == {trace.capacity_bytes}


def test_a_plan_needs_its_graph(planned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "plan.json", "-o", "out.png"]) == 2
    assert capsys.readouterr().err == (
        "lowtide: plan.json: a plan holds no sizes of tensors: add --graph SOURCE, what it was planned for\n"
    )


def test_a_trace_refuses_a_graph(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", GENERATED, "--budget", "60%", "-o", "trace.jsonl"]) == 0
    capsys.readouterr()
    assert main(["report", "trace.jsonl", "--graph", "four.json", "-o", "out.png"]) == 2
    assert capsys.readouterr().err == ("lowtide: trace.jsonl is a trace, which needs no graph: leave out --graph\n")


def test_another_graph_is_refused(planned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "plan.json", "--graph", GENERATED, "-o", "out.png"]) == 1
    assert "graph" in capsys.readouterr().err
    assert not (planned / "out.png").exists()


def test_the_ending_is_checked_before_the_file_is_read(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "missing.json", "-o", "out.pdf"]) == 2
    assert capsys.readouterr().err == (
        "lowtide: out.pdf: a report's file ends in .html, .png, .svg, .perfetto.json or .pickle\n"
    )


def test_what_is_neither_plan_nor_trace_says_so(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "four.json", "-o", "out.png"]) == 2
    assert "lowtide.plan" in capsys.readouterr().err


def test_plan_writes_a_report_beside_the_plan(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["plan", "four.json", "--budget", "75%", "--planner", "cli_fakes:Recomputing"]
    assert main([*arguments, "-o", "plan.json", "--report", "out.pickle"]) == 0
    assert capsys.readouterr().out.endswith("Plan written to plan.json\nReport written to out.pickle\n")
    assert (workplace / "out.pickle").stat().st_size > 0
    assert load_plan("plan.json").peak_bytes == 17


def test_json_of_a_plan_stays_json(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["plan", "four.json", "--budget", "75%", "--planner", "cli_fakes:Recomputing"]
    assert main([*arguments, "--report", "out.pickle", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["peak_bytes"] == 17
    assert (workplace / "out.pickle").exists()


def test_without_a_plan_there_is_no_report(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["plan", "four.json", "--budget", "75%", "--planner", "cli_fakes:Clueless"]
    assert main([*arguments, "--report", "out.pickle"]) == 3
    assert not (workplace / "out.pickle").exists()


def test_an_analysis_has_no_report(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "four.json", "--report", "out.png"]) == 2
    assert capsys.readouterr().err == (
        "lowtide: --report out.png: without --budget there is no plan to show: add --budget\n"
    )


def test_simulate_writes_a_report(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", GENERATED, "--budget", "60%", "--report", "out.perfetto.json"]) == 0
    assert capsys.readouterr().out.endswith("Report written to out.perfetto.json\n")
    document = json.loads((workplace / "out.perfetto.json").read_text())
    assert document["otherData"]["completed"] == "yes"
    assert "transformer-2: " in document["traceEvents"][0]["args"]["name"]


def test_simulate_checks_the_ending_first(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "missing.jsonl", "--budget", "60%", "--report", "out.jpg"]) == 2
    assert "out.jpg: a report's file ends in" in capsys.readouterr().err
