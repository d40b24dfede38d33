"""``python -m benchmarks.comparison.report``: the section on comparisons of docs/benchmarks.md, from the results alone.

With ``--check`` nothing is written; exit code 1 if the page does not say what the results do.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.comparison.__main__ import MODELS, RESULTS, RUNS, results_of
from benchmarks.jsonl import read_jsonl
from benchmarks.marked import markdown_table, renew_pages, replace_marked
from lowtide.ir.plan import increase_percent
from lowtide.units import format_bytes

__all__ = ["main", "render_section"]

_PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
_NAME = "comparison"
_TITLES = {"unet": "U-Net (GroupNorm)", "gpt2": "GPT-2, 8 layers"}
_MEASURED = ("lowtide.compile", "lowtide.budget", "amb-aot_eager", "amb-inductor", "checkpoint")
_BOUND = "bound, given order"
_ABOUT_MEASURED = (
    "Time beyond eager, and peak. Budgets that are no round number are what a peer took. `amb-inductor` fuses "
    "operations: it is another program, with other bits, and can be faster than eager itself. Empty: not run."
)

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Point:
    """Memory and time of a row.

    Attributes:
        row: As it is in the file.
        percent: Time beyond plain, in percent.
    """

    row: Record
    percent: float

    @property
    def needed_bytes(self) -> int:
        return int(self.row["needed_bytes"])

    @property
    def method(self) -> str:
        return str(self.row["method"])


def main() -> int:
    """Write the section, or check it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.comparison.report", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if the page is not up to date")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER")
    options = parser.parse_args()
    rows_by_model = {model: _read(results_of(options.results, model))[1:] for model in MODELS}
    page = _PAGE.read_text(encoding="utf-8")
    wanted = replace_marked(page, _NAME, render_section(_read(options.results / RUNS), rows_by_model))
    return renew_pages({_PAGE: wanted}, program="benchmarks.comparison.report", is_check=options.check)


def render_section(runs: Sequence[Record], rows_by_model: Mapping[str, Sequence[Record]]) -> str:
    """What stands between the markers.

    Args:
        runs: One for each time that it was run.
        rows_by_model: As ``lowtide compare -o`` writes them, without the header.
    """
    files = ", ".join(f"[{model}](../benchmarks/results/comparison_{model}.jsonl)" for model in rows_by_model)
    lines = [
        "# Benchmarks: everybody beside each other",
        "",
        (
            "Written by `python -m benchmarks.comparison.report` from the rows of `lowtide compare --measure` on "
            f"{files}, which `python -m benchmarks.comparison` writes: every number below is in these files. "
            "[What the rows are](compare.md)."
        ),
        "",
        *_describe(runs),
        "",
        "## On one cost model",
        "",
        (
            "TDI by profiled durations, and what a budget has to allow, addresses included. Bound: no plan in the "
            "given order takes less. Planner, policy: the best of lowtide's. `amb`: PyTorch's "
            "`activation_memory_budget`, at the best of 21 ratios for the budget; `checkpoint`: "
            "`torch.utils.checkpoint` around every block. Both as plans of the same graph, replayed by the referee."
        ),
        "",
        *_modelled_verdict(rows_by_model),
    ]
    for model, rows in rows_by_model.items():
        lines += ["", f"### {_TITLES[model]}", "", *_modelled_table(rows)]
    lines += ["", "## Really run", "", _ABOUT_MEASURED, "", *_measured_verdict(rows_by_model)]
    for model, rows in rows_by_model.items():
        lines += ["", f"### {_TITLES[model]}, trained", "", *_measured_table(rows)]
    return "\n".join([*lines, ""])


def _describe(runs: Sequence[Record]) -> list[str]:
    run = runs[0]
    packages = ", ".join(f"{package} {version}" for package, version in run["packages"].items())
    loads = [run["load_average_at_start"][0] for run in runs]
    times = ", ".join(f"{run['started']} at {run['commit']}" for run in runs)
    return [
        f"- {run['processor']}, {run['num_cores']} cores, {run['system']}, Python {run['python']}, {packages}.",
        f"- Started {times}; load average {min(loads):.1f} to {max(loads):.1f}: others used the machine.",
        (
            "- Planners and bounds had 10 s each on the clock. Really run: four steps in a process of its own, one "
            "thread; most bytes from malloc in forward and backward; CPU time of a step, median of three. Processes "
            "follow one another, so at such loads times are off by tens of percent, the same peer's from row to row, "
            "too; [training](#benchmarks-training) interleaves steps instead. Peaks and bits repeat."
        ),
    ]


# ------------------------------------------------------------------------------------------------ on the cost model
def _modelled_table(rows: Sequence[Record]) -> list[str]:
    table = []
    for budget in _budgets(row for row in rows if row["kind"] == "peer"):
        here = [row for row in rows if row["budget"] == budget]
        bound = next((row for row in here if row["method"] == _BOUND), None)
        planner, policy = (_best(here, kind) for kind in ("planner", "policy"))
        peers = [_best(here, "peer", method) for method in ("amb", "checkpoint")]
        size = next(row["budget_bytes"] for row in here if row["kind"] == "planner")
        proven = None if bound is None else bound["lower_bound_duration"]
        table.append(
            (
                f"{budget}, {format_bytes(size)}",
                "none" if proven is None or bound is None else _percent(_increase(bound, proven)),
                *(_place(point, names_it=True) for point in (planner, policy)),
                *(_place(point, names_it=False) for point in peers),
            )
        )
    return markdown_table(("budget", "bound", "planner", "policy", "`amb`", "`checkpoint`"), table)


def _modelled_verdict(rows_by_model: Mapping[str, Sequence[Record]]) -> list[str]:
    """Losses first: where a peer is faster within the same budget, and by how much."""
    planners, policies = (_against_peers(rows_by_model, kind) for kind in ("planner", "policy"))
    lines = []
    for noun, (behind, leads) in (("planner", planners), ("online policy", policies)):
        losses = f"behind a peer in {len(behind)}: {'; '.join(behind)}" if behind else "behind a peer in none"
        ahead = f", ahead in {len(leads)} by {min(leads):.2f} to {max(leads):.2f} points of TDI" if leads else ""
        lines.append(
            f"- The best {noun}, in {len(behind) + len(leads)} cells in which a peer finds something: {losses}{ahead}."
        )
    return lines


def _against_peers(rows_by_model: Mapping[str, Sequence[Record]], kind: str) -> tuple[list[str], list[float]]:
    """Where the best of a kind is slower than a peer within the same budget, in words; elsewhere its lead in points."""
    behind, leads = [], []
    for model, rows in rows_by_model.items():
        for budget in _budgets(rows):
            here = [row for row in rows if row["budget"] == budget]
            ours = _best(here, kind)
            for method in ("amb", "checkpoint"):
                theirs = _best(here, "peer", method)
                if theirs is None:
                    continue
                if ours is not None and ours.percent <= theirs.percent:
                    leads.append(theirs.percent - ours.percent)
                    continue
                lag = "nothing found" if ours is None else f"{ours.percent - theirs.percent:.2f} points"
                behind.append(f"{_TITLES[model]} within {budget}, `{method}` ({lag})")
    return behind, leads


# ------------------------------------------------------------------------------------------------ really run
def _measured_table(rows: Sequence[Record]) -> list[str]:
    measured = [row for row in rows if row["kind"] == "measured"]
    eager_bits = next((row["bits"] for row in measured if row["method"] == "eager"), None)
    table = []
    for budget in ("", *_budgets(measured)):
        here = {row["method"]: row for row in measured if row["budget"] == budget}
        cells = [_measured_cell(here.get(method), eager_bits) for method in _MEASURED]
        size = next((row["budget_bytes"] for row in here.values() if row["budget_bytes"]), None)
        table.append((f"{budget}, {format_bytes(size)}" if size else "without", *cells))
    return markdown_table(("budget", *(f"`{method}`" for method in _MEASURED)), table)


def _measured_cell(row: Record | None, eager_bits: str | None) -> str:
    if row is None:
        return ""
    point = _point(row)
    if point is None:
        return f"none ({row['outcome']})"
    marks = ["over budget"] if row["outcome"] == "over budget" else []
    if row["bits"] != eager_bits:
        marks.append("bits differ")
    return ", ".join([_place(point, names_it=False), *marks])


def _measured_verdict(rows_by_model: Mapping[str, Sequence[Record]]) -> list[str]:
    """A peer's point against the fastest of ``lowtide.compile`` that needs no more memory."""
    behind, unmet, num_ahead, num_over = [], [], 0, 0
    for model, rows in rows_by_model.items():
        points = [point for row in rows if row["kind"] == "measured" and (point := _point(row))]
        ours = [point for point in points if point.method == "lowtide.compile"]
        unmet += [
            f"{_TITLES[model]} within {row['budget']}"
            for row in rows
            if row["method"] == "lowtide.compile" and _point(row) is None
        ]
        num_over += sum(point.method == "lowtide.budget" and point.row["outcome"] == "over budget" for point in points)
        for theirs in points:
            if theirs.method == "eager" or theirs.method.startswith("lowtide."):
                continue
            fitting = [point for point in ours if point.needed_bytes <= theirs.needed_bytes]
            best = min(fitting, key=lambda point: point.percent, default=None)
            if best is not None and best.percent <= theirs.percent:
                num_ahead += 1
                continue
            at = f"{_TITLES[model]}, `{theirs.method}` {theirs.row['budget'] or 'without a budget'} ({_place(theirs)})"
            lead = "no run of ours needs so little" if best is None else f"{best.percent - theirs.percent:.1f} points"
            behind.append(f"{at}: {lead}")
    return [
        (
            "Each point of PyTorch's means against the fastest run of `lowtide.compile` that needs no more memory, "
            "which favours whoever ran more often, here lowtide, by what times scatter. A run below eager's time is "
            "partly that, and partly page faults: malloc gives memory back after every step of eager's, and the next "
            "one takes it again (on U-Net thousands of faults a step; within a budget, none after the second)."
        ),
        "",
        f"- behind at {len(behind)} of {len(behind) + num_ahead}{': ' if behind else ''}{'; '.join(behind)};",
        f"- no slower at {num_ahead};",
        *([f"- without a plan of ours: {'; '.join(unmet)};"] if unmet else []),
        f"- {num_over} runs of `lowtide.budget` needed more than their budget: what kernels take beside its arena.",
    ]


# ------------------------------------------------------------------------------------------------ words and figures
def _read(path: Path) -> list[Record]:
    return read_jsonl(path)


def _budgets(rows: Iterable[Record]) -> list[str]:
    """As they were written, the largest first."""
    found = {row["budget"] for row in rows if row["budget"]}
    return sorted(found, key=lambda budget: float(budget.rstrip("%")), reverse=True)


def _increase(row: Record, duration: int) -> float:
    return increase_percent(duration, row["baseline_duration"])


def _point(row: Record) -> Point | None:
    if row["needed_bytes"] is None or row["duration"] is None:
        return None
    return Point(row, 0.0 if row["method"] == "eager" else _increase(row, row["duration"]))


def _best(rows: Iterable[Record], kind: str, method: str | None = None) -> Point | None:
    points = [
        point for row in rows if row["kind"] == kind and method in (None, row["method"]) and (point := _point(row))
    ]
    return min(points, key=lambda point: (point.percent, point.needed_bytes, point.row["seconds"]), default=None)


def _place(point: Point | None, *, names_it: bool = False) -> str:
    if point is None:
        return "none"
    name = f" (`{point.method}`)" if names_it else ""
    return f"{_percent(point.percent)}, {format_bytes(point.needed_bytes)}{name}"


def _percent(percent: float) -> str:
    return f"{percent:+.2f} %"


if __name__ == "__main__":
    sys.exit(main())
