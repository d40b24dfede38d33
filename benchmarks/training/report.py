"""``python -m benchmarks.training.report``: docs/benchmarks.md and README's figures, from the result file alone.

Sections that others wrote into the page, from the first ``<!-- NAME: begin -->`` on, stay as they are.
With ``--check`` nothing is written; exit code 1 if a page does not say what the results do.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.marked import markdown_table, renew_pages, replace_marked
from lowtide.units import format_bytes

__all__ = ["Results", "main", "read_results", "render_page", "render_readme_block"]

_ROOT = Path(__file__).parents[2]
_RESULTS = _ROOT / "benchmarks" / "results" / "training.jsonl"
_PAGE = _ROOT / "docs" / "benchmarks.md"
_README = _ROOT / "README.md"

_CHECKPOINT, _LOWTIDE, _EAGER = "checkpoint per block", "lowtide", "eager"
_AT_CHECKPOINT_PEAK = "at checkpoint's peak"
_AIM = 0.5
_SHARED = ("system", "processor", "num_cores", "python", "packages", "num_threads", "seed", "num_rounds")
_TITLES = {
    "unet": "U-Net (GroupNorm)",
    "resnet50_like": "ResNet-50-like (BatchNorm)",
    "gpt2": "GPT-2, 8 layers",
    "bert": "BERT, 6 layers",
    "swin": "Swin, drop path",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One contender on one model; ``slow_down`` is its step time over eager's, one number per round."""

    model: str
    peer: str
    setting: str
    error: str | None
    peak_bytes: int
    budget_bytes: int | None
    num_tensors_different: dict[str, int]
    num_tensors_compared: int
    first_step_cpu_seconds: float
    slow_downs: tuple[float, ...]

    @property
    def slow_down(self) -> float:
        return median(self.slow_downs)

    @property
    def bits(self) -> str:
        kinds = ", ".join(f"{count} of {kind}" for kind, count in self.num_tensors_different.items())
        return f"no: {kinds}" if kinds else "yes"


@dataclass(frozen=True, slots=True)
class Results:
    """What one file holds: one run of the benchmark, or several of other models each, with the same options."""

    runs: tuple[dict[str, Any], ...]
    rows: tuple[Row, ...]
    least_slow_downs: dict[str, float]
    """By model: that of the shortest plan that can exist at checkpoint's peak, by the profiled costs."""

    @property
    def run(self) -> dict[str, Any]:
        """The first run; what all of them share is the same in each."""
        return self.runs[0]

    @property
    def models(self) -> list[str]:
        return list(dict.fromkeys(row.model for row in self.rows))

    def of(self, model: str, peer: str, setting: str = "") -> Row:
        (row,) = [row for row in self.rows if (row.model, row.peer, row.setting) == (model, peer, setting)]
        return row


def read_results(lines: Iterable[str]) -> Results:
    """Put runs, contenders and their rounds together.

    Raises:
        ValueError: The file holds runs that cannot stand in one table.
    """
    records = [json.loads(line) for line in lines]
    runs: list[dict[str, Any]] = []
    for record in records:
        if record["record"] == "run":
            runs.append({**record, "models": []})
        elif record["record"] == "contender" and record["model"] not in runs[-1]["models"]:
            runs[-1]["models"].append(record["model"])
    measured = [model for run in runs for model in run["models"]]
    if len(set(measured)) < len(measured):
        raise ValueError(f"a model is in two runs ({', '.join(measured)}): keep the lines of one")
    for name in _SHARED:
        if any(run[name] != runs[0][name] for run in runs):
            raise ValueError(f"runs with different {name}: measure them alike")
    rounds = [record for record in records if record["record"] == "round"]
    return Results(
        runs=tuple(runs),
        rows=tuple(_read_row(record, rounds) for record in records if record["record"] == "contender"),
        least_slow_downs={
            record["model"]: 1 + record["lower_bound_tdi_percent"] / 100
            for record in records
            if record["record"] == "bound"
        },
    )


def render_page(results: Results) -> str:
    """docs/benchmarks.md."""
    return "\n".join(
        [
            "# Benchmarks: training",
            "",
            (
                "Written by `python -m benchmarks.training.report` from "
                "[benchmarks/results/training.jsonl](../benchmarks/results/training.jsonl), which "
                "`python -m benchmarks.training` writes: every number below is in that file."
            ),
            "",
            "## How it was measured",
            "",
            *_describe_runs(results),
            "",
            "## At the peak of checkpoint per block",
            "",
            (
                "What `torch.utils.checkpoint` around every block reaches is given to lowtide as its budget in bytes. "
                f"Aim: at most half of checkpoint's slow-down over eager. {_judge(results)}\n\n"
                "*No plan below*: proven by `python -m benchmarks.training.bounds` for every plan that keeps the order "
                "of first executions, whoever makes it, by the profiled durations of the operations alone. Where that "
                "is above the aim, recomputation cannot reach it."
            ),
            "",
            *_checkpoint_table(results),
            "",
            *[line for model in results.models for line in _model_section(results, model)],
            "## What each peer cannot do",
            "",
            *[f"- **{name}**: {limits}" for name, limits in _limits().items()],
            "",
            "Not measured here: inductor, which fuses operations (another program than eager, and other bits); GPUs.",
            "",
        ]
    )


def render_readme_block(results: Results) -> str:
    """What stands between the markers in README."""
    header = ("", "plain", "lowtide, 60 %", "lowtide, 45 %", "checkpoint per block", "lowtide, same peak")
    rows = [
        (
            _TITLES.get(model, model),
            format_bytes(results.of(model, _EAGER).peak_bytes),
            *(_cell(results.of(model, _LOWTIDE, budget)) for budget in ("60%", "45%")),
            _cell(results.of(model, _CHECKPOINT)),
            _cell(results.of(model, _LOWTIDE, _AT_CHECKPOINT_PEAK)),
        )
        for model in results.models
    ]
    equal = [row for row in results.rows if row.peer == _LOWTIDE and row.error is None]
    num_equal = sum(not row.num_tensors_different for row in equal)
    run = results.run
    return "\n".join(
        [
            *markdown_table(header, rows),
            "",
            (
                f"Peak of a training step and its time relative to plain PyTorch. {num_equal} of {len(equal)} lowtide "
                f"runs are equal to plain PyTorch to the bit. {run['processor']}, {run['num_threads']} thread, "
                f"torch {run['packages']['torch']}; median of {run['num_rounds']} interleaved steps. "
                "Reproduce: `python -m benchmarks.training` (twenty minutes of CPU time); wins and losses: "
                "[docs/benchmarks.md](docs/benchmarks.md)."
            ),
            "",
        ]
    )


def main() -> int:
    """Write both pages, or check them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training.report", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if a page is not up to date")
    parser.add_argument("--results", type=Path, default=_RESULTS, metavar="FILE")
    options = parser.parse_args()
    results = read_results(options.results.read_text(encoding="utf-8").splitlines())
    readme = _README.read_text(encoding="utf-8")
    page = _PAGE.read_text(encoding="utf-8") if _PAGE.is_file() else ""
    wanted = {
        _PAGE: render_page(results) + sections_of_others(page),
        _README: replace_marked(readme, "benchmarks", render_readme_block(results)),
    }
    return renew_pages(wanted, program="benchmarks.training.report", is_check=options.check)


def sections_of_others(page: str) -> str:
    """What stands in the page behind ours: from the first marker of a section on."""
    marker = re.search(r"\n<!-- [a-z ]+: begin -->\n", page)
    return "" if marker is None else page[marker.start() :]


def _read_row(record: dict[str, Any], rounds: Sequence[dict[str, Any]]) -> Row:
    own_rounds = [item for item in rounds if item["model"] == record["model"]]
    key = f"{record['peer']}|{record['setting']}"
    ratios = [
        item["cpu_seconds"][key] / mean(item["eager_cpu_seconds"]) for item in own_rounds if key in item["cpu_seconds"]
    ]
    return Row(
        model=record["model"],
        peer=record["peer"],
        setting=record["setting"],
        error=record.get("error"),
        peak_bytes=record.get("peak_bytes", 0),
        budget_bytes=record.get("budget_bytes"),
        num_tensors_different=record.get("num_tensors_different", {}),
        num_tensors_compared=record.get("num_tensors_compared", 0),
        first_step_cpu_seconds=record.get("first_step_cpu_seconds", 0.0),
        slow_downs=tuple(ratios) or (1.0,),  # eager itself
    )


def _describe_runs(results: Results) -> list[str]:
    run = results.run
    packages = ", ".join(f"{package} {version}" for package, version in run["packages"].items())
    return [
        (
            f"- {run['processor']}, {run['num_cores']} cores, {run['system']}, Python {run['python']}, {packages}. "
            "Other work ran on the machine, so CPU time is what counts here, not the clock."
        ),
        *(
            f"- {', '.join(run['models'])}: started {run['started']}, "
            f"load average {run['load_average_at_start'][0]}, commit {run['commit']}."
            for run in results.runs
        ),
        (
            f"- {run['num_threads']} thread, seed {run['seed']}, {run['dtype']}, {run['optimizer']}; `lowtide.models` "
            'with their default options; lowtide with `counts="compiled"`, budgets relative to its own plain peak.'
        ),
        (
            "- Peak: most bytes from malloc from before forward to after backward beyond those before, counted by a "
            "preloaded meter in a process of its own per model, over steps 2 and 3. The first step, in which compilers "
            "compile and lowtide profiles and plans, is reported apart, in CPU seconds."
        ),
        (
            f"- Time: CPU time of forward, loss and backward relative to eager. {run['num_rounds']} rounds, in each of "
            "which every contender takes one step in random order and eager three; median of the rounds' ratios, "
            "smallest and largest in brackets."
        ),
        "- Bits: loss, gradients, weights, buffers and RNG state of three optimizer steps against eager's.",
    ]


def _checkpoint_table(results: Results) -> list[str]:
    rows = []
    for model in results.models:
        checkpoint = results.of(model, _CHECKPOINT)
        planned = results.of(model, _LOWTIDE, _AT_CHECKPOINT_PEAK)
        rows.append(
            (
                _TITLES.get(model, model),
                format_bytes(results.of(model, _EAGER).peak_bytes),
                format_bytes(checkpoint.peak_bytes),
                _time_cell(checkpoint),
                checkpoint.bits,
                "no plan" if planned.error else format_bytes(planned.peak_bytes),
                "" if planned.error else _time_cell(planned),
                "" if planned.error else planned.bits,
                _least_cell(results, model),
                "no plan" if planned.error else "yes" if _reaches_aim(results, model) else "no",
            )
        )
    return markdown_table(
        (
            "model",
            "eager peak",
            "checkpoint peak",
            "time",
            "bit-equal",
            "lowtide peak",
            "time",
            "bit-equal",
            "no plan below",
            "aim reached",
        ),
        rows,
    )


def _least_cell(results: Results, model: str) -> str:
    least = results.least_slow_downs.get(model)
    return "" if least is None else f"×{least:.2f}"


def _reaches_aim(results: Results, model: str) -> bool:
    checkpoint = results.of(model, _CHECKPOINT)
    planned = results.of(model, _LOWTIDE, _AT_CHECKPOINT_PEAK)
    fits = planned.error is None and planned.peak_bytes <= checkpoint.peak_bytes
    return fits and planned.slow_down - 1 <= _AIM * (checkpoint.slow_down - 1)


def _judge(results: Results) -> str:
    reached = [model for model in results.models if _reaches_aim(results, model)]
    missed = [model for model in results.models if model not in reached]
    words = f"Reached on {len(reached)} of {len(results.models)} models"
    return f"{words}; missed on {', '.join(_TITLES.get(model, model) for model in missed)}." if missed else f"{words}."


def _model_section(results: Results, model: str) -> list[str]:
    eager = results.of(model, _EAGER)
    rows = []
    for row in results.rows:
        if row.model != model:
            continue
        name = f"{row.peer}, {row.setting}" if row.setting else row.peer
        if row.error is not None:
            rows.append((name, "no plan", "", "", "", "", ""))
            continue
        budget = "" if row.budget_bytes is None else format_bytes(row.budget_bytes)
        over = row.budget_bytes is not None and row.peak_bytes > row.budget_bytes
        rows.append(
            (
                name,
                budget,
                format_bytes(row.peak_bytes) + (" (above its budget)" if over else ""),
                f"{100 * row.peak_bytes / eager.peak_bytes:.0f} %",
                "1" if row.peer == _EAGER else _time_cell(row),
                row.bits,
                f"{row.first_step_cpu_seconds:.1f} s",
            )
        )
    header = ("", "budget", "peak", "of eager", "time", "bit-equal", "first step")
    errors = [
        f"No plan for lowtide, {row.setting}: {row.error}" for row in results.rows if row.model == model and row.error
    ]
    body = [f"## {_TITLES.get(model, model)}", "", *markdown_table(header, rows), ""]
    return [*body, *[line for error in errors for line in (error, "")]]


def _cell(row: Row) -> str:
    if row.error is not None:
        return "no plan"
    marks = "" if not row.num_tensors_different else ", bits differ"
    over = row.budget_bytes is not None and row.peak_bytes > row.budget_bytes
    return f"{format_bytes(row.peak_bytes)}{' (above its budget)' if over else ''}, ×{row.slow_down:.2f}{marks}"


def _time_cell(row: Row) -> str:
    return f"×{row.slow_down:.2f} ({min(row.slow_downs):.2f}-{max(row.slow_downs):.2f})"


def _limits() -> dict[str, str]:
    from benchmarks.training.peers import PEERS

    return {peer.name: peer.limits for peer in PEERS}


if __name__ == "__main__":
    sys.exit(main())
