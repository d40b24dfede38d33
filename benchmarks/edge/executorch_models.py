"""``python -m benchmarks.edge.executorch_models``: torch modules before and after, on ExecuTorch's CPU runtime.

One JSON line per model and delegate, then a table. Nothing is downloaded: the nets are those of
``benchmarks.edge.onnx_models`` that are built here, and some of ``lowtide.models``, with random weights. Needs the
extras ``executorch`` and ``onnx``.
"""

from __future__ import annotations

import argparse
import importlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.edge.executorch_nets import built_torch_nets
from benchmarks.edge.planning import smallest_planner
from benchmarks.edge.runs import Row, kib, markdown, parser_of, saved_percent, write_rows
from lowtide import api
from lowtide.emit.executorch import export_executorch
from lowtide.emit.executorch_analysis import analyze_executorch
from lowtide.emit.executorch_check import ExecutorchRun, check_executorch
from lowtide.importers.executorch import import_executorch
from lowtide.importers.executorch_lowering import DELEGATES, export_for_executorch
from lowtide.ir import Graph, PlanResult

RESULTS = Path(__file__).parents[1] / "results" / "edge_executorch.jsonl"
OWN_MODELS = ("swin_tiny", "inception_v3_like_tiny", "unet_tiny")


def main() -> int:
    """Measure every model."""
    program = "python -m benchmarks.edge.executorch_models"
    cache = Path(tempfile.gettempdir())  # nothing is downloaded
    options = parser_of(program, __doc__, cache=cache, results=RESULTS, repeats=5).parse_args()
    packages = ("executorch", "torch", "numpy")
    write_rows(options, rows(options), (table,), kind="edge_executorch", packages=packages)
    return 0


def rows(options: argparse.Namespace) -> Iterator[Row]:
    """One per model and delegate."""
    for name, origin, (model, inputs) in models(options.only):
        for delegate in DELEGATES:
            named = {"record": "model", "model": name, "origin": origin, "delegate": delegate}
            yield measure_model(model, inputs, delegate, options) | named


def models(only: str) -> Iterator[tuple[str, str, tuple[Any, tuple[Any, ...]]]]:
    """Nets whose names hold ``only``, and where they come from."""
    for name, example in built_torch_nets(only).items():
        yield name, "built, random weights", example
    for name in OWN_MODELS:
        if only in name:
            model, inputs, _ = getattr(importlib.import_module("lowtide.models"), name)()
            yield name, "lowtide.models, random weights", (model, inputs)


def measure_model(model: Any, inputs: Sequence[Any], delegate: str, options: argparse.Namespace) -> Row:
    """Try the means, export the plan for the smallest buffer, run before and after."""
    source = import_executorch(export_for_executorch(model, inputs, delegate=delegate))
    plans: list[PlanResult] = []
    plan = smallest_planner(seconds=options.seconds, seed=options.seed)

    def plan_smallest(graph: Graph, *, keep_order: bool, max_copies: int | None) -> PlanResult:
        plans.append(plan(graph, keep_order=keep_order, max_copies=max_copies))
        return plans[-1]

    analysis = analyze_executorch(source, plan_smallest)
    best = min((api.require_plan(result, source.graph) for result in plans), key=_footprint_bytes)
    export = export_executorch(source, best)
    checked = check_executorch(source, export.data, repeats=options.repeats, seed=options.seed)
    return analysis.as_dict() | {
        "planned_bytes": best.plan.footprint_bytes,
        "before_bytes": export.before_bytes,
        "after_bytes": export.after_bytes,
        "num_recomputes": export.num_recomputes,
        "tdi_percent": best.plan.tdi_percent,
        "file_bytes": len(source.data),
        "file_delta_bytes": export.size_delta_bytes,
        "is_exported": export.helps and checked.helps,
        "num_outputs": checked.num_outputs,
        "num_different_outputs": checked.num_different,
        "before": _record(checked.before),
        "after": _record(checked.after),
    }


def _footprint_bytes(verified: Any) -> tuple[int, int]:
    """Of plans of one footprint the quicker one is the better one."""
    return verified.plan.footprint_bytes, verified.plan.duration


def _record(run: ExecutorchRun) -> Row:
    return {
        "buffer_bytes": run.buffer_bytes,
        "method_bytes": run.method_bytes,
        "run_bytes": run.run_bytes,
        "cpu_seconds": run.seconds,
    }


_COLUMNS = ("model", "delegate", "buffer", "after", "saved", "offsets alone", "order", "recomputed", "TDI", "identical",
            "ms before", "ms after", "held, with a run")  # fmt: skip
_TEXTS = ("model", "delegate", "identical")


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table; sizes in KiB."""
    return markdown(_COLUMNS, _TEXTS, (_cells(row) for row in rows))


def _cells(row: Row) -> list[str]:
    before, after = row["before"], row["after"]
    different = row["num_different_outputs"]
    verdict = "op-bound" if row["is_op_bound"] else "nothing found"
    held = [kib(run["method_bytes"] + run["run_bytes"]) for run in (before, after)]
    return [
        row["model"],
        row["delegate"],
        kib(row["before_bytes"]),
        kib(row["after_bytes"]) if row["is_exported"] else verdict,
        saved_percent(row["after_bytes"], row["before_bytes"]) if row["is_exported"] else "0",
        saved_percent(row["by_offsets_bytes"], row["buffer_bytes"]),
        saved_percent(row["by_order_bytes"], row["buffer_bytes"]),
        str(row["num_recomputes"]),
        f"{row['tdi_percent']:.1f} %",
        "yes" if not different else f"{different} DIFFER",
        *(f"{1e3 * run['cpu_seconds']:.1f}" for run in (before, after)),
        " → ".join(held),
    ]


if __name__ == "__main__":
    raise SystemExit(main())
