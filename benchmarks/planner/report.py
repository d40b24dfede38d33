"""``python -m benchmarks.planner.report``: the section on planners of docs/benchmarks.md, from the results alone.

With ``--check`` nothing is written; exit code 1 if the page does not say what the results do. Pictures are drawn anew
(``--no-plots``: not).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from benchmarks.marked import renew_pages
from benchmarks.planner.parts import CAPTURED, ORDER_FREE, PUBLISHED, SCALING, SIDE_BY_SIDE
from benchmarks.planner.published import PLOT as PUBLISHED_PLOT
from benchmarks.planner.published import is_plain, render_published
from benchmarks.planner.results import Results, read_results, summarize
from benchmarks.planner.tables import (
    SCALING_PLOT,
    render_captured,
    render_order_free,
    render_scaling,
    render_side_by_side,
)

_ROOT = Path(__file__).parents[2]
_RESULTS = _ROOT / "benchmarks" / "results" / "planner.jsonl"
_PAGE = _ROOT / "docs" / "benchmarks.md"
_BEGIN, _END = "<!-- planners: begin -->\n", "<!-- planners: end -->\n"


def main() -> int:
    """Write the section, or check it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planner.report", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if the page is not up to date")
    parser.add_argument("--no-plots", action="store_true", help="leave the pictures as they are")
    parser.add_argument("--results", type=Path, default=_RESULTS, metavar="FILE")
    parser.add_argument("--page", type=Path, default=_PAGE, metavar="FILE")
    options = parser.parse_args()
    results = read_results(options.results)
    page = options.page.read_text(encoding="utf-8") if options.page.is_file() else ""
    wanted = with_section(page, render_section(results))
    code = renew_pages({options.page: wanted}, program="benchmarks.planner.report", is_check=options.check)
    if not options.check and not options.no_plots:
        draw_plots(results, options.page.parent)
    return code


def draw_plots(results: Results, folder: Path) -> None:
    """Draw the pictures that the section shows, beside the page."""
    from benchmarks.planner.plots import plot_over_time, plot_scaling

    if scaling := summarize(results.part(SCALING)):
        plot_scaling(scaling, folder / SCALING_PLOT)
    if published := [one for one in summarize(results.part(PUBLISHED)) if is_plain(one.cell)]:
        plot_over_time(published, folder / PUBLISHED_PLOT)


def with_section(page: str, section: str) -> str:
    """The page with the section between its markers; at its end where it has none yet.

    Raises:
        ValueError: A marker is there without the other, or twice.
    """
    counts = (page.count(_BEGIN), page.count(_END))
    if counts == (0, 0):
        return f"{page.rstrip()}\n\n{_BEGIN}{section}{_END}" if page else f"{_BEGIN}{section}{_END}"
    if counts != (1, 1):
        raise ValueError(f"the page must hold {_BEGIN.strip()} and {_END.strip()} once each")
    before, rest = page.split(_BEGIN)
    return before + _BEGIN + section + _END + rest.split(_END)[1]


def text_report(results: Results) -> str:
    """All tables, for a terminal."""
    return "\n".join(line for render in _RENDERERS.values() for line in render(results))


def render_section(results: Results) -> str:
    """What stands between the markers."""
    lines = [
        "# Benchmarks: planners",
        "",
        (
            "Written by `python -m benchmarks.planner.report` from [benchmarks/results/planner.jsonl]"
            "(../benchmarks/results/planner.jsonl), which `python -m benchmarks.planner` writes: every number below is "
            "in that file, losses included. Cells that are not there were not measured."
        ),
        "",
        *_describe_runs(results),
        "",
    ]
    for render in _RENDERERS.values():
        lines += render(results)
    return "\n".join(lines)


def _describe_runs(results: Results) -> list[str]:
    machines = dict.fromkeys(
        f"{run['processor']}, {run['num_cores']} cores, {run['system']}, Python {run['python']}, "
        + ", ".join(f"{package} {version}" for package, version in run["packages"].items())
        for run in results.runs
    )
    lines = [f"- {machine}." for machine in machines]
    if results.runs:
        loads = [run["load_average_at_start"][0] for run in results.runs]
        words = (
            f"- Load average at the start of a run {min(loads):.1f} to {max(loads):.1f}. Time limits are on the clock: "
            "with other work on the machine a planner gets less out of them than it could, so CPU time is given for "
            "what it took."
        )
        lines += [words, *_describe_times(results)]
    threads = sorted({cell.threads for cell in results.outcome_by_cell})
    return [
        *lines,
        (
            "- Each cell in a process of its own; plans replayed by the referee, budget in percent of the peak of the "
            f"given order, TDI in percent. Threads: {', '.join(map(str, threads)) or '-'}. CPU time: all threads, "
            "planning only."
        ),
    ]


def _describe_times(results: Results) -> list[str]:
    """From which runs the cells of each part are, a line for each set of commits."""
    runs_by_kind: dict[tuple[str, str], set[int]] = {}
    for cell, run in results.run_by_cell.items():
        runs_by_kind.setdefault((f"{cell.part} in {cell.seconds:g} s", cell.contender), set()).add(run)
    contenders_by_words: dict[str, dict[str, list[str]]] = {}
    for (part, contender), runs in runs_by_kind.items():
        days = sorted(results.runs[run]["started"][:10] for run in runs)
        commits = dict.fromkeys(results.runs[run]["commit"] for run in sorted(runs))
        words = f"{' to '.join(dict.fromkeys((days[0], days[-1])))} at {', '.join(commits)}"
        contenders_by_words.setdefault(words, {}).setdefault(part, []).append(contender)
    return [
        f"- Measured {words}: "
        + "; ".join(f"{part} ({', '.join(contenders)})" for part, contenders in contenders_by_part.items())
        + "."
        for words, contenders_by_part in contenders_by_words.items()
    ]


_RENDERERS: Mapping[str, Callable[[Results], list[str]]] = MappingProxyType(
    {
        SIDE_BY_SIDE: render_side_by_side,
        ORDER_FREE: render_order_free,
        SCALING: render_scaling,
        CAPTURED: render_captured,
        PUBLISHED: render_published,
    }
)


if __name__ == "__main__":
    sys.exit(main())
