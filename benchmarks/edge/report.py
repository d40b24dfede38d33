"""``python -m benchmarks.edge.report``: docs/edge-benchmarks.md, from the result files alone.

With ``--check`` nothing is written; exit code 1 if the page does not say what the results do.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.edge import bands, executorch_models, onnx_bands, onnx_models, rows
from benchmarks.edge.runs import Row, Table, markdown
from benchmarks.edge.summaries import (
    Summary,
    summarize_executorch,
    summarize_onnx,
    summarize_onnx_bands,
    summarize_tflite,
    summarize_tflite_bands,
)
from benchmarks.jsonl import read_jsonl
from benchmarks.marked import renew_pages

__all__ = ["main", "render"]

_ROOT = Path(__file__).parents[2]
_RESULTS = _ROOT / "benchmarks" / "results"
_PAGE = _ROOT / "docs" / "edge-benchmarks.md"

Records = Sequence[Row]


@dataclass(frozen=True, slots=True)
class Section:
    """One result file on the page.

    Attributes:
        file: Its name without the ending.
        title: Of the section.
        module: What measures it.
        table: Turns its rows into Markdown.
        about: What the columns are.
    """

    file: str
    title: str
    module: str
    table: Table
    about: str


_STAR = (
    "A star: weights unpacked in the file, for TensorFlow Lite Micro to run it (of the segmenters, MediaPipe's "
    "transposed convolution as the built-in one, too)."
)
SECTIONS = (
    Section(
        "edge_tflite",
        "Plans for .tflite",
        "benchmarks.edge",
        rows.table,
        "MediaPipe's models, and nets of known families with random weights. KiB of `arena_used_bytes` with all its "
        "parts, measured; time is that of the reference kernels. `offsets alone` and `order` are planned shares of "
        f"tensors and scratch; `saved` and `in place` are measured shares of the arena. {_STAR} "
        "[What plans do, and why some models gain nothing](edge.md#measured).",
    ),
    Section(
        "edge_bands",
        "Row bands of .tflite",
        "benchmarks.edge.bands",
        bands.table,
        "KiB of all parts of the arena, then of tensors and scratch, which are what was planned; time, persistent "
        "part and file beside the original's; stretches of operators and numbers of bands; LiteRT's arena. The "
        "`esrgan_like` nets are ESRGAN's trunk (Wang et al. 2018) at one resolution, of that many pixels a side. "
        f"{_STAR} [Row bands](edge.md#row-bands).",
    ),
    Section(
        "edge_onnx",
        "Plans for .onnx",
        "benchmarks.edge.onnx_models",
        onnx_models.table,
        "Models of rapidocr-onnxruntime and silero-vad, and nets of known families with random weights. KiB that "
        "malloc hands out at the peak of a run, weights apart: under the default options, under the recipe alone, "
        "with the plan. `identical`: to the original under the recipe; `default too`: also to the default options. "
        "`weights`: what the open session holds, before and after. [Recipe, levels](edge-onnx.md).",
    ),
    Section(
        "edge_onnx_bands",
        "Row bands of .onnx",
        "benchmarks.edge.onnx_bands",
        onnx_bands.table,
        "KiB at the peak of a run, as above; `planned` is the plan's peak; `session`: what the open session holds, "
        "before and in bands. [Row bands on ONNX Runtime](edge-onnx.md#row-bands).",
    ),
    Section(
        "edge_executorch",
        "Plans for ExecuTorch",
        "benchmarks.edge.executorch_models",
        executorch_models.table,
        "The built nets of the .onnx table as torch modules, and some of `lowtide.models`, with random weights. KiB "
        "of the planned buffer in the file before and after; `offsets alone` and `order` are planned shares; `held, "
        "with a run`: what malloc hands out for the open program and one run, before and after, without the file. "
        "[How programs are planned](edge-executorch.md).",
    ),
)


def main() -> int:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.edge.report", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if the page is not up to date")
    parser.add_argument("--results", type=Path, default=_RESULTS, metavar="FOLDER")
    options = parser.parse_args()
    text = render({section.file: _read(options.results / f"{section.file}.jsonl") for section in SECTIONS})
    return renew_pages({_PAGE: text}, program="benchmarks.edge.report", is_check=options.check)


def render(records_by_file: Mapping[str, Records]) -> str:
    """The page's text.

    Args:
        records_by_file: Of each section's file: the record of the run, then one for each model.
    """
    models = {
        file: [record for record in records if record["record"] == "model"] for file, records in records_by_file.items()
    }
    plans, onnx_plans = models["edge_tflite"], models["edge_onnx"]
    summaries: dict[str, Summary] = {
        "edge_tflite": summarize_tflite(plans),
        "edge_bands": summarize_tflite_bands(models["edge_bands"], plans),
        "edge_onnx": summarize_onnx(onnx_plans),
        "edge_onnx_bands": summarize_onnx_bands(models["edge_onnx_bands"], onnx_plans),
        "edge_executorch": summarize_executorch(models["edge_executorch"]),
    }
    lines = [
        "# Benchmarks: edge models",
        "",
        (
            "Written by `python -m benchmarks.edge.report` from the files named below: every number here is in "
            "them, or counted from them. Guides: [.tflite](edge.md), [.onnx](edge-onnx.md), "
            "[ExecuTorch](edge-executorch.md)."
        ),
        "",
        "## How it was measured",
        "",
        *_machines(records_by_file),
        (
            "- Time is CPU time on one thread, the shortest of the repeats; where the load was above the number of "
            "cores, others used the machine, and times scatter. Sizes and bits repeat. Outputs are compared for "
            "random inputs."
        ),
        "- Plans are for the smallest memory that is found within the time of a search, on one thread.",
        "",
        _runs_table(records_by_file),
        "",
    ]
    for section in SECTIONS:
        lines += _section(section, summaries[section.file], models[section.file])
    return "\n".join(lines)


def _machines(records_by_file: Mapping[str, Records]) -> list[str]:
    """An item for each machine, and the files that come from it."""
    files: dict[str, list[str]] = {}
    for file, run in _runs(records_by_file):
        processor = f"{run['processor']}, " if "processor" in run else ""
        machine = f"{processor}{run['num_cores']} cores, {run['system']}, Python {run['python']}"
        files.setdefault(machine, []).append(file)
    return [f"- {machine}: {', '.join(dict.fromkeys(of_it))}." for machine, of_it in files.items()]


def _runs_table(records_by_file: Mapping[str, Records]) -> str:
    lines = []
    for file, run in _runs(records_by_file):
        packages = ", ".join(f"{package} {version}" for package, version in run["packages"].items())
        load = str(run["load_average_at_start"][0])
        figures = (f"{run['seconds']:g} s", str(run["repeats"]))
        lines.append(
            (f"[{file}]({_link(file)})", run["started"], run.get("commit", "not recorded"), load, *figures, packages)
        )
    columns = ("file", "started", "commit", "load average", "a search", "repeats", "packages")
    return markdown(columns, ("file", "started", "commit", "packages"), lines)


def _section(section: Section, summary: Summary, models: Records) -> list[str]:
    lines = [
        f"## {section.title}",
        "",
        f"`python -m {section.module}` writes [{section.file}.jsonl]({_link(section.file)}). {section.about}",
        "",
        section.table(models),
        "",
    ]
    for subject, statements in summary.items():
        if statements:
            lines += [f"{subject}:", "", *(f"- {statement}" for statement in statements), ""]
    return lines


def _runs(records_by_file: Mapping[str, Records]) -> list[tuple[str, Row]]:
    """The records of runs, of which a file may hold several, and whose they are."""
    return [
        (section.file, record)
        for section in SECTIONS
        for record in records_by_file[section.file]
        if record["record"] == "run"
    ]


def _link(file: str) -> str:
    return f"../benchmarks/results/{file}.jsonl"


def _read(path: Path) -> Records:
    return read_jsonl(path)


if __name__ == "__main__":
    sys.exit(main())
