"""The drawing of memory over time, in text."""

from __future__ import annotations

from lowtide.cli.picture import draw_curves
from lowtide.reports.curves import Curve


def test_drawing_puts_the_plan_in_front_and_marks_the_budget() -> None:
    assert draw_curves(Curve((2, 8, 8, 2)), Curve((2, 4, 5, 3)), budget_bytes=6, height=4) == [
        "       8 B | ░░",
        "       6 B | ░█  <- budget",
        "           | ███",
        "           |████",
        "           +----",
    ]


def test_drawing_of_nothing() -> None:
    assert draw_curves(Curve((0, 0)), Curve((0, 0)), budget_bytes=1, height=2) == [
        "       1 B |   <- budget",
        "           |",
        "           +--",
    ]
