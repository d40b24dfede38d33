"""One stage by itself: carried out in order, in any order, or not at all; and what follows from that."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from random import Random

import pytest
from ortools.sat.python import cp_model

from lowtide.planners.cpsat.cuts import add_stage_cut, easiest_case
from lowtide.planners.cpsat.model import build_model
from lowtide.planners.cpsat.problem import Column, Problem, Storage
from lowtide.planners.cpsat.stages import Carried, StageCase, carry_out, carry_out_in_order, is_beyond

A, B, C, D = range(4)


def tangled(*, budget_bytes: int = 8, c_reads: tuple[int, ...] = ()) -> Problem:
    """a (4 bytes) is read by b and d, c (1 byte) takes 6 bytes of workspace and is read by d; then a gap, then the end.

    Within 8 bytes c cannot run beside a: it has to come first, though a and b come first in the order.
    """
    sizes, reads, workspaces = (4, 1, 1, 1), ((), (A,), c_reads, (A, C)), (0, 0, 6, 0)
    columns = [Column("abcd"[i], 10**i, workspaces[i], sizes[i], reads[i], (i,), 5) for i in range(4)]
    storages = [Storage("abcd"[i], i, sizes[i], True, frozenset({i}), None, 5) for i in range(4)]
    gap, end = Column("gap", 1, 0, 0, (), (), 4), Column("end", 1, 0, 0, (B, D), (), 5)
    return Problem((*columns, gap, end), tuple(storages), 6, budget_bytes, None)


def case(*runs: int, before: tuple[int, ...] = (), after: tuple[int, ...] = (B, D)) -> StageCase:
    return StageCase(5, frozenset(before), frozenset(after), runs)


def test_a_stage_that_runs_in_order() -> None:
    assert carry_out_in_order(tangled(budget_bytes=12), case(A, B, C, D))
    assert carry_out_in_order(tangled(), case(B, D, before=(A, C)))
    assert not carry_out_in_order(tangled(), case(B, D, before=(A,)))  # d lacks c
    assert not carry_out_in_order(tangled(budget_bytes=11), case(A, B, C, D))  # c beside a and b: 4 + 1 + 1 + 6


def test_another_order_is_found() -> None:
    assert not carry_out_in_order(tangled(), case(A, B, C, D))
    carried = carry_out(tangled(), case(A, B, C, D))
    assert carried is not None
    assert carried.sequence is not None
    assert carried.sequence[0] == C
    assert carried.duration == 1111


def test_a_node_runs_twice_where_it_must() -> None:
    problem = tangled(c_reads=(B,))  # b needs a, c needs b and room, d needs a
    carried = carry_out(problem, case(A, B, C, D))
    assert carried == Carried((A, B, C, A, D), 1112)
    assert is_beyond(problem, case(A, B, C, D), extra_duration=1, max_states=1000)
    assert not is_beyond(problem, case(A, B, C, D), extra_duration=2, max_states=1000)
    assert not is_beyond(problem, case(A, B, C, D), extra_duration=None, max_states=1000)


def test_a_node_does_not_run_more_often_than_it_may() -> None:
    problem = replace(tangled(c_reads=(B,)), max_copies=2)  # a would run twice
    assert carry_out(problem, case(A, B, C, D)) == Carried(None)
    assert carry_out(replace(problem, max_copies=3), case(A, B, C, D)) == Carried((A, B, C, A, D), 1112)


def test_an_impossible_stage_is_told_from_one_too_large_to_tell() -> None:
    assert carry_out(tangled(budget_bytes=6), case(A, B, C, D)) == Carried(None)
    assert carry_out(tangled(budget_bytes=6), case(A, B, C, D), max_states=2) is None
    assert not is_beyond(tangled(budget_bytes=6), case(A, B, C, D), extra_duration=None, max_states=2)


def test_what_cannot_leave_takes_room() -> None:
    problem = tangled(budget_bytes=9)
    pinned = Storage("p", -1, 2, False, frozenset({-1}), -1, 5)
    problem = replace(problem, storages=(*problem.storages, pinned))
    assert carry_out(problem, case(A, B, C, D, before=(4,), after=(B, D, 4))) != Carried(None)
    tighter = replace(problem, budget_bytes=8)
    assert carry_out(tighter, case(A, B, C, D, before=(4,), after=(B, D, 4))) == Carried(None)


@pytest.mark.parametrize("seed", range(40))
def test_in_order_and_in_any_order_agree_with_all_permutations(seed: int) -> None:
    rng = Random(seed)
    columns = []
    for i in range(5):
        reads = tuple(sorted(rng.sample(range(i), rng.randint(0, min(2, i)))))
        columns.append(Column(f"n{i}", rng.randint(1, 9), rng.choice((0, 3)), rng.randint(1, 5), reads, (i,), 6))
    storages = [Storage(f"n{i}", i, columns[i].fresh_bytes, True, frozenset({i}), None, 6) for i in range(5)]
    budget_bytes = max(
        c.fresh_bytes + c.workspace_bytes + sum(columns[r].fresh_bytes for r in c.reads) for c in columns
    )
    problem = Problem(tuple(columns), tuple(storages), 7, budget_bytes + rng.randint(0, 4), None)
    stage = StageCase(6, frozenset(), frozenset(rng.sample(range(5), 2)), tuple(range(5)))
    orders = [order for order in permutations(range(5)) if runs_in(problem, stage, order)]
    assert carry_out_in_order(problem, stage) == (tuple(range(5)) in orders)
    carried = carry_out(problem, stage)
    assert carried is not None
    if orders:
        assert carried.sequence is not None
        assert carried.duration <= stage.duration(problem)
    if carried.sequence is not None:
        assert runs_in(problem, stage, carried.sequence)


def runs_in(problem: Problem, stage: StageCase, order: tuple[int, ...]) -> bool:
    """Whether columns can run in an order, each copy up to its last use before the next one."""
    for moment, column in enumerate(order):
        resident = problem.columns[column].workspace_bytes
        for index, storage in enumerate(problem.storages):
            made = [m for m in range(moment + 1) if order[m] == index]
            later = [m for m in range(moment, len(order)) if m > 0 and index in problem.columns[order[m]].reads]
            again = [m for m in range(moment + 1, len(order)) if order[m] == index]
            is_wanted = any(not again or m < again[0] for m in later) or (index in stage.after and not again)
            if column == index or (made and is_wanted):
                resident += storage.size_bytes
            if index in problem.columns[column].reads and not made:
                return False
        if resident > problem.budget_bytes:
            return False
    return set(order) >= stage.after


def test_a_cut_is_as_wide_as_it_can_be() -> None:
    problem = tangled(budget_bytes=6)
    easiest = easiest_case(problem, case(C, D, before=(A,), after=(B, D)), extra_duration=None)
    assert easiest.after in (frozenset({D}), frozenset({B}))  # one of them is impossible already
    assert is_beyond(problem, easiest, extra_duration=None, max_states=1000)
    assert set(easiest.runs) >= {C, D}


def test_a_cut_forbids_its_case_and_charges_a_repetition() -> None:
    problem = tangled(c_reads=(B,))
    stage = case(A, B, C, D)
    for is_cut, expected in ((False, 1111), (True, 1112)):
        model = build_model(problem)
        if is_cut:
            carried = carry_out(problem, stage)
            assert carried is not None
            add_stage_cut(model, stage, carried)
        for index in range(4):
            model.model.add(model.variables.present[4, index] == 0)
        model.model.add(model.variables.present[5, B] == 1)
        model.model.add(model.variables.present[5, D] == 1)
        model.model.minimize(model.extra_duration)
        solver = cp_model.CpSolver()
        assert solver.solve(model.model) == cp_model.OPTIMAL
        assert round(solver.objective_value) == expected


def test_of_two_ways_that_cost_the_same_the_shorter_one_is_taken() -> None:
    problem = tangled(budget_bytes=12)
    free = replace(problem, columns=tuple(replace(column, duration=0) for column in problem.columns))
    carried = carry_out(free, case(A, B, C, D))
    assert carried is not None
    assert sorted(carried.sequence or ()) == [A, B, C, D]
