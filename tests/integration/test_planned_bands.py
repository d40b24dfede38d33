"""Row bands in a plan: ``lowtide plan m.tflite --bands`` keeps the graph with bands, verify and export follow it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="reads .tflite files")

from lowtide import api
from lowtide.cli import main
from lowtide.emit.tflite_builder import TfliteBuilder
from lowtide.importers.tflite import capture_tflite
from lowtide.importers.tflite_arena import micro_arena
from lowtide.importers.tflite_file import read_tflite
from lowtide.ir.serde import graph_sha256, load_plan, save_graph
from lowtide.referee import baseline
from lowtide.reports.plan_report import report_of_plan
from lowtide.units import format_bytes

PLAN = ["plan", "model.tflite", "--time-limit", "2", "-o", "plan.json"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With an op-bound model: two convolutions, the wide value between them twice as large as everything else."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(7)
    builder = TfliteBuilder()
    x, wide, y = (builder.tensor(name, (1, 32, 32, depth)) for name, depth in zip("xwy", (3, 32, 3), strict=True))
    builder.conv(x, wide, rng.standard_normal((32, 3, 3, 3)))
    builder.conv(wide, y, rng.standard_normal((3, 3, 3, 32)))
    Path("model.tflite").write_bytes(builder.build(inputs=[x], outputs=[y]))
    return tmp_path


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join("".join(capsys.readouterr()).split())


def test_plan_verify_export(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PLAN, "--budget", "70%", "--bands", "4"]) == 0
    printed = said(capsys)
    assert "bands operators 0 to 1 of 2 in 4 bands" in printed
    assert "budget 70% of 140.0 KiB, the plain peak without bands: 98.0 KiB = 100352 bytes" in printed
    plan = load_plan("plan.json")
    whole = capture_tflite("model.tflite")
    assert plan.graph is not None
    assert plan.graph_sha256 == graph_sha256(whole) != graph_sha256(plan.graph)
    assert plan.footprint_bytes is not None
    before_bytes = micro_arena(read_tflite("model.tflite")).head_bytes
    with_bands, planned = format_bytes(baseline(plan.graph).peak_bytes), format_bytes(plan.footprint_bytes)
    less_percent = 100 * (before_bytes - plan.footprint_bytes) / before_bytes
    assert less_percent > 30
    assert f"plain peak 140.0 KiB without bands, {with_bands} with them" in printed
    assert f"in all 140.0 KiB without bands -> {planned} with bands: {less_percent:.1f} % less" in printed
    assert plan.footprint_bytes <= plan.budget_bytes == before_bytes * 7 // 10

    assert main(["verify", "model.tflite", "plan.json"]) == 0
    assert main(["export", "model.tflite", "plan.json", "-o", "smaller.tflite", "--check"]) == 0
    assert "outputs identical to the bit" in said(capsys)
    assert micro_arena(read_tflite("smaller.tflite")).head_bytes == plan.footprint_bytes


def test_both_reports_of_bands_are_beside_the_model_without_them(folder: Path) -> None:
    assert main([*PLAN, "--budget", "70%", "--bands", "4", "--report", "now.perfetto.json"]) == 0
    assert main(["report", "plan.json", "--graph", "model.tflite", "-o", "later.perfetto.json"]) == 0
    assert Path("now.perfetto.json").read_bytes() == Path("later.perfetto.json").read_bytes()
    graph, plan = capture_tflite("model.tflite"), load_plan("plan.json")
    assert plan.graph is not None
    report = report_of_plan(graph, api.verify(graph, plan))
    num_nodes = len(plan.graph.nodes)
    assert report.subtitle == f"plan of 2 nodes ({num_nodes} in row bands) by planner search"
    assert report.plain_peak_bytes == baseline(graph).peak_bytes == 140 * 1024
    assert report.facts[0].text == f"model, 2 nodes ({num_nodes} in row bands)"
    assert report.notes[-1].startswith("Plain memory is that of the model without row bands;")


def test_in_place_is_kept_in_the_plan(folder: Path) -> None:
    arguments = ["in-place:model.tflite" if word == "model.tflite" else word for word in PLAN]
    assert main([*arguments, "--budget", "80%", "--bands", "4"]) == 0
    assert load_plan("plan.json").meta == {"bands": {"bands": "4", "in_place": True}}
    assert main(["export", "model.tflite", "plan.json", "-o", "smaller.tflite"]) == 0


def test_new_operators_can_be_forbidden(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PLAN, "--budget", "80%", "--bands", "4"]) == 0
    assert main(["export", "model.tflite", "plan.json", "-o", "smaller.tflite", "--no-new-ops"]) == 2
    assert "--no-new-ops: the plan's bands need CONCATENATION, PAD, SLICE" in said(capsys)
    assert not Path("smaller.tflite").exists()


@pytest.mark.parametrize("bands", [None, {"bands": "2", "in_place": False}, {"bands": 4}, {"bands": "4" * 5000}, "4"])
def test_bands_that_are_not_those_of_the_graph(bands: object, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PLAN, "--budget", "80%", "--bands", "4"]) == 0
    document = json.loads(Path("plan.json").read_text(encoding="utf-8"))
    document["meta"] = {} if bands is None else {"bands": bands}
    Path("plan.json").write_text(json.dumps(document), encoding="utf-8")
    for command in (
        ["export", "model.tflite", "plan.json", "-o", "smaller.tflite"],
        ["verify", "model.tflite", "plan.json"],
        ["report", "plan.json", "--graph", "model.tflite", "-o", "report.html"],
    ):
        assert main(command) == 1
        assert "the plan's row bands are not those chosen for this model now: plan it again" in said(capsys)
    assert not Path("smaller.tflite").exists()
    assert not Path("report.html").exists()


def test_a_falsified_graph_is_found(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A plan that keeps every rule, of a graph whose tensors are a quarter of what they are."""
    assert main([*PLAN, "--budget", "80%", "--bands", "4"]) == 0
    document = json.loads(Path("plan.json").read_text(encoding="utf-8"))
    sized = [*document["graph"]["inputs"], *(out for node in document["graph"]["nodes"] for out in node["outputs"])]
    for entry in (*sized, *document["layout"]["placements"]):
        for key in ("size_bytes", "offset"):
            if key in entry:
                entry[key] //= 4
    for node in document["graph"]["nodes"]:
        node["workspace_bytes"] = node.get("workspace_bytes", 0) // 4
    document["graph"]["alignment"] = 4
    document["peak_bytes"] //= 4
    document["footprint_bytes"] //= 4
    Path("plan.json").write_text(json.dumps(document), encoding="utf-8")
    assert (
        api.verify(capture_tflite("model.tflite"), load_plan("plan.json")).replay.peak_bytes == document["peak_bytes"]
    )
    assert main(["verify", "model.tflite", "plan.json"]) == 1
    assert "the plan's row bands are not those chosen for this model now" in said(capsys)
    assert main(["report", "plan.json", "--graph", "model.tflite", "-o", "report.html"]) == 1


def test_only_models_of_a_file_have_bands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PLAN, "--budget", "80%", "--bands", "4"]) == 0
    save_graph(capture_tflite("model.tflite"), "graph.json")
    assert main(["verify", "graph.json", "plan.json"]) == 1
    assert "only .tflite and .onnx files have them, not 'graph.json'" in said(capsys)


def test_a_report_of_a_plan_with_bands(folder: Path) -> None:
    assert main([*PLAN, "--budget", "80%", "--bands", "4"]) == 0
    assert main(["report", "plan.json", "--graph", "model.tflite", "-o", "report.html"]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model.tflite", "--bands", "auto"], "--bands auto: without --budget there is nothing to plan: add --budget"),
        (["model.tflite", "--bands", "many", "--budget", "min"], "--bands 'many': write auto, off, or a number"),
        (["model.tflite", "--bands", "40"], "--bands '40': write auto, off, or a number from 2 to 10"),
        (["model.json", "--bands", "4", "--budget", "min"], "only .tflite and .onnx files are cut into bands"),
        (["model.tflite", "--bands", "4", "--budget", "-5"], "'-5' is no size"),
        (["model.tflite", "--bands", "4", "--budget", "nan%"], "'nan%' is no size"),
        (["model.tflite", "--bands", "4", "--budget", "min", "--planner", "none"], "planner 'none' is not known"),
        (["model.tflite", "--bands", "4", "--budget", "min", "--threads", "0"], "threads 0 must be a whole number"),
    ],
)
def test_wrong_commands(arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *arguments]) == 2
    answer = said(capsys)
    assert message in answer
    assert "operators 0 to 1" not in answer  # found out before bands are chosen
