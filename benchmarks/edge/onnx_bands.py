"""``python -m benchmarks.edge.onnx_bands``: .onnx models in row bands, on ONNX Runtime's CPU provider, one thread.

One JSON line per model and level of optimisation, then a table. The models are those of ``python -m
benchmarks.edge.onnx_models``, downloaded likewise. Needs the extra ``onnx``.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.edge.band_rows import stretches_cell, stretches_of
from benchmarks.edge.onnx_models import CACHE, models, run_record
from benchmarks.edge.planning import smallest_planner
from benchmarks.edge.runs import Row, kib, markdown, parser_of, saved_percent, write_rows
from lowtide import api
from lowtide.emit.bands.planned import plan_bands
from lowtide.emit.bands.search import BandChoice
from lowtide.emit.onnx_bands import choose_onnx_bands, export_onnx_bands, import_onnx_bands
from lowtide.emit.onnx_check import check_onnx
from lowtide.importers.onnx import OnnxImport, import_onnx
from lowtide.importers.onnx_file import read_onnx

RESULTS = Path(__file__).parents[1] / "results" / "edge_onnx_bands.jsonl"


def main() -> int:
    """Measure every model."""
    program = "python -m benchmarks.edge.onnx_bands"
    options = parser_of(program, __doc__, cache=CACHE, results=RESULTS, repeats=15).parse_args()
    packages = ("onnx", "onnxruntime", "numpy")
    with tempfile.TemporaryDirectory() as folder:
        measured = rows(options, Path(folder))
        write_rows(options, measured, (table,), kind="edge_onnx_bands", packages=packages)
    return 0


def rows(options: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """One per model and level of optimisation."""
    for name, path, origin, dims in models(options, folder):
        file = read_onnx(path, dims=dims)
        portable = import_onnx(file)
        choice = choose_onnx_bands(portable)
        for level in ("portable", "machine"):
            named = {"record": "model", "model": name, "origin": origin, "level": level, "dims": dims}
            original = portable if level == "portable" else import_onnx(file, level=level)
            yield named | measure_model(original, portable, choice, options)


def measure_model(original: OnnxImport, portable: OnnxImport, choice: BandChoice, options: argparse.Namespace) -> Row:
    """Plan in bands, export, run before and after; nothing but that there are none where none help."""
    record: Row = {
        "num_nodes": len(portable.graph.nodes),
        "stretches": stretches_of(choice),
    }
    if not choice.bands:
        return record
    banded = import_onnx_bands(portable, choice, original=original)
    graph = banded.source.graph
    plan_smallest = smallest_planner(seconds=options.seconds, seed=options.seed, layout=None)
    export = export_onnx_bands(banded, api.require_plan(plan_bands(graph, choice, plan_smallest), graph))
    checked = check_onnx(original, export.data, repeats=options.repeats, seed=options.seed)
    return record | {
        "own_order_bytes": export.before_bytes,
        "planned_bytes": export.after_bytes,
        "estimated_added_time_percent": choice.added_time_percent,
        "estimated_added_session_bytes": choice.added_persistent_bytes,
        "num_added_nodes": export.num_recomputes,
        "file_delta_bytes": export.size_delta_bytes,
        "is_exported": export.helps and checked.helps,
        "num_outputs": checked.num_outputs,
        "num_different_outputs": checked.num_different,
        "largest_difference": checked.difference,
        "default_difference": checked.default_difference,
        "default": run_record(checked.default),
        "before": run_record(checked.before),
        "after": run_record(checked.after),
    }


_COLUMNS = ("model", "level", "default", "recipe", "in bands", "saved", "against default", "planned", "ms default",
            "ms recipe", "ms in bands", "session", "bands", "identical")  # fmt: skip
_TEXTS = ("model", "level", "bands", "identical")


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table; sizes in KiB."""
    return markdown(_COLUMNS, _TEXTS, (_cells(row) for row in rows))


def _cells(row: Row) -> list[str]:
    if not row["stretches"]:
        return [row["model"], row["level"], *[""] * (len(_COLUMNS) - 4), "none found", ""]
    default, before, after = row["default"], row["before"], row["after"]
    difference = row["largest_difference"]
    return [
        row["model"],
        row["level"],
        *(kib(run["run_bytes"]) for run in (default, before, after)),
        saved_percent(after["run_bytes"], before["run_bytes"]),
        saved_percent(after["run_bytes"], default["run_bytes"]),
        kib(row["planned_bytes"]),
        *(f"{1e3 * run['cpu_seconds']:.2f}" for run in (default, before, after)),
        f"{kib(before['session_bytes'])} → {kib(after['session_bytes'])}",
        stretches_cell(row["stretches"]),
        f"off by {difference:.0e}" if difference else "yes",
    ]


if __name__ == "__main__":
    raise SystemExit(main())
