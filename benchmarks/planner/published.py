"""The Moccasin paper's experiment on published instances, as tables: budgets, TDI over time, copies, input orders."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.marked import markdown_table
from benchmarks.planner.cells import Cell, Outcome
from benchmarks.planner.parts import MOCCASIN_COPIES, PUBLISHED
from benchmarks.planner.results import Results, Summary, summarize
from benchmarks.planner.words import group, plan_words, shown
from lowtide.importers.generate import GENERATE_PREFIX

PLOT = "images/planner-published.png"
"""Beside the page."""

_MOMENTS = (1.0, 3.0, 10.0, 30.0, 60.0, 180.0, 600.0, 1800.0, 3600.0)


def render_published(results: Results) -> list[str]:
    """Four tables for each instance; nothing where none was measured."""
    summaries = summarize(results.part(PUBLISHED))
    if not summaries:
        return []
    lines = [
        "## The Moccasin paper's experiment",
        "",
        (
            f"Source: Bartan et al. 2023, section 4. `moccasin` with {MOCCASIN_COPIES} copies of a node unless said, "
            "the others with any number. Budgets: of the peak of the instance's own order, also where another is given."
        ),
        "",
    ]
    if any(one.cell.instance.startswith(GENERATE_PREFIX) for one in summaries):
        lines += [
            (
                f"What is named `{GENERATE_PREFIX}` here is a stand-in, made by the recipe of the published random "
                "layered graphs: their own files were not at hand, so none of their figures is compared."
            ),
            "",
        ]
    for instance, here in group(summaries, lambda one: one.cell.instance).items():
        lines += [f"### {instance}, {here[0].outcomes[0].num_nodes} nodes", ""]
        for title, key, chosen in _views(here):
            lines += _view(title, key, chosen)
        lines += _over_time([one for one in here if is_plain(one.cell)])
    return [*lines, f"![TDI over time]({PLOT})", ""]


def _views(here: Sequence[Summary]) -> list[tuple[str, Callable[[Cell], str], list[Summary]]]:
    """Title, what a row stands for, and its cells."""
    percents_varied = {one.cell.percent for one in here if one.cell.input_order}
    return [
        (
            "budget",
            lambda cell: f"{cell.percent} %",
            [one for one in here if is_plain(one.cell) or one.cell.order == "free"],
        ),
        (
            "copies of a node",
            lambda cell: f"at most {cell.max_copies}",
            [
                one
                for one in here
                if one.cell.max_copies and one.cell.percent in percents_varied and _is_own_order(one.cell)
            ],
        ),
        (
            "input order",
            lambda cell: "its own" if not cell.input_order else f"random {cell.input_order}",
            [one for one in here if one.cell.percent in percents_varied and _has_usual_copies(one.cell)],
        ),
    ]


def _is_own_order(cell: Cell) -> bool:
    return not cell.input_order and cell.order == "fixed"


def _has_usual_copies(cell: Cell) -> bool:
    usual = MOCCASIN_COPIES if cell.contender == "moccasin" else None
    return cell.max_copies == usual and cell.order == "fixed"


def is_plain(cell: Cell) -> bool:
    """Its own order, kept, and the usual number of copies."""
    return _is_own_order(cell) and _has_usual_copies(cell)


def _view(title: str, key: Callable[[Cell], str], chosen: Sequence[Summary]) -> list[str]:
    columns = list(dict.fromkeys(_column(one.cell) for one in chosen))
    rows = []
    for name, here in group(chosen, lambda one: key(one.cell)).items():
        by_column = {_column(one.cell): one for one in here}
        rows.append((name, *(plan_words(by_column.get(column)) for column in columns)))
    percents = sorted({one.cell.percent for one in chosen})
    heading = f"{title}, at {percents[0]} %" if len(percents) == 1 else title
    return [*markdown_table((heading, *columns), rows), ""]


def _column(cell: Cell) -> str:
    return f"`{cell.contender}`, order free" if cell.order == "free" else f"`{cell.contender}`"


def _over_time(chosen: Sequence[Summary]) -> list[str]:
    """TDI at moments of the clock, from the course of each search; and the bound at its end."""
    limit = max((one.cell.seconds for one in chosen), default=0.0)
    moments = [moment for moment in _MOMENTS if moment <= limit]
    if not moments:
        return []
    rows = [
        (
            f"{one.cell.percent} %",
            f"`{one.cell.contender}`",
            *(shown(tdi_at(one.outcomes[0], moment)) for moment in moments),
            shown(one.tdi_percent),
            shown(one.bound_percent),
        )
        for one in chosen
    ]
    header = ("budget", "planner", *(f"TDI after {moment:g} s" for moment in moments), "at the end", "bound")
    return [*markdown_table(header, rows), ""]


def tdi_at(outcome: Outcome, seconds: float) -> float | None:
    """TDI of the best plan that was known then, or None."""
    known = [tdi for at, tdi, _ in outcome.course if tdi is not None and at <= seconds]
    if not known and outcome.tdi_percent is not None and outcome.wall_seconds <= seconds:
        return outcome.tdi_percent
    return min(known, default=None)
