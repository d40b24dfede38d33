"""Whole comparisons of graphs whose optima are known."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

import lowtide
from lowtide.comparison.comparing import Comparison, Progress, compare_graph
from lowtide.comparison.options import ComparisonOptions, choose_options
from lowtide.comparison.rows import Kind, Outcome, Row
from lowtide.errors import InputError, UnitError
from lowtide.importers.trace_graph import trace_of_graph
from lowtide.ir import Graph, Input, Layout, Placement, Status
from lowtide.ir.sequence import steps_from_sequence
from lowtide.layouts.protocol import LayoutProposal, LayoutRequest
from lowtide.planners.protocol import PlanRequest, Proposal


def options(**others: Any) -> ComparisonOptions:
    chosen = {"planners": ["greedy", "sqrt"], "policies": ["dtr"], "time_limit_seconds": 5.0, "threads": 1, **others}
    return choose_options(num_nodes=4, **chosen)


def row_of(comparison: Comparison, method: str, budget: str) -> Row:
    return next(row.row for row in comparison.rows if (row.row.cell.method, row.row.cell.budget) == (method, budget))


def test_every_cell_has_a_row(four: Graph) -> None:
    compared = compare_graph(four, budgets=["80%", 17, "70%"], options=options())
    assert list(compared.budgets.items()) == [("80%", 19), ("17", 17), ("70%", 16)]
    methods = ["bound, given order", "bound, any order", "greedy", "sqrt", "dtr"]
    cells = [(row.row.cell.method, row.row.cell.budget) for row in compared.rows]
    assert cells == [("plain", ""), *((method, budget) for budget in compared.budgets for method in methods)]
    assert compared.is_complete


def test_figures_are_those_worked_out_by_hand(four: Graph) -> None:
    compared = compare_graph(four, budgets=["80%"], options=options())
    plain, greedy = row_of(compared, "plain", ""), row_of(compared, "greedy", "80%")
    assert (plain.needed_bytes, plain.duration, plain.increase_percent) == (24, 4, 0.0)
    assert (greedy.needed_bytes, greedy.duration, greedy.increase_percent) == (17, 5, 25.0)
    assert greedy.num_recomputes == 1
    judged = next(row for row in compared.rows if row.row is greedy)
    assert (judged.outcome, judged.gap_points) == (Outcome.OPTIMAL, 0.0)  # the bound proves it


def test_below_the_largest_working_set_rows_are_infeasible(four: Graph) -> None:
    compared = compare_graph(four, budgets=["70%"], options=options())
    greedy = row_of(compared, "greedy", "70%")
    assert (greedy.outcome, greedy.needed_bytes) == (Outcome.INFEASIBLE, None)
    assert greedy.reason == "node 'd' needs 17 B for its inputs and outputs together"
    assert row_of(compared, "bound, any order", "70%").outcome is Outcome.INFEASIBLE
    assert row_of(compared, "dtr", "70%").outcome is Outcome.GAVE_UP


def test_a_policy_stands_on_the_same_cost_model(four: Graph) -> None:
    compared = compare_graph(four, budgets=["120%", "80%"], options=options(policies=["dtr", "dtr-ideal"]))
    ample, tight = row_of(compared, "dtr-ideal", "120%"), row_of(compared, "dtr-ideal", "80%")
    assert (ample.duration, ample.baseline_peak_bytes) == (4, 24)
    simulated = lowtide.simulate(trace_of_graph(four), budget=19, policy="dtr-ideal")
    assert (simulated.completed, simulated.plain_peak_bytes) == (True, 24)
    assert (tight.duration, tight.needed_bytes) == (round(4 * simulated.overhead), simulated.peak_bytes)


def test_a_planner_that_fails_is_a_row(four: Graph) -> None:
    class Broken:
        name = "broken"

        def propose(self, request: object) -> None:
            raise ZeroDivisionError("division\nby zero")

    compared = compare_graph(four, budgets=["80%"], options=options(planners=[Broken(), "greedy"]))
    broken = row_of(compared, "broken", "80%")
    assert broken.outcome is Outcome.FAILED
    assert "broken" in broken.reason
    assert "\n" not in broken.reason
    assert row_of(compared, "greedy", "80%").outcome in (Outcome.OPTIMAL, Outcome.FEASIBLE)


class Proposing:
    """Proposes the same nodes whatever the budget, or nothing."""

    def __init__(self, name: str, sequence: str) -> None:
        self.name, self.sequence = name, sequence

    def propose(self, request: PlanRequest) -> Proposal:
        steps = steps_from_sequence(request.graph, tuple(self.sequence)) if self.sequence else None
        return Proposal(Status.TIMEOUT, steps)


class Stacking:
    """Gives no byte to two lifespans."""

    name = "stacking"

    def place(self, request: LayoutRequest) -> LayoutProposal:
        offsets = accumulate((span.size_bytes for span in request.lifespans), initial=0)
        placements = [
            Placement(span.name, span.occurrence, offset, span.size_bytes, span.is_workspace)
            for span, offset in zip(request.lifespans, offsets, strict=False)
        ]
        return LayoutProposal(Layout(tuple(placements)), 0)


@pytest.mark.parametrize(
    ("sequence", "layout", "reason"),
    [
        ("", "best_fit", "nothing smaller than plain found"),
        ("abcd", "best_fit", "24 B found, 26.3 % over"),
        ("abcad", "stacking", "34 B found, 78.9 % over; its live bytes fit"),  # 1 + 4 * 8 + 1 of addresses, 17 live
    ],
)
def test_who_missed_a_budget_says_what_it_found(
    four: Graph, monkeypatch: pytest.MonkeyPatch, sequence: str, layout: str, reason: str
) -> None:
    monkeypatch.setattr("lowtide.planning.addresses._MOST_EXACT_LIFESPANS", 0)  # which would undo the stacking
    chosen = options(
        planners=[Proposing("near", sequence)], layout=Stacking() if layout == "stacking" else layout, policies=[]
    )
    missed = row_of(compare_graph(four, budgets=["80%"], options=chosen), "near", "80%")
    assert (missed.outcome, missed.needed_bytes, missed.reason) == (Outcome.TIMEOUT, None, reason)


def test_hardly_over_a_budget_is_not_none_over(four: Graph) -> None:
    scaled = replace(
        four,
        inputs=(Input("x", 1000),),
        nodes=tuple(
            replace(node, outputs=tuple(replace(value, size_bytes=1000 * value.size_bytes) for value in node.outputs))
            for node in four.nodes
        ),
    )
    compared = compare_graph(scaled, budgets=[23_999], options=options(planners=[Proposing("near", "abcd")]))
    assert row_of(compared, "near", "23999").reason == "23.4 KiB found, less than 0.1 % over"


def test_budgets_of_the_same_size_are_compared_once(four: Graph) -> None:
    compared = compare_graph(four, budgets=["80%", "80%", 19], options=options())
    assert list(compared.budgets) == ["80%"]
    assert compared.notes == ("19 is 19 bytes as 80% is: compared once",)


def test_without_a_budget_there_is_nothing_to_compare(four: Graph) -> None:
    with pytest.raises(InputError) as caught:
        compare_graph(four, budgets=[], options=options())
    assert str(caught.value) == "there is no budget: give at least one, e.g. 60%"


def test_what_is_in_the_file_is_not_run_again(four: Graph, tmp_path: Path) -> None:
    path, ran = tmp_path / "rows.jsonl", []

    def note(progress: Progress) -> None:
        if progress.row is None:
            ran.append(str(progress.cell))

    first = compare_graph(four, budgets=["80%"], options=options(), output=path, on_progress=note)
    assert len(ran) == 5
    ran.clear()
    again = compare_graph(four, budgets=["80%", "100%"], options=options(), output=path, on_progress=note)
    assert [name for name in ran if name.endswith("80%")] == []
    assert len(ran) == 5
    for row in first.rows:
        if row.row.cell.kind is not Kind.PLAIN:
            assert row_of(again, row.row.cell.method, "80%").duration == row.row.duration
    ran.clear()
    compare_graph(four, budgets=["100%", "80%"], options=options(), output=path, on_progress=note)
    assert ran == []


def test_a_stop_keeps_the_rows_so_far_and_drops_the_cell_under_way(four: Graph, tmp_path: Path) -> None:
    path, seen = tmp_path / "rows.jsonl", []

    def note(progress: Progress) -> None:
        seen.append(progress)

    def should_stop() -> bool:
        return len(seen) >= 5  # two cells told before and after, the third begun

    compared = compare_graph(
        four, budgets=["80%"], options=options(), output=path, on_progress=note, should_stop=should_stop
    )
    assert not compared.is_complete
    assert [row.row.cell.method for row in compared.rows] == ["plain", "bound, given order", "bound, any order"]
    assert len(path.read_text().splitlines()) == 3
    assert compare_graph(four, budgets=["80%"], options=options(), output=path).is_complete


def test_progress_counts_and_estimates(four: Graph) -> None:
    seen: list[Progress] = []
    compare_graph(four, budgets=["80%"], options=options(), on_progress=seen.append)
    assert [progress.num_done for progress in seen] == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5]
    assert {progress.num_cells for progress in seen} == {5}
    assert seen[0].seconds_left == 4 * 5.0 + 1.0  # two bounds and two planners at their limit, one policy
    assert seen[-1].seconds_left == 0


def test_python_gets_flat_rows(four: Graph) -> None:
    asked: dict[str, Any] = {"budgets": ["80%"], "planners": ["greedy"], "policies": ["lru"], "threads": 1}
    rows = lowtide.compare(four, **asked)
    assert [row["method"] for row in rows] == ["plain", "bound, given order", "bound, any order", "greedy", "lru"]
    assert len({tuple(row) for row in rows}) == 1
    of_trace = lowtide.compare(trace_of_graph(four), **asked)
    assert [row["duration"] for row in of_trace] == [row["duration"] for row in rows]


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"planners": ["magic"]}, InputError, "planner 'magic' is not known"),
        ({"policies": ["magic"]}, InputError, "policy 'magic' is not known"),
        (
            {"model": "m:f", "peers": ["magic"]},
            InputError,
            "peer 'magic' is not known: choose one of eager, checkpoint",
        ),
        ({"budgets": ["magic"]}, UnitError, "'magic' is no size"),
        ({"time_limit_seconds": 0.0}, InputError, "time limit 0.0 must be a number of seconds above 0"),
    ],
)
def test_what_is_not_known_is_refused(four: Graph, asked: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        lowtide.compare(four, **{"budgets": ["80%"], "planners": ["greedy"], "policies": ["lru"], **asked})
    assert str(caught.value).startswith(message)


def test_planners_that_need_minutes_are_left_out_of_large_graphs_unless_asked_for() -> None:
    small, large = choose_options(num_nodes=10), choose_options(num_nodes=1234)
    assert set(large.planners) == {"search", "exact", "greedy", "sqrt"}
    assert {"checkmate", "checkmate-lp"} <= set(small.planners)
    (note,) = large.notes
    assert note == (
        "left out: planners checkmate, checkmate-lp, cpsat, moccasin; a graph of 1,234 nodes takes them minutes, and "
        "each has 10 s here. --planners all --time-limit 300 asks them, too"
    )
    (note,) = choose_options(num_nodes=1234, time_limit_seconds=600).notes
    assert note.endswith("each has 600 s here. --planners all asks them, too")  # no time limit below the one given
    everybody = choose_options(num_nodes=1234, planners=["all"])
    assert {*large.planners, "checkmate", "checkmate-lp", "cpsat", "moccasin"} == set(everybody.planners)
