"""``python -m benchmarks.training.matrix_report``: the section of docs/benchmarks.md about bits and peaks.

With ``--check`` nothing is written; exit code 1 if the page does not say what the results do.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.jsonl import read_jsonl
from benchmarks.marked import markdown_table, renew_pages, replace_marked
from benchmarks.training.matrix import RESULTS
from lowtide.units import format_bytes

__all__ = ["describe", "main", "render_section"]

_PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
_NAME = "matrix"
_TITLES = {
    "unet": "U-Net (GroupNorm)",
    "resnet50_like": "ResNet-50-like (BatchNorm)",
    "gpt2": "GPT-2, 8 layers",
    "gpt2-24": "GPT-2, 24 layers",
    "bert": "BERT, 6 layers",
    "swin": "Swin, drop path",
}
_COLUMNS = (
    "model",
    "planner",
    "optimizers",
    "types",
    "dropout",
    "budgets",
    "runs",
    "tensors compared",
    "that differ",
    "within budget",
    "beyond the plan",
)

Record = dict[str, Any]


def main() -> int:
    """Write the section, or check it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training.matrix_report", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if the page is not up to date")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    options = parser.parse_args()
    records = read_jsonl(options.results)
    page = _PAGE.read_text(encoding="utf-8")
    wanted = replace_marked(page, _NAME, render_section(records))
    return renew_pages({_PAGE: wanted}, program="benchmarks.training.matrix_report", is_check=options.check)


def render_section(records: Sequence[Record]) -> str:
    """What stands between the markers.

    Args:
        records: As ``python -m benchmarks.training.matrix`` writes them.
    """
    run = [record for record in records if "error" not in record]
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in run:
        groups.setdefault((record["model"], _planner(record)), []).append(record)
    lines = [
        "# Benchmarks: bits and peaks",
        "",
        (
            "Written by `python -m benchmarks.training.matrix_report` from "
            "[benchmarks/results/training_matrix.jsonl](../benchmarks/results/training_matrix.jsonl), which "
            "`python -m benchmarks.training.matrix` writes."
        ),
        "",
        describe(records),
        "",
        (
            "Budgets are of the plain peak. *Beyond the plan*: bytes at the peak that the malloc meter saw above the "
            "planned one, least and most; `compile` keeps a margin for them. Dropout *own*: what the model has by "
            "default."
        ),
        "",
        *markdown_table(_COLUMNS, (_cells(model, planner, group) for (model, planner), group in groups.items())),
        "",
        *_failures(records),
    ]
    return "\n".join(lines)


def describe(records: Sequence[Record]) -> str:
    """All of it in a sentence, for people who have never heard of the benchmark."""
    run = [record for record in records if "error" not in record]
    num_different = sum(record["num_different"] for record in run)
    num_within = sum(record["is_within_budget"] for record in run)
    return (
        f"{len(run)} trainings of three steps through `lowtide.compile`, each against plain PyTorch: of "
        f"{sum(record['num_compared'] for record in run):,} losses, gradients, weights, buffers and states of the "
        f"random number generator {num_different or 'none'} differ in a bit, and {num_within} of {len(run)} trainings "
        "stay within their budget."
    )


def _cells(model: str, planner: str, group: Sequence[Record]) -> tuple[str, ...]:
    beyond = [record["peak_bytes"] - record["planned_peak_bytes"] for record in group]
    percents = sorted({record["percent"] for record in group}, reverse=True)
    return (
        _TITLES.get(model, model),
        f"`{planner}`",
        _names(record["optimizer"] for record in group),
        _names(record["dtype"] for record in group),
        _names("own" if record["dropout"] is None else f"{record['dropout']:g}" for record in group),
        ", ".join(f"{percent} %" for percent in percents),
        str(len(group)),
        str(sum(record["num_compared"] for record in group)),
        str(sum(record["num_different"] for record in group)),
        f"{sum(record['is_within_budget'] for record in group)} of {len(group)}",
        f"{_signed_bytes(min(beyond))} to {_signed_bytes(max(beyond))}",
    )


def _failures(records: Sequence[Record]) -> list[str]:
    lines = [
        f"- {_TITLES.get(record['model'], record['model'])}, {record['optimizer']}, {record['dtype']}, "
        f"{record['percent']} %: {record['error']}"
        for record in records
        if "error" in record
    ]
    return ["Not run:", "", *lines, ""] if lines else []


def _planner(record: Record) -> str:
    return str(record.get("planner", "greedy"))


def _names(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def _signed_bytes(size_bytes: int) -> str:
    return format_bytes(size_bytes) if size_bytes >= 0 else f"-{format_bytes(-size_bytes)}"


if __name__ == "__main__":
    sys.exit(main())
