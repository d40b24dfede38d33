"""One model: what its arena is, what plans make of it, and what the runtimes say of the written file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.edge.planning import smallest_planner
from benchmarks.edge.records import check_record, run_record
from benchmarks.edge.runs import Row, kib, markdown, saved_percent
from lowtide import api
from lowtide.emit.tflite import export_tflite
from lowtide.emit.tflite_analysis import analyze_tflite
from lowtide.emit.tflite_check import check_tflite
from lowtide.emit.tflite_run import RuntimeRefused, random_inputs, run_on_litert, run_on_micro
from lowtide.importers.tflite import TfliteImport, import_tflite
from lowtide.importers.tflite_file import parse_tflite
from lowtide.ir import Graph, PlanResult


def measure_model(
    name: str, data: bytes, *, origin: str, changes: Sequence[str], seconds: float, repeats: int, seed: int
) -> Row:
    """Analyse, plan for the smallest arena, export, run before and after.

    Args:
        name: Of the model.
        data: The file that is planned and run.
        origin: Where it comes from.
        changes: What was done to the original file so that TensorFlow Lite Micro runs it.
        seconds: Time limit of each of the three searches.
        repeats: Inferences that are timed.
        seed: Of planner and inputs.
    """
    source = import_tflite(parse_tflite(data, name))
    results: list[PlanResult] = []
    plan = smallest_planner(seconds=seconds, seed=seed)

    def plan_smallest(graph: Graph, *, keep_order: bool, max_copies: int | None) -> PlanResult:
        results.append(plan(graph, keep_order=keep_order, max_copies=max_copies))
        return results[-1]

    analysis = analyze_tflite(source, plan_smallest)
    in_place = results.pop()  # the last is the one for elementwise operators in place
    best = min(
        (result for result in results if result.plan is not None),
        key=lambda result: (result.plan.footprint_bytes, result.num_recomputes),  # type: ignore[union-attr]
    )
    export = export_tflite(source, api.require_plan(best, source.graph))
    row: Row = {
        "record": "model",
        "model": name,
        "origin": origin,
        "changes": list(changes),
        "file_bytes": len(data),
        **{key: value for key, value in analysis.as_dict().items() if key != "model"},
        "planned_bytes": export.after.head_bytes,
        "num_recomputes": export.num_recomputes,
        "tdi_percent": 0.0 if best.plan is None else best.plan.tdi_percent,
        "flash_delta_bytes": export.flash_delta_bytes,
        "is_exported": export.helps,
    }
    row["in_place"] = _in_place_record(data, source, in_place, seed)
    if not export.helps:
        return row | _before_only(data, repeats, seed)
    checked = check_tflite(data, export.data, repeats=repeats, seed=seed)
    return row | {"micro": check_record(checked.micro), "litert": check_record(checked.litert)}


def _in_place_record(data: bytes, source: TfliteImport, result: PlanResult, seed: int) -> Row:
    """What elementwise operators in place make of it, order included, without recomputation."""
    in_place = import_tflite(source.file, in_place=True)
    export = export_tflite(in_place, api.require_plan(result, in_place.graph))
    if not export.helps:
        return {"planned_bytes": export.after.head_bytes}
    checked = check_tflite(data, export.data, repeats=0, seed=seed)
    return {"planned_bytes": export.after.head_bytes, "micro": check_record(checked.micro)}


def _before_only(data: bytes, repeats: int, seed: int) -> Row:
    inputs = random_inputs(parse_tflite(data, "m"), seed=seed)
    found: Row = {}
    for key, run in (("micro", run_on_micro), ("litert", run_on_litert)):
        try:
            found[key] = {"before": run_record(run(data, inputs, repeats=repeats))}
        except RuntimeRefused as error:
            found[key] = {"refusal": str(error)}
    return found


_COLUMNS = (
    "model",
    "arena_used_bytes",
    "after",
    "saved",
    "offsets alone",
    "order",
    "recomputed",
    "TDI",
    "identical",
    "time",
    "persistent",
    "in place",
    "LiteRT arena",
)
_TEXTS = ("model", "identical")


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table; sizes in KiB."""
    return markdown(_COLUMNS, _TEXTS, (_cells(row) for row in rows))


def _cells(row: Row) -> list[str]:
    micro, litert = row.get("micro", {}), row.get("litert", {})
    before, after = micro.get("before"), micro.get("after")
    cells = [row["model"] + (" *" if row["changes"] else "")]
    cells.append("not run there" if before is None else kib(before["total_bytes"]))
    if after is None or before is None:
        verdict = "op-bound" if row["is_op_bound"] and row["best_bytes"] >= row["arena_bytes"] else "nothing found"
        saved = "0" if not row["is_exported"] else f"planned {saved_percent(row['planned_bytes'], row['arena_bytes'])}"
        cells += ["" if row["is_exported"] else verdict, saved]
    else:
        cells += [kib(after["total_bytes"]), saved_percent(after["total_bytes"], before["total_bytes"])]
    cells += [
        saved_percent(row["by_offsets_bytes"], row["arena_bytes"]),
        saved_percent(row["by_order_bytes"], row["arena_bytes"]),
        str(row["num_recomputes"]),
        f"{row['tdi_percent']:.1f} %",
    ]
    if after is None or before is None:
        cells += ["", "", ""]
    else:
        cells += [
            "yes" if not micro["num_different_outputs"] else f"{micro['num_different_outputs']} DIFFER",
            f"×{after['cpu_seconds'] / before['cpu_seconds']:.2f}",
            f"{after['tail_bytes'] - before['tail_bytes']:+d} B",
        ]
    cells += [_in_place_cell(row), _litert_cell(litert)]
    return cells


def _in_place_cell(row: Row) -> str:
    micro = row["in_place"].get("micro", {})
    if micro.get("after") is None:
        return "0" if row["in_place"]["planned_bytes"] >= row["arena_bytes"] else "not run there"
    saved = saved_percent(micro["after"]["total_bytes"], micro["before"]["total_bytes"])
    return f"{saved}, {micro['num_different_outputs']} DIFFER" if micro["num_different_outputs"] else saved


def _litert_cell(litert: Mapping[str, Any]) -> str:
    before, after = litert.get("before"), litert.get("after")
    if before is None:
        return "not run there"
    if after is None:
        return kib(before["arena_bytes"])
    different = litert["num_different_outputs"]
    return f"{kib(before['arena_bytes'])} → {kib(after['arena_bytes'])}" + (
        f", {different} DIFFER" if different else ""
    )
