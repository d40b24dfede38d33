"""``python -m benchmarks.readme``: README's figures of bits, eager training and edge models, from the results alone.

With ``--check`` nothing is written; exit code 1 if README does not say what the results do. (The figures of compiled
training are written by ``python -m benchmarks.training.report``.)
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.jsonl import read_jsonl
from benchmarks.marked import markdown_table, renew_pages, replace_marked
from benchmarks.training.matrix_report import describe
from lowtide.units import format_bytes

__all__ = ["main", "render_edge", "render_matrix", "render_online"]

_ROOT = Path(__file__).parents[1]
_RESULTS = _ROOT / "benchmarks" / "results"
_README = _ROOT / "README.md"
_NUM_SHOWN = 5
_CHECKPOINT = "checkpoint per block"
_COLUMNS = ("coop 0.5", "coop 0.3", _CHECKPOINT, "coop at checkpoint's peak")
_TITLES = {"gpt2 6x128": "GPT-2, 6 layers", "resnet with batch norm": "ResNet (BatchNorm)"}

Record = Mapping[str, Any]


def main() -> int:
    """Write README's three blocks, or check them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.readme", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if README is not up to date")
    options = parser.parse_args()
    before = _README.read_text(encoding="utf-8")
    after = replace_marked(before, "matrix", render_matrix(_read("training_matrix.jsonl")))
    after = replace_marked(after, "online", render_online(_read("online.jsonl")))
    edge = (_read(f"edge_{runtime}.jsonl") for runtime in ("tflite", "onnx", "executorch"))
    after = replace_marked(after, "edge", render_edge(*edge))
    return renew_pages({_README: after}, program="benchmarks.readme", is_check=options.check)


def render_matrix(records: Sequence[Record]) -> str:
    """Whether it is the same to the bit, in a paragraph."""

    def all_of(name: str) -> str:
        return ", ".join(sorted({str(record[name]) for record in records}))

    percents = [record["percent"] for record in records]
    return (
        f"{describe(records)} Models: {all_of('model')}; optimizers: {all_of('optimizer')}; types: {all_of('dtype')}; "
        f"budgets: {max(percents)} to {min(percents)} % of the plain peak. Reproduce: "
        "`python -m benchmarks.training.matrix`; all of them: "
        "[docs/benchmarks.md](docs/benchmarks.md#benchmarks-bits-and-peaks).\n"
    )


def render_online(records: Sequence[Record]) -> str:
    """Training within ``lowtide.budget`` beside checkpointing, as a table and what it means."""
    run = next(record for record in records if record["record"] == "run")
    programs = [record for record in records if record["record"] == "program"]
    settings = [record for record in records if record["record"] == "setting" and "error" not in record]
    rounds = [record for record in records if record["record"] == "round"]
    rows = []
    for program in programs:
        name = program["program"]
        cells = [
            _online_cell(setting, [item for item in rounds if item["program"] == name])
            for label in _COLUMNS
            for setting in settings
            if (setting["program"], setting["setting"]) == (name, label)
        ]
        rows.append((_TITLES.get(name, name), format_bytes(program["peak_bytes"]), *cells))
    ours = [setting for setting in settings if setting.get("policy")]
    num_equal = sum(setting["num_tensors_different"] == 0 for setting in ours)
    header = ("", "plain", "budget, r 0.5", "budget, r 0.3", "checkpoint per block", "budget, same peak")
    return "\n".join([*markdown_table(header, rows), ""]) + (
        "\nArena of a training step and its CPU time relative to plain PyTorch; r is how far the budget lies between "
        "what must stay (0) and the plain peak (1). "
        f"{num_equal} of {len(ours)} runs within a budget, those of other policies included, are equal to plain "
        f"PyTorch to the bit. {run['processor']}, {run['num_threads']} thread, torch {run['packages']['torch']}; "
        f"median of {run['num_rounds']} interleaved rounds, on a machine that others used. Reproduce: "
        "`python -m benchmarks.online`; all of them: [docs/budget-benchmarks.md](docs/budget-benchmarks.md).\n"
    )


def render_edge(tflite: Sequence[Record], onnx: Sequence[Record], executorch: Sequence[Record]) -> str:
    """What plans make of edge models: the largest gains, and how many there are without any."""
    models = [record for record in tflite if record["record"] == "model"]
    smaller = [model for model in models if model["is_exported"] and "after" in model["micro"]]
    smaller.sort(key=_saved_percent, reverse=True)
    rows = [
        (
            model["model"],
            format_bytes(model["micro"]["before"]["total_bytes"]),
            format_bytes(model["micro"]["after"]["total_bytes"]),
            f"{_saved_percent(model):.1f} %",
            str(model["num_recomputes"]),
            f"{model['tdi_percent']:.1f} %",
        )
        for model in smaller[:_NUM_SHOWN]
    ]
    num_equal = sum(model["micro"]["num_different_outputs"] == 0 for model in smaller)
    others = [model for model in models if model not in smaller]
    num_op_bound = sum(model["is_op_bound"] for model in others)
    header = ("on TensorFlow Lite Micro", "arena", "planned", "less", "recomputed", "TDI")
    return "\n".join([*markdown_table(header, rows), ""]) + (
        f"\nThe {len(rows)} largest gains; TDI is the [total duration increase](docs/glossary.md) by the cost model. "
        f"Of {len(models)} models the arena of {len(smaller)} becomes smaller, by "
        f"{median(map(_saved_percent, smaller)):.0f} % in the median, with the same outputs to the bit in {num_equal} "
        f"of {len(smaller)}. Of the other {len(others)}, {num_op_bound} are op-bound: one operator needs what lives at "
        f"the peak, and no plan helps. {_onnx_sentence(onnx)} {_executorch_sentence(executorch)} Reproduce: "
        "`python -m benchmarks.edge`, `python -m benchmarks.edge.onnx_models`, `python -m "
        "benchmarks.edge.executorch_models`; all of them: [docs/edge-benchmarks.md](docs/edge-benchmarks.md).\n"
    )


def _online_cell(setting: Record, rounds: Iterable[Record]) -> str:
    label = setting["setting"]
    slow_down = median(item["cpu_seconds"][label] / mean(item["eager_cpu_seconds"]) for item in rounds)
    marks = "" if setting["num_tensors_different"] == 0 else ", bits differ"
    return f"{format_bytes(setting['peak_bytes'])}, ×{slow_down:.2f}{marks}"


def _saved_percent(model: Record) -> float:
    before, after = (model["micro"][when]["total_bytes"] for when in ("before", "after"))
    return 100.0 * (1 - after / before)


def _onnx_sentence(onnx: Sequence[Record]) -> str:
    """How the files for every machine do on ONNX Runtime, losses counted."""
    runs = [record for record in onnx if record["record"] == "model" and record["level"] == "portable"]
    saved = [100.0 * (1 - run["after"]["run_bytes"] / run["default"]["run_bytes"]) for run in runs]
    num_worse = sum(percent <= 0 for percent in saved)
    return (
        f"On ONNX Runtime, {len(runs) - num_worse} of {len(runs)} models take less memory in a run than under its "
        f"default options, {median(saved):.0f} % in the median, most of it by options alone; {num_worse} would "
        "take more."
    )


def _executorch_sentence(executorch: Sequence[Record]) -> str:
    """How nets do on ExecuTorch's own kernels; what XNNPACK takes is not planned."""
    runs = [record for record in executorch if record["record"] == "model" and record["delegate"] == "portable"]
    saved = [100.0 * (1 - run["after_bytes"] / run["before_bytes"]) for run in runs if run["is_exported"]]
    return (
        f"On ExecuTorch's own kernels, the planned buffer of {len(saved)} of {len(runs)} nets becomes smaller, by "
        f"{median(saved):.0f} % in the median."
    )


def _read(name: str) -> list[Record]:
    return read_jsonl(_RESULTS / name)


if __name__ == "__main__":
    sys.exit(main())
