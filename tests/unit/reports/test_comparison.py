"""A comparison as picture, page and file."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from drawings import HOSTILE

from lowtide.comparison.comparing import Comparison
from lowtide.comparison.judging import judge
from lowtide.comparison.rows import Cell, Kind, Outcome, Row
from lowtide.comparison.words import blocks_of, remarks_on
from lowtide.errors import InputError
from lowtide.ir import Scope
from lowtide.reports.comparison_files import check_comparison_file, save_comparison
from lowtide.reports.comparison_page import html_of_comparison
from lowtide.reports.comparison_picture import Group, height_of, pictures_of, ticks_between


def row(
    kind: Kind,
    method: str,
    needed: int | None,
    duration: int | None,
    budget: tuple[str, int] | None = None,
    **more: Any,
) -> Row:
    return Row(
        cell=Cell(kind=kind, method=method, budget=budget[0] if budget else ""),
        outcome=more.pop("outcome", Outcome.COMPLETED),
        budget_bytes=budget[1] if budget else None,
        baseline_peak_bytes=1000,
        baseline_duration=200,
        needed_bytes=needed,
        peak_bytes=needed,
        duration=duration,
        **more,
    )


def comparison(*, is_measured: bool = False, name: str = "") -> Comparison:
    """Peak 1000, duration 200; within 600 bytes at least 210 are proven."""
    tight, ample = ("60%", 600), ("80%", 800)
    rows = [
        row(Kind.PLAIN, "plain", 1000, 200),
        row(Kind.BOUND, "bound, given order", None, None, ample, lower_bound_duration=202, scope=Scope()),
        row(Kind.PLANNER, f"{name}search", 790, 202, ample, scope=Scope(), outcome=Outcome.FEASIBLE),
        row(Kind.PLANNER, "exact", 790, 202, ample, scope=Scope(), outcome=Outcome.OPTIMAL),
        row(Kind.POLICY, "coop", 800, 220, ample),
        row(Kind.BOUND, "bound, given order", None, None, tight, lower_bound_duration=210, scope=Scope()),
        row(Kind.PLANNER, f"{name}search", 600, 212, tight, scope=Scope(), outcome=Outcome.FEASIBLE),
        row(Kind.PLANNER, "sqrt", None, None, tight, outcome=Outcome.TIMEOUT, reason=f"{name}no plan found"),
        row(Kind.POLICY, "coop", 600, 900, tight),
    ]
    if is_measured:
        rows += [
            row(Kind.MEASURED, "eager", 1000, 200, bits="ab"),
            row(Kind.MEASURED, "checkpoint", 500, 260, bits="cd"),
            row(Kind.MEASURED, "lowtide.compile", 590, 205, tight, bits="ab"),
        ]
    return Comparison(
        name=f"{name}net",
        num_nodes=12,
        duration_unit="ns",
        budgets={"80%": 800, "60%": 600},
        rows=judge(rows),
        is_measured=is_measured,
        is_complete=True,
        notes=("moccasin: left out",),
    )


class Page(HTMLParser):
    """Tags, and the text of the rows of tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = [""]
        self.rows: list[list[str]] = []
        self.titles: list[str] = []
        self.cards: list[str] = []
        self.notes: list[str] = []
        self.script = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag == "dt":
            self.cards.append("")
        if tag == "footer":
            self.notes = [""]

    def handle_data(self, data: str) -> None:
        if self.tags[-1] in ("td", "th", "span") and self.rows and data.strip():
            self.rows[-1].append(data.strip())
        if self.tags[-1] in ("dt", "dd", "div") and self.cards and not self.titles[1:] and data.strip():
            self.cards[-1] = " | ".join(filter(None, [self.cards[-1], data.strip()]))
        if self.tags[-1] == "p" and self.notes and data.strip():
            self.notes.append(data)
        if self.tags[-1] in ("h1", "h2"):
            self.titles.append(data)
        if self.tags[-1] == "script" and not self.script:
            self.script = data


def test_the_scale_is_even_near_nothing_and_logarithmic_beyond() -> None:
    assert height_of(0.0) == 0.0
    assert height_of(-5.0) == -height_of(5.0)
    assert height_of(200.0) - height_of(100.0) == pytest.approx(math.log(2), rel=1e-3)
    assert list(ticks_between(height_of(-1.5), height_of(7)).values()) == ["-1 %", "0 %", "1 %", "2 %", "5 %"]


def test_the_page_says_how_far_proofs_go() -> None:
    text = html_of_comparison(comparison())
    assert ["●", "exact", "optimal in order"] in [cells[:3] for cells in Page(text).rows]
    assert "<p>Optimal in order: proven that no plan in the graph&#x27;s given order is faster" in text
    assert "<p>Moccasin: left out.</p>" in text


def test_the_page_says_what_the_terminal_does() -> None:
    """Of a row that is not optimal in order, so that nothing else is said."""
    rows = [row(Kind.PLAIN, "plain", 1000, 200), row(Kind.PEER, "amb", 601, 220, ("80%", 800))]
    compared = replace(comparison(), rows=judge(rows), is_measured=True, is_complete=False)
    *notes, _ = Page(html_of_comparison(compared)).notes[1:]
    assert [note.split(":")[0].split(",")[0] for note in notes] == [
        "● on the Pareto front",
        "checkpoint",
        "really run",
        "Stopped early",
        "Moccasin",
    ]
    assert notes == remarks_on(compared)


def test_tiles_are_of_real_runs_where_one_kept_the_budget() -> None:
    assert Page(html_of_comparison(comparison())).cards == [
        "plain peak | 1000 B",
        "fastest within 80% | 1.00 % | search, 790 B",
        "fastest within 60% | 6.00 % | search, 600 B",
    ]
    measured = comparison(is_measured=True)
    assert Page(html_of_comparison(measured)).cards == [
        "measured: eager's peak | 1000 B | 0.000 s a step",
        "modelled: fastest within 80% | 1.00 % | search, 790 B",
        "measured: fastest within 60% | 2.50 % | lowtide.compile, 590 B, bits equal",
    ]
    over = row(Kind.MEASURED, "amb-inductor", 610, 190, ("60%", 600), bits="cd", outcome=Outcome.OVER)
    slow = row(Kind.MEASURED, "lowtide.budget", 600, 300, ("60%", 600), bits="cd")
    rows = judge([*(judged.row for judged in measured.rows[:-1]), over, slow])
    assert Page(html_of_comparison(replace(measured, rows=rows))).cards[-1] == (
        "measured: fastest within 60% | 50.00 % | lowtide.budget, 600 B, bits differ"
    )
    rows = judge([*(judged.row for judged in measured.rows[:-1]), over])
    assert Page(html_of_comparison(replace(measured, rows=rows))).cards[-1] == (
        "modelled: fastest within 60% | 6.00 % | search, 600 B"
    )


def test_a_bound_just_above_nothing_reads_as_more_than_nothing() -> None:
    rows = [
        row(Kind.PLAIN, "plain", 1000, 200_000),
        replace(
            row(
                Kind.BOUND, "bound, given order", None, None, ("60%", 600), lower_bound_duration=200_001, scope=Scope()
            ),
            baseline_duration=200_000,
        ),
    ]
    compared = replace(comparison(), budgets={"60%": 600}, rows=judge(rows))
    assert [block.bound for block in blocks_of(compared)] == ["proven: more than 0 % in the given order"]


def test_points_front_and_bound() -> None:
    (picture,) = pictures_of(comparison())
    assert [point.texts[0] for point in picture.points if point.group is Group.OTHERS] == ["coop", "coop"]
    assert picture.front == ((100.0, 0.0), (100.0, 1.0), (79.0, 1.0), (79.0, 6.0), (60.0, 6.0))
    assert [label.text for label in picture.labels] == ["plain", "search, exact", "search"]
    assert picture.bounds == {
        "given order": ((0.0, 5.0), (60.0, 5.0), (60.0, 1.0), (80.0, 1.0), (80.0, 0.0), (100.0, 0.0))
    }
    for point in picture.points:
        assert picture.memory_range[0] < point.memory_percent < picture.memory_range[1]
        assert picture.increase_range[0] < height_of(point.increase_percent) < picture.increase_range[1]


def test_what_pytorch_would_recompute_is_a_group_of_its_own() -> None:
    rows = [row(Kind.PLAIN, "plain", 1000, 200), row(Kind.PEER, "amb", 601, 220, ("60%", 600))]
    (picture,) = pictures_of(replace(comparison(), rows=judge(rows)))
    assert [point.group for point in picture.points] == [Group.PLAIN, Group.PEERS]
    assert picture.name_by_group == {Group.PLAIN: "plain", Group.PEERS: "PyTorch's own means"}


def test_names_that_would_lie_on_each_other_share_a_label() -> None:
    rows = [
        row(Kind.PLAIN, "plain", 1000, 200),
        row(Kind.PLANNER, "search", 601, 220, ("60%", 600)),
        row(Kind.PLANNER, "greedy", 600, 221, ("60%", 600)),
        row(Kind.PLANNER, "sqrt", 500, 400, ("60%", 600)),
    ]
    (picture,) = pictures_of(replace(comparison(), rows=judge(rows)))
    assert [(label.memory_percent, label.text) for label in picture.labels] == [
        (100.0, "plain"),
        (60.1, "search, greedy"),
        (50.0, "sqrt"),
    ]


def test_real_runs_have_a_picture_of_their_own() -> None:
    modelled, measured = pictures_of(comparison(is_measured=True))
    assert "checkpoint" not in {point.texts[0] for point in modelled.points}
    assert {point.texts[0]: point.group for point in measured.points} == {
        "eager": Group.PLAIN,
        "checkpoint": Group.OTHERS,
        "lowtide.compile": Group.OURS,
    }
    assert [label.text for label in measured.labels] == ["eager", "lowtide.compile", "checkpoint"]


def test_the_page_has_pictures_and_tables() -> None:
    pytest.importorskip("bokeh")
    page = Page(html_of_comparison(comparison(is_measured=True)))
    assert page.titles[0] == "net"
    assert page.titles[1:] == [
        "Memory against time, on the cost model",
        "Memory against time, really run",
        "Within 80%, 800 B",
        "Within 60%, 600 B",
        "Really run, without a budget",
        "Really run, within 60%, 600 B",
    ]
    assert ["●", "search", "feasible", "600 B", "60.0 %", "6.00 %", "1.00", "0.0 s"] in page.rows
    assert ["●", "checkpoint", "completed", "500 B", "50.0 %", "30.00 %", "differ", "0.0 s"] in page.rows
    assert ["sqrt", "timeout", "no plan found", "0.0 s"] in page.rows
    assert set(json.loads(page.script)["roots"]) == {"modelled", "measured"}


def test_hostile_names_stay_names() -> None:
    pytest.importorskip("bokeh")
    plain, hostile = Page(html_of_comparison(comparison())), Page(html_of_comparison(comparison(name=HOSTILE)))
    assert hostile.tags == plain.tags
    assert hostile.titles[0] == f"{HOSTILE}net"
    assert "<" not in hostile.script


@pytest.mark.parametrize(
    ("ending", "start", "package"),
    [(".html", b"<!doctype html>", "bokeh"), (".png", b"\x89PNG", "matplotlib"), (".svg", b"<?xml", "matplotlib")],
)
def test_files_are_what_their_endings_say(tmp_path: Path, ending: str, start: bytes, package: str) -> None:
    pytest.importorskip(package)
    path = tmp_path / f"compared{ending}"
    save_comparison(comparison(is_measured=True), path)
    written = path.read_bytes()
    assert written.startswith(start)
    save_comparison(comparison(is_measured=True), path)
    assert ending == ".html" or path.read_bytes() == written


def test_another_ending_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        check_comparison_file("rows.pickle")
    assert str(caught.value) == "rows.pickle: a comparison's report ends in .html, .png or .svg"
