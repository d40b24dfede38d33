"""``python -m benchmarks.edge.bands``: .tflite models in row bands, on TensorFlow Lite Micro and LiteRT.

One JSON line per model, then a table. The models are those of ``python -m benchmarks.edge``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.edge.band_rows import stretches_cell, stretches_of
from benchmarks.edge.models import CACHE, all_models
from benchmarks.edge.planning import smallest_planner
from benchmarks.edge.records import check_record
from benchmarks.edge.runs import Row, kib, markdown, parser_of, saved_percent, write_rows
from lowtide import api
from lowtide.emit.bands.planned import plan_bands
from lowtide.emit.tflite_bands import choose_tflite_bands, export_bands, import_bands
from lowtide.emit.tflite_check import check_tflite
from lowtide.importers.tflite_file import parse_tflite

RESULTS = Path(__file__).parents[1] / "results" / "edge_bands.jsonl"


def main() -> int:
    """Measure every model."""
    program = "python -m benchmarks.edge.bands"
    options = parser_of(program, __doc__, cache=CACHE, results=RESULTS, repeats=7).parse_args()
    packages = ("tflite-micro", "ai-edge-litert", "numpy")
    write_rows(options, rows(options), (table,), kind="edge_bands", packages=packages)
    return 0


def rows(options: argparse.Namespace) -> Iterator[Row]:
    """One per model."""
    for origin, model in all_models(options.cache, options.only, offline=options.offline):
        named = {"record": "model", "model": model.name, "origin": origin, "changes": list(model.changes)}
        yield named | measure_model(model.for_micro or model.data, options)


def measure_model(data: bytes, options: argparse.Namespace) -> Row:
    """Choose bands, plan, export, run before and after; nothing but that there are none where none help."""
    file = parse_tflite(data, "the model")
    choice = choose_tflite_bands(file)
    record: Row = {"stretches": stretches_of(choice)}
    if not choice.bands:
        return record
    banded = import_bands(file, choice)
    graph = banded.source.graph
    plan_smallest = smallest_planner(seconds=options.seconds, seed=options.seed)
    export = export_bands(banded, api.require_plan(plan_bands(graph, choice, plan_smallest), graph))
    checked = check_tflite(data, export.data, repeats=options.repeats, seed=options.seed)
    return record | {
        "planned_bytes": export.after.head_bytes,
        "estimated_added_time_percent": choice.added_time_percent,
        "estimated_added_persistent_bytes": choice.added_persistent_bytes,
        "num_added_operators": export.num_recomputes,
        "new_ops": list(export.new_ops),
        "flash_delta_bytes": export.flash_delta_bytes,
        "micro": check_record(checked.micro),
        "litert": check_record(checked.litert),
    }


_COLUMNS = (
    "model",
    "arena_used_bytes",
    "in bands",
    "saved",
    "tensors and scratch",
    "in bands ",
    "saved ",
    "planned",
    "time",
    "persistent",
    "file",
    "bands",
    "identical",
    "LiteRT",
)
_TEXTS = ("model", "bands", "identical")


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table; sizes in KiB."""
    return markdown(_COLUMNS, _TEXTS, (_cells(row) for row in rows))


def _cells(row: Row) -> list[str]:
    name = row["model"] + (" *" if row["changes"] else "")
    before, after = (row.get("micro", {}).get(key) for key in ("before", "after"))
    if before is None or after is None:
        why = "none found" if not row["stretches"] else "not run there"
        return [name, *[""] * (len(_COLUMNS) - 4), why, "", ""]
    different = row["micro"]["num_different_outputs"]
    return [
        name,
        *(kib(run["total_bytes"]) for run in (before, after)),
        saved_percent(after["total_bytes"], before["total_bytes"]),
        *(kib(run["head_bytes"]) for run in (before, after)),
        saved_percent(after["head_bytes"], before["head_bytes"]),
        kib(row["planned_bytes"]),
        f"×{after['cpu_seconds'] / before['cpu_seconds']:.2f}" if before["cpu_seconds"] else "",
        f"{after['tail_bytes'] - before['tail_bytes']:+d} B",
        f"{row['flash_delta_bytes']:+d} B",
        stretches_cell(row["stretches"]),
        f"{different} DIFFER" if different else "yes",
        _litert_cell(row["litert"]),
    ]


def _litert_cell(litert: Row) -> str:
    if "after" not in litert:
        return "not run there"
    arenas = " → ".join(kib(litert[key]["arena_bytes"]) for key in ("before", "after"))
    difference = litert["largest_difference"]
    return f"{arenas}, " + (f"off by {difference:.0e}" if difference else "identical")


if __name__ == "__main__":
    raise SystemExit(main())
