"""The page on edge models says what the results say, losses beside gains, whatever models they lack."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="tables are those of the benchmarks, which build torch modules")
pytest.importorskip("onnx", reason="tables are those of the benchmarks, which build .onnx nets")

from benchmarks.edge.report import SECTIONS, render
from benchmarks.edge.summaries import (
    summarize_executorch,
    summarize_onnx,
    summarize_onnx_bands,
    summarize_tflite,
    summarize_tflite_bands,
)

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
RUN = {
    "record": "run",
    "started": "2026-01-01",
    "system": "Linux",
    "num_cores": 2,
    "load_average_at_start": [1.5, 1.0, 1.0],
    "python": "3.11",
    "packages": {"onnx": "1.23"},
    "seconds": 6.0,
    "repeats": 7,
}
Row = dict[str, Any]


def check_page(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.edge.report", "--check", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)


def micro_of(before: int, after: int | None = None, *, seconds: float = 1.0, num_different: int = 0) -> Row:
    was = {"total_bytes": before, "head_bytes": before - 100, "tail_bytes": 100, "cpu_seconds": 1.0}
    if after is None:
        return {"before": was}
    becomes = {"total_bytes": after, "head_bytes": after - 150, "tail_bytes": 150, "cpu_seconds": seconds}
    return {"before": was, "after": becomes, "num_different_outputs": num_different}


def litert_of(before: int, after: int, *, difference: float = 0.0) -> Row:
    return {
        "before": {"arena_bytes": before},
        "after": {"arena_bytes": after},
        "num_different_outputs": int(difference > 0),
        "largest_difference": difference,
    }


def tflite_row(model: str, micro: Row, **others: Any) -> Row:
    given = {"num_recomputes": 0, "tdi_percent": 0.0, "is_op_bound": False, "flash_delta_bytes": 1024}
    return {"model": model, "micro": micro, "litert": {}, "in_place": {"planned_bytes": 1}, **given, **others}


def onnx_row(model: str, runs: tuple[int, int, int], **others: Any) -> Row:
    names = ("default", "before", "after")
    measured = {name: {"run_bytes": run << 20, "session_bytes": 100, "cpu_seconds": 1.0}
                for name, run in zip(names, runs, strict=True)}  # fmt: skip
    given = {
        "level": "portable",
        "is_exported": True,
        "num_different_outputs": 0,
        "default_difference": 0.0,
        "largest_working_set_bytes": 1,
        "own_order_bytes": 2,
        "planned_bytes": runs[2] << 20,
        "num_recomputes": 0,
        "tdi_percent": 0.0,
        "stretches": [{"first": 0, "last": 3, "num_bands": 2}],
    }
    return {"model": model, **given, **measured, **others}


def executorch_row(model: str, delegate: str, before: int, after: int, **others: Any) -> Row:
    runs = {
        when: {"method_bytes": held, "run_bytes": 10, "cpu_seconds": seconds}
        for when, held, seconds in (("before", 2 * before - 10, 4.0), ("after", before + after - 10, 5.0))
    }
    given = {
        "is_exported": after < before,
        "is_op_bound": True,
        "padding_bytes": 0,
        "num_different_outputs": 0,
        "num_recomputes": 2,
        "tdi_percent": 25.0,
    }
    sizes = {"before_bytes": before, "after_bytes": after, "planned_bytes": after, "buffer_bytes": before}
    named = {"model": model, "delegate": delegate}
    return {**named, **given, **sizes, **runs, "by_offsets_bytes": before, **others}


def test_the_page_says_what_the_results_say() -> None:
    done = check_page()
    assert done.returncode == 0, done.stderr


def test_of_other_results_the_page_is_stale(tmp_path: Path) -> None:
    for section in SECTIONS:
        shutil.copy(RESULTS / f"{section.file}.jsonl", tmp_path)
    path = tmp_path / "edge_onnx.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(lines[:-1]), encoding="utf-8")
    page = (ROOT / "docs" / "edge-benchmarks.md").read_bytes()
    done = check_page("--results", str(tmp_path))
    assert done.returncode == 1
    assert "edge-benchmarks.md: is not what the results say: run python -m benchmarks.edge.report" in done.stderr
    assert (ROOT / "docs" / "edge-benchmarks.md").read_bytes() == page


def test_the_page_without_any_model_has_its_runs() -> None:
    old, new = RUN, {**RUN, "processor": "a processor", "commit": "abc", "something": "new"}
    page = render({section.file: [new if section.file == "edge_onnx" else old] for section in SECTIONS})
    assert "- 2 cores, Linux, Python 3.11: edge_tflite, edge_bands, edge_onnx_bands, edge_executorch.\n" in page
    assert "- a processor, 2 cores, Linux, Python 3.11: edge_onnx.\n" in page
    assert "[edge_onnx](../benchmarks/results/edge_onnx.jsonl) | 2026-01-01 | abc | 1.5 | 6 s | 7 | onnx 1.23 |" in page
    assert "edge_bands.jsonl) | 2026-01-01 | not recorded | 1.5 |" in page


def test_every_model_that_was_measured_is_in_a_table() -> None:
    records = {
        section.file: [json.loads(line) for line in (RESULTS / f"{section.file}.jsonl").read_text().splitlines()]
        for section in SECTIONS
    }
    page = render(records)
    for section in SECTIONS:
        table = page.split(f"## {section.title}\n")[1].split("\n## ")[0]
        names = [record["model"] for record in records[section.file] if record["record"] == "model"]
        shown = [line.split(" ")[1] for line in table.splitlines() if line.startswith("| ")][2:]
        assert shown == names


def test_plans_for_tflite() -> None:
    rows = [
        tflite_row("gains", micro_of(1000, 500), litert=litert_of(100, 90)),
        tflite_row(
            "recomputes",
            micro_of(1000, 800, seconds=1.5, num_different=1),
            litert=litert_of(100, 110, difference=1e-6),
            num_recomputes=3,
            tdi_percent=12.0,
        ),
        tflite_row("wide", micro_of(1000), is_op_bound=True, in_place={"micro": micro_of(1000, 900)}),
        tflite_row("unlucky", micro_of(1000)),
        tflite_row("refused", {"refusal": "no kernel"}),
    ]
    assert summarize_tflite(rows) == {
        "By the plan": [
            "Arena: smaller on 2 of 4, by 20.0 to 50.0 %, median 35.0 % (most: gains); the same on 2.",
            "Op-bound: 1 (wide).",
            "Nothing found: 1 (unlucky).",
            "Not run there: 1 (refused).",
            "Outputs: the same to the bit on 1 of 2; off on recomputes.",
            "Time of the 1 that recompute, for a TDI of 12.0 %: ×1.50.",
            "Time of the 1 that execute the same operators, so what measurements scatter by: ×1.00.",
            "Persistent part: +50 B. File: +1,024 B.",
        ],
        "In place, with another order and without recomputation": [
            "Arena: smaller on 1 of 4, by 10.0 % (most: wide); the same on 3.",
            "Smaller so, and not by the plan: 1 (wide).",
            "Outputs: the same to the bit on 1 of 1.",
        ],
        "The plan on LiteRT": [
            "Arena: smaller on 1 of 2, by 10.0 % (most: gains); larger on 1 (recomputes by 10.0 %).",
            "Outputs: the same to the bit on 1 of 2; off by up to 1e-06 of the largest element on recomputes.",
        ],
    }


def test_bands_of_tflite_beside_the_plan() -> None:
    plans = [tflite_row("net_int8", micro_of(1000, 400)), tflite_row("net", micro_of(4000))]
    bands = [{"first": 0, "last": 3, "num_bands": 2}]
    given = {"stretches": bands, "litert": {"refusal": "no kernel"}}
    rows = [
        tflite_row("net", micro_of(4000, 1000, seconds=1.75), planned_bytes=850, **given),
        tflite_row("net_int8", micro_of(1000, 500), planned_bytes=1, **given),
        tflite_row("not_planned_int8", micro_of(1000, 1200), planned_bytes=1050, **given),
        {"model": "small", "stretches": []},
        tflite_row("refused", {"refusal": "no kernel"}, **given),
    ]
    summary = summarize_tflite_bands(rows, plans)
    assert summary["In bands, float32"][:5] == [
        "Arena: smaller on 1 of 1, by 75.0 % (most: net).",
        "Beside the plan alone: smaller on 1 of 1, by 75.0 % (most: net).",
        "Tensors and scratch: as planned, to the byte, on 1 of 1.",
        "Outputs: the same to the bit on 1 of 1.",
        "Time: ×1.75; more than ×1.5: net (×1.75).",
    ]
    assert summary["In bands, int8"][:3] == [
        "Arena: smaller on 1 of 2, by 50.0 % (most: net_int8); larger on 1 (not_planned_int8 by 20.0 %).",
        "Beside the plan alone: smaller on none of 1; larger on 1 (net_int8 by 25.0 %).",
        "Tensors and scratch: as planned, to the byte, on 1 of 2.",
    ]
    assert summary["Not in bands"] == ["None found: 1 (small).", "Not run there: 1 (refused)."]
    assert summary["Bands on LiteRT"] == ["Not run there: 3 (net, net_int8, not_planned_int8)."]


def test_plans_for_onnx_beside_recipe_and_default_options() -> None:
    rows = [
        onnx_row("gains", (10, 8, 4), num_recomputes=1, tdi_percent=5.0, default_difference=2e-3),
        onnx_row("wide", (4, 5, 5), own_order_bytes=1, is_exported=False),
        onnx_row("gains", (10, 8, 8), level="machine", is_exported=False),
    ]
    summary = summarize_onnx(rows)
    assert summary["Level portable"] == [
        "Beside the recipe alone: smaller on 1 of 2, by 50.0 % (most: gains); the same on 1.",
        "Op-bound: 1 (wide).",
        "Beside the default options: smaller on 1 of 2, by 60.0 % (most: gains); larger on 1 (wide by 25.0 %).",
        "Time beside the default options: ×1.00.",
        "`--check` writes no file: 1 (wide).",
        "Outputs beside the recipe's: the same to the bit on 2 of 2.",
        (
            "Outputs beside the default options': the same to the bit on 1 of 2; off elsewhere, by up to 2e-03 of the "
            "largest element."
        ),
        "Time of the 1 that recompute, for a TDI of 5.0 %: ×1.00.",
        "Time of the 1 that execute the same operators, so what measurements scatter by: ×1.00.",
        "Measured beyond the plan, of runs of 1 MiB and more: +0.0 %.",
        "Open session: smaller on none of 2; the same on 2.",
    ]
    assert summary["Level machine"][:2] == [
        "Beside the recipe alone: smaller on none of 1; the same on 1.",
        "Nothing found: 1 (gains).",
    ]


def test_bands_of_onnx_beside_the_plan_of_the_same_level() -> None:
    plans = [onnx_row("net", (10, 8, 6)), onnx_row("net", (10, 8, 2), level="machine")]
    rows = [
        onnx_row("net", (10, 8, 3), level="machine", num_different_outputs=1, largest_difference=7e-7),
        {"model": "small", "level": "machine", "stretches": []},
    ]
    summary = summarize_onnx_bands(rows, plans)
    assert list(summary) == ["In bands, level machine", "Not in bands"]
    statements = summary["In bands, level machine"]
    assert "Beside the plan alone: smaller on none of 1; larger on 1 (net by 50.0 %)." in statements
    assert (
        "Outputs beside the recipe's: the same to the bit on 0 of 1; off by up to 7e-07 of the largest element on net."
    ) in statements
    assert summary["Not in bands"] == ["None found: 1 (small)."]


def test_plans_for_executorch() -> None:
    rows = [
        executorch_row("net", "portable", 1000, 600),
        executorch_row("wide", "portable", 1000, 1000),
        executorch_row("net", "xnnpack", 100, 100)
        | {"before": {"method_bytes": 3990, "run_bytes": 10, "cpu_seconds": 0.5}},
    ]
    summary = summarize_executorch(rows)
    assert summary["Delegate portable"] == [
        "Planned buffer: smaller on 1 of 2, by 40.0 % (most: net); the same on 1.",
        "Op-bound: 1 (wide).",
        "By offsets alone, of these: smaller on none of 1; the same on 1.",
        "In the file what was planned, to the byte, ExecuTorch's padding apart, on 2 of 2.",
        "Outputs: the same to the bit on 2 of 2.",
        "Time of the 1 that recompute, for a TDI of 25.0 %: ×1.25.",
        "What malloc hands out: smaller on 1 of 1, by 20.0 % (most: net).",
    ]
    assert summary["XNNPACK beside ExecuTorch's own kernels"] == [
        "Speed, on 1 models: ×8.0.",
        "What malloc hands out: ×2.0.",
    ]
