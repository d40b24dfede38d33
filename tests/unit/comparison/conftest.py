"""Rows made by hand: of a plain graph with peak 100 and duration 1000."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lowtide.comparison.rows import Cell, Kind, Outcome, Row

MakeRow = Callable[..., Row]


@pytest.fixture
def make_row() -> MakeRow:
    """``make_row("search", 60, 1010)``: needs 60 bytes and takes 1010, within budget ``60%`` unless told otherwise."""

    def make(
        method: str, needed_bytes: int | None, duration: int | None, *, kind: Kind = Kind.PLANNER, **others: Any
    ) -> Row:
        budget = others.pop("budget", "60%")
        return Row(
            cell=Cell(kind=kind, method=method, budget=budget),
            outcome=others.pop("outcome", Outcome.FEASIBLE),
            budget_bytes=others.pop("budget_bytes", 60),
            baseline_peak_bytes=100,
            baseline_duration=1000,
            needed_bytes=needed_bytes,
            peak_bytes=needed_bytes,
            duration=duration,
            **others,
        )

    return make
