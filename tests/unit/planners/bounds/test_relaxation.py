"""The rows of the absence relaxation, each on a graph small enough to work out by hand, and the solution it tells."""

from __future__ import annotations

import numpy as np

from lowtide.ir import Graph, Interval, Node, Scope, Value
from lowtide.planners.bounds import AbsenceOptions, absence_bound, absence_solution, gap_cover_bound
from lowtide.planners.bounds.families import stages_from_graph
from lowtide.planners.bounds.relaxation import AbsenceRelaxation
from lowtide.planners.bounds.separation import add_broken_rows, overloaded_stages


def plain(name: str, *nodes: tuple[str, int, tuple[str, ...], int], workspace: dict[str, int] | None = None) -> Graph:
    """A graph of (node, duration, inputs, size), each with one output of its name; the last one is the graph's."""
    made = [
        Node(node, "op", duration, inputs, (Value(node, size),), workspace_bytes=(workspace or {}).get(node, 0))
        for node, duration, inputs, size in nodes
    ]
    return Graph(name, (), tuple(made), (made[-1].name,), tuple(node.name for node in made), "unit")


def three_deep() -> Graph:
    """u is cheap, made from p, made from q: both are dead when "big" needs the room in which u lies."""
    return plain(
        "three deep",
        ("q", 11, (), 6),
        ("p", 7, ("q",), 6),
        ("u", 1, ("p",), 8),
        ("v", 1, ("u",), 1),
        ("big", 1, ("v",), 9),
        ("w", 1, ("big",), 1),
        ("end", 1, ("u", "w"), 1),
        workspace={"big": 8},
    )


def used_twice() -> Graph:
    """u is used at the start, in the middle and at the end; two big nodes in between want the room."""
    return plain(
        "used twice",
        ("u", 5, (), 8),
        ("v", 1, ("u",), 1),
        ("big1", 1, ("v",), 9),
        ("mid", 1, ("u", "big1"), 1),
        ("big2", 1, ("mid",), 9),
        ("end", 1, ("u", "big2"), 1),
        workspace={"big1": 8, "big2": 8},
    )


def test_what_comes_back_needs_its_inputs_to_full_depth() -> None:
    graph = three_deep()
    # At "big": v 1 + big 9 + workspace 8 = 18, u's 8 do not fit into 20, and neither p nor q (6 each) can be held.
    assert gap_cover_bound(graph, 20).duration == 23 + 1
    assert absence_bound(graph, 20).duration == 23 + 1 + 7 + 11
    assert 23 + 1 < absence_bound(graph, 20, are_whole=False).duration <= 23 + 1 + 7 + 11
    # With 24 bytes p can be held in u's place, which costs nothing but u's run.
    assert absence_bound(graph, 24).duration == 23 + 1


def test_every_gap_in_which_a_value_is_absent_costs_a_run() -> None:
    assert absence_bound(used_twice(), 18).duration == 10 + 5 + 5


def test_the_solution_says_what_is_absent_and_what_runs_again() -> None:
    solution = absence_solution(used_twice(), 18)
    assert solution.bound.scope == Scope()
    assert solution.is_whole
    assert solution.is_settled
    assert solution.cost == 10.0
    assert solution.chosen == (2, 4)
    assert solution.absent == {(0, 2): 1.0, (0, 4): 1.0}
    assert solution.held == {}
    first, second = sorted(solution.runs, key=lambda run: run[1].start)
    assert first[0] == second[0] == 0
    assert 2 < first[1].end <= 3  # back by "mid", which is stage 3
    assert 4 < second[1].end <= 5


def test_the_solution_says_what_is_held() -> None:
    solution = absence_solution(three_deep(), 24)
    assert set(solution.absent) == {(2, 4)}  # u at "big"
    assert set(solution.held) == {(1, 4)}  # p at "big"


def test_given_stages_are_the_ones_used() -> None:
    options = AbsenceOptions(stages=(2,))
    solution = absence_solution(used_twice(), 18, options=options)
    assert solution.chosen == (2,)
    assert solution.bound.duration == 10 + 5
    assert absence_bound(used_twice(), 18, max_stages=1).duration == 10 + 5


def test_more_runs_than_one_count_as_one_absence() -> None:
    """Two runs in one gap do not free the bytes twice."""
    graph = plain(
        "cheap and dear",
        ("a", 1, (), 4),
        ("b", 9, (), 4),
        ("v", 1, ("a", "b"), 1),
        ("big", 1, ("v",), 9),
        ("w", 1, ("big",), 1),
        ("x", 1, ("a", "w"), 1),
        ("end", 1, ("a", "b", "x"), 1),
    )
    # At "big" a 4 + b 4 + v 1 + big 9 = 18: 10 bytes ask for both to go, 14 for the cheap one only.
    assert absence_bound(graph, 10).duration == 15 + 1 + 9
    assert absence_bound(graph, 14).duration == 15 + 1


def test_an_impossible_memory_row_is_recognised() -> None:
    stages = stages_from_graph(used_twice())
    relaxation = AbsenceRelaxation(stages, 17)
    relaxation.choose(2)
    assert relaxation.is_impossible  # v 1 + big1 9 + workspace 8 = 18
    assert absence_bound(used_twice(), 17).is_infeasible


def test_an_absence_is_a_variable_only_where_a_row_needs_it() -> None:
    relaxation = AbsenceRelaxation(stages_from_graph(three_deep()), 20)
    relaxation.choose(4)
    assert not relaxation.changed()
    assert relaxation.program.num_rows == 1
    answer = relaxation.program.solve_lp(time_limit_seconds=None)
    assert answer.cost == 1
    assert answer.values is not None
    assert add_broken_rows(relaxation, answer.values) > 0
    assert set(relaxation.changed()) == {(2, 4), (1, 4)}  # u absent, p held


def test_a_stage_that_a_solution_overloads_is_found() -> None:
    relaxation = AbsenceRelaxation(stages_from_graph(used_twice()), 18)
    relaxation.choose(2)
    answer = relaxation.program.solve_lp(time_limit_seconds=None)
    assert answer.values is not None
    assert overloaded_stages(relaxation, answer.values) == [4]
    relaxation.choose(4)
    values = relaxation.program.solve_lp(time_limit_seconds=None).values
    assert values is not None
    assert overloaded_stages(relaxation, values) == []


def test_runs_are_told_by_node_and_span() -> None:
    relaxation = AbsenceRelaxation(stages_from_graph(used_twice()), 18)
    relaxation.choose(2)
    assert set(relaxation.runs()) == {(0, Interval(2, 3))}  # u's node, after v's use at 2 and up to its own at 3
    assert relaxation.run_value(0, 2, 3, np.ones(relaxation.program.num_variables)) >= 1.0


def test_what_is_made_only_later_is_not_asked_for_before() -> None:
    """A recomputation of u reads r, which is made for the first time after u has left."""
    nodes = (
        Node("u", "op", 5, (), (Value("u", 8),), recompute_inputs=("r",)),
        Node("v", "op", 1, ("u",), (Value("v", 1),)),
        Node("big", "op", 1, ("v",), (Value("big", 9),)),
        Node("r", "op", 50, ("big",), (Value("r", 1),)),
        Node("end", "op", 1, ("u", "r"), (Value("end", 1),)),
    )
    graph = Graph("later", (), nodes, ("end",), tuple(node.name for node in nodes), "unit")
    assert absence_bound(graph, 10).duration == 58 + 5


def test_what_is_held_was_there_before_or_ran_in_between() -> None:
    graph = plain(
        "chain",
        ("p", 7, (), 4),
        ("a", 1, ("p",), 9),
        ("b", 1, ("a",), 9),
        ("c", 1, ("p", "b"), 9),
        ("d", 1, ("c",), 9),
        ("end", 1, ("d",), 1),
    )
    relaxation = AbsenceRelaxation(stages_from_graph(graph), 14)
    relaxation.choose(2)  # p is live here: used at 3
    relaxation.choose(4)  # and dead here
    relaxation.add_chain(0, 2, 4)
    row = relaxation.program.rows[-1]
    absent, held = relaxation.changed()[0, 2], relaxation.changed()[0, 4]
    runs = set(row.terms) - {absent, held}
    assert runs

    def is_met(*ones: int) -> bool:
        return sum(row.terms[variable] for variable in ones) >= row.least

    assert is_met(held)  # it stayed
    assert is_met(absent)
    assert not is_met(held, absent)  # from nowhere
    assert all(is_met(held, absent, run) for run in runs)


def test_a_path_row_asks_for_a_stop_or_a_run() -> None:
    relaxation = AbsenceRelaxation(stages_from_graph(three_deep()), 20)
    relaxation.choose(4)
    root = relaxation.absent(2, 4)
    relaxation.add_path(root, (1, 0), 4, 6, node=0)
    row = relaxation.program.rows[-1]
    held_p, held_q = relaxation.changed()[1, 4], relaxation.changed()[0, 4]
    (run,) = set(row.terms) - {root, held_p, held_q}

    def is_met(*ones: int) -> bool:
        return sum(row.terms[variable] for variable in ones) >= row.least

    assert not is_met(root)
    assert all(is_met(root, other) for other in (held_p, held_q, run))


def test_branch_and_bound_can_be_cut_short() -> None:
    options = AbsenceOptions(max_search_nodes=0)
    assert 10 <= absence_solution(used_twice(), 18, options=options).bound.duration <= 20


def test_no_time_still_gives_a_bound() -> None:
    bound = absence_bound(three_deep(), 20, time_limit_seconds=0.0)
    assert 23 <= bound.duration <= 42
    assert not bound.is_infeasible
