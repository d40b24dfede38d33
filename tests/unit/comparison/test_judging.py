"""Fronts, gaps and proofs, against rows worked out by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from lowtide.comparison.judging import JudgedRow, judge
from lowtide.comparison.rows import Kind, Outcome, Row
from lowtide.comparison.words import cells_of
from lowtide.ir import Scope

MakeRow = Callable[..., Row]

FREE, STAGED = Scope(order="free"), Scope(order="staged", max_copies=2)


def front_of(rows: Sequence[Row]) -> list[str]:
    return [row.row.cell.method for row in judge(rows) if row.is_on_front]


def judged(rows: Sequence[Row], method: str) -> JudgedRow:
    return next(row for row in judge(rows) if row.row.cell.method == method)


def bound(make_row: MakeRow, duration: int, *, scope: Scope, **others: object) -> Row:
    method = f"bound, {scope.order} {scope.max_copies}"
    return make_row(
        method,
        None,
        None,
        kind=Kind.BOUND,
        outcome=Outcome.PROVEN,
        lower_bound_duration=duration,
        scope=scope,
        **others,
    )


def test_the_front_holds_whom_nobody_beats(make_row: MakeRow) -> None:
    rows = [
        make_row("plain", 100, 1000, kind=Kind.PLAIN, budget=""),
        make_row("lean", 50, 1100),
        make_row("beaten", 55, 1100),
        make_row("balanced", 70, 1010),
        make_row("slow and large", 80, 1200),
        make_row("no faster than plain", 101, 1000),
        make_row("nothing", None, None, outcome=Outcome.TIMEOUT),
    ]
    assert front_of(rows) == ["plain", "lean", "balanced"]


def test_equals_stand_on_the_front_together(make_row: MakeRow) -> None:
    assert front_of([make_row("one", 50, 1100), make_row("other", 50, 1100)]) == ["one", "other"]


def shown_of(rows: Sequence[Row]) -> list[str]:
    return [row.row.cell.method for row in judge(rows) if row.is_shown_on_front]


def test_who_saves_next_to_no_memory_over_somebody_faster_is_on_the_front_but_not_shown(make_row: MakeRow) -> None:
    rows = [
        make_row("plain", 100_000, 1000, kind=Kind.PLAIN, budget=""),
        make_row("fast", 50_000, 1394),
        make_row("as fast", 50_000, 1394),
        make_row("some bytes less", 49_950, 1451),  # 0.1 % of 50,000 less
        make_row("worth a place", 49_949, 1452),
    ]
    assert front_of(rows) == [row.cell.method for row in rows]
    assert shown_of(rows) == ["plain", "fast", "as fast", "worth a place"]
    assert [cells_of(row)[0] for row in judge(rows)] == ["●", "●", "●", "", "●"]


def test_many_small_steps_of_memory_are_thinned_not_all_left_out(make_row: MakeRow) -> None:
    rows = [make_row(str(step), 100_000 - 60 * step, 1000 + step) for step in range(5)]
    assert front_of(rows) == ["0", "1", "2", "3", "4"]
    assert shown_of(rows) == ["0", "2", "4"]


def test_measured_rows_have_a_front_of_their_own(make_row: MakeRow) -> None:
    rows = [make_row("plan", 50, 1000), make_row("run", 90, 1500, kind=Kind.MEASURED)]
    assert front_of(rows) == ["plan", "run"]


@pytest.mark.parametrize(
    ("proven", "planned", "holds"),
    [
        (Scope(), Scope(), True),
        (FREE, Scope(), True),  # all fixed plans are free ones
        (Scope(), FREE, False),
        (Scope(), STAGED, True),
        (STAGED, Scope(), False),
        (Scope(max_copies=2), Scope(), False),
        (Scope(), Scope(max_copies=2), True),
        (Scope(max_copies=3), Scope(max_copies=2), True),
        (Scope(max_copies=2), Scope(max_copies=3), False),
    ],
)
def test_a_bound_holds_within_its_scope_only(make_row: MakeRow, proven: Scope, planned: Scope, *, holds: bool) -> None:
    rows = [bound(make_row, 1005, scope=proven), make_row("search", 60, 1010, scope=planned)]
    found = judged(rows, "search")
    assert found.gap_points == (pytest.approx(0.5) if holds else None)


def test_the_best_bound_within_the_same_budget_counts(make_row: MakeRow) -> None:
    rows = [
        bound(make_row, 1002, scope=FREE),
        bound(make_row, 1005, scope=Scope()),
        bound(make_row, 1009, scope=Scope(), budget="40%", budget_bytes=40),
        make_row("exact", 60, 1007, scope=Scope(), lower_bound_duration=1006),
        make_row("coop", 60, 1100, kind=Kind.POLICY, outcome=Outcome.COMPLETED),
        make_row("search", 60, 1010, scope=FREE),
    ]
    assert judged(rows, "exact").gap_points == pytest.approx(0.1)
    assert judged(rows, "coop").gap_points == pytest.approx(9.4)  # it keeps the order of the program
    assert judged(rows, "search").gap_points == pytest.approx(0.8)


def test_a_plan_that_meets_a_bound_of_somebody_else_is_optimal(make_row: MakeRow) -> None:
    rows = [bound(make_row, 1005, scope=Scope()), make_row("greedy", 60, 1005, scope=Scope())]
    assert judged(rows, "greedy").outcome is Outcome.OPTIMAL
    assert judged(rows, "greedy").gap_points == 0


def test_an_optimal_row_says_of_which_order(make_row: MakeRow) -> None:
    """greedy and search need the same time; only of plans in the given order is it proven that none needs less."""
    rows = [
        bound(make_row, 1002, scope=FREE),
        bound(make_row, 1005, scope=Scope()),
        make_row("greedy", 60, 1005, scope=Scope()),
        make_row("search", 60, 1005, scope=FREE),
        make_row("moccasin", 60, 1006, scope=STAGED, lower_bound_duration=1006, outcome=Outcome.OPTIMAL),
    ]
    found = {row.row.cell.method: (cells_of(row)[2], row.proven_order) for row in judge(rows)[2:]}
    assert judged(rows, "greedy").as_dict()["proven_order"] == "fixed"
    assert found == {
        "greedy": ("optimal in order", "fixed"),
        "search": ("feasible", None),
        "moccasin": ("optimal, staged", "staged"),
    }
    assert cells_of(judged(rows, "search"))[6] == "0.30"
    rows[0] = bound(make_row, 1005, scope=FREE)
    assert [cells_of(row)[2] for row in judge(rows)[2:4]] == ["optimal", "optimal"]
    greedy = judged(rows, "greedy").as_dict()  # planned in the given order, and nobody is faster in any
    assert (greedy["status"], greedy["order"], greedy["proven_order"]) == ("optimal", "fixed", "free")


def test_bits_are_compared_with_those_of_eager(make_row: MakeRow) -> None:
    rows = [
        make_row("eager", 100, 1000, kind=Kind.MEASURED, budget="", bits="ab"),
        make_row("checkpoint", 60, 1300, kind=Kind.MEASURED, budget="", bits="cd"),
        make_row("lowtide.compile", 60, 1100, kind=Kind.MEASURED, bits="ab"),
        make_row("failed", None, None, kind=Kind.MEASURED, outcome=Outcome.FAILED),
    ]
    assert [row.is_bit_equal for row in judge(rows)] == [True, False, True, None]


def test_bits_of_an_eager_that_does_not_repeat_say_nothing(make_row: MakeRow) -> None:
    rows = [
        make_row("eager", 100, 1000, kind=Kind.MEASURED, budget=""),
        make_row("lowtide.compile", 60, 1100, kind=Kind.MEASURED, bits="ab"),
    ]
    assert [row.is_bit_equal for row in judge(rows)] == [None, None]


def test_flat_rows_name_tdi_and_overhead_apart(make_row: MakeRow) -> None:
    plan, run = (
        row.as_dict() for row in judge([make_row("plan", 50, 1100), make_row("run", 90, 1500, kind=Kind.MEASURED)])
    )
    assert (plan["tdi_percent"], plan["overhead_percent"]) == (10.0, None)
    assert (run["tdi_percent"], run["overhead_percent"]) == (None, 50.0)
    assert plan["memory_percent"] == 50.0
    assert set(plan) == set(run)
