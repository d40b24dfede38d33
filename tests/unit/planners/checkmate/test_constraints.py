"""Every constraint allows what it should and forbids what it should, one at a time."""

from __future__ import annotations

from typing import Any

import pytest

from lowtide.planners.checkmate import constraints

A, B, C, D = range(4)  # nodes, and the storages that they make
Pairs = list[tuple[int, int]]


def test_frontier(make_bench: Any) -> None:
    for is_computed in (True, False):
        bench = make_bench()
        constraints.add_frontier(bench.program, bench.variables, 2)
        row = [(bench.variables.runs[2, C], 1.0)]
        bench.program.add_row(row, least=float(is_computed), most=float(is_computed))
        assert bench.is_feasible() is is_computed


@pytest.mark.parametrize(
    ("runs", "kept", "is_allowed"),
    [([], [], False), ([(3, B)], [], True), ([], [(3, B)], True), ([(2, B)], [(2, B)], False)],
)
def test_dependencies(make_bench: Any, runs: Pairs, kept: Pairs, is_allowed: bool) -> None:
    bench = make_bench()
    bench.decide(runs=runs, kept=kept)
    constraints.add_dependencies(bench.program, bench.instance, bench.variables, 3, D)
    assert bench.is_feasible() is is_allowed


def test_dependencies_of_what_is_not_made_again(make_bench: Any) -> None:
    bench = make_bench(makes_again=((0,), (), (2,), (3,)))
    assert (3, B) not in bench.variables.runs
    bench.decide()
    constraints.add_dependencies(bench.program, bench.instance, bench.variables, 3, D)
    assert not bench.is_feasible()


@pytest.mark.parametrize(
    ("runs", "kept", "is_allowed"),
    [
        ([], [(3, A)], False),
        ([], [(3, A), (2, A)], True),
        ([(2, A)], [(3, A)], True),
        ([(3, A)], [(3, A)], False),  # too late
        ([], [], True),
    ],
)
def test_kept_from_before(make_bench: Any, runs: Pairs, kept: Pairs, is_allowed: bool) -> None:
    bench = make_bench()
    bench.decide(runs=runs, kept=kept)
    constraints.add_kept_from_before(bench.program, bench.instance, bench.variables, 3, A)
    assert bench.is_feasible() is is_allowed


def test_kept_right_after_its_first_execution(make_bench: Any) -> None:
    bench = make_bench()
    bench.decide(kept=[(1, A)])
    constraints.add_kept_from_before(bench.program, bench.instance, bench.variables, 1, A)
    assert bench.is_feasible()


@pytest.mark.parametrize(("kept", "is_allowed"), [([(4, D)], True), ([], False), ([(4, D), (4, C)], False)])
def test_end(make_bench: Any, kept: Pairs, is_allowed: bool) -> None:
    bench = make_bench()
    rows = [(bench.variables.kept[4, index], float((4, index) in kept)) for index in range(4)]
    constraints.add_end(bench.program, bench.instance, bench.variables)
    for variable, value in rows:
        bench.program.add_row([(variable, 1.0)], least=value, most=value)
    assert bench.is_feasible() is is_allowed


@pytest.mark.parametrize(
    ("budget_bytes", "runs", "kept", "freed", "is_allowed"),
    [
        (5, [(2, A)], [(2, B)], [], False),  # b 3 and a 2, then c 4
        (9, [(2, A)], [(2, B)], [], True),
        (7, [(2, A)], [(2, B)], [(2, A, A)], True),  # a is freed before c
        (6, [(2, A)], [(2, B)], [(2, A, A)], False),
        (4, [], [], [], True),
        (3, [], [], [], False),
    ],
)
def test_memory(
    make_bench: Any,
    budget_bytes: int,
    runs: Pairs,
    kept: Pairs,
    freed: list[tuple[int, int, int]],
    is_allowed: bool,
) -> None:
    bench = make_bench(budget_bytes=budget_bytes)
    bench.decide(runs=runs, kept=kept, freed=freed)
    constraints.add_memory(bench.program, bench.instance, bench.variables, 2)
    assert bench.is_feasible() is is_allowed


@pytest.mark.parametrize(("budget_bytes", "is_allowed"), [(6, True), (5, False)])
def test_memory_counts_workspace_and_what_is_dropped_at_once(
    make_bench: Any, budget_bytes: int, is_allowed: bool
) -> None:
    bench = make_bench(budget_bytes=budget_bytes, workspaces=(3, 0, 0, 0), dropped=(1, 0, 0, 0), sizes=(2, 3, 0, 1))
    bench.decide(runs=[(2, A)])
    constraints.add_memory(bench.program, bench.instance, bench.variables, 2)
    assert bench.is_feasible() is is_allowed


@pytest.mark.parametrize(
    ("runs", "kept", "must_be_freed"),
    [
        ([(2, A)], [], True),
        ([], [], False),  # not computed
        ([(2, A)], [(3, A)], False),  # kept
        ([(2, A), (2, B)], [], False),  # b reads it later
    ],
)
def test_freed_if_and_only_if_there_is_no_hazard(
    make_bench: Any, runs: Pairs, kept: Pairs, must_be_freed: bool
) -> None:
    for is_freed in (False, True):
        for add, is_allowed in (
            (constraints.add_freed_if_no_hazard, is_freed or not must_be_freed),
            (constraints.add_unfreed_if_hazard, not is_freed or must_be_freed),
        ):
            bench = make_bench()
            bench.decide(runs=runs, kept=kept, freed=[(2, A, A)] if is_freed else [])
            add(bench.program, bench.instance, bench.variables, 2, A, A)
            assert bench.is_feasible() is is_allowed


@pytest.mark.parametrize(
    ("max_copies", "runs", "is_allowed"),
    [(None, [(1, A), (2, A), (3, A)], True), (3, [(1, A), (2, A), (3, A)], False), (3, [(1, A), (3, A)], True)],
)
def test_copies(make_bench: Any, max_copies: int | None, runs: Pairs, is_allowed: bool) -> None:
    bench = make_bench(max_copies=max_copies)
    bench.decide(runs=runs)
    constraints.add_copies(bench.program, bench.instance, bench.variables, A)
    assert bench.is_feasible() is is_allowed
