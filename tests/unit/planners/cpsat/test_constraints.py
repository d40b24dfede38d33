"""Every constraint allows what it should and forbids what it should, one at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lowtide.planners.cpsat.constraints.copies import add_copies
from lowtide.planners.cpsat.constraints.inputs import add_inputs
from lowtide.planners.cpsat.constraints.memory import (
    add_first_execution_memory,
    add_recomputation_memory,
    passing_literals,
)
from lowtide.planners.cpsat.constraints.presence import add_presence

A, B, C, D = range(4)
Pairs = list[tuple[int, int]]


@pytest.mark.parametrize(
    ("runs", "present", "is_allowed"),
    [
        ([], [(2, A), (3, A)], True),  # stays
        ([(3, A)], [(3, A)], True),  # made again
        ([], [(3, A)], False),  # from nowhere
        ([(2, A)], [(3, A)], False),  # made again too early and dropped
        ([], [], True),
    ],
)
def test_presence(make_bench: Any, runs: Pairs, present: Pairs, is_allowed: bool) -> None:
    bench = make_bench()
    bench.decide(runs=[*runs, (3, B)], present=present)
    add_presence(bench.model, bench.problem, bench.variables, 3)
    assert bench.is_feasible() is is_allowed


@pytest.mark.parametrize(
    ("runs", "present", "is_allowed"), [([], [], False), ([(3, B)], [], True), ([], [(2, B)], True)]
)
def test_presence_of_what_the_stage_itself_reads(
    make_bench: Any, runs: Pairs, present: Pairs, is_allowed: bool
) -> None:
    bench = make_bench()
    bench.decide(runs=runs, present=present)
    add_presence(bench.model, bench.problem, bench.variables, 3)
    assert bench.is_feasible() is is_allowed


def test_presence_of_what_cannot_return(make_bench: Any) -> None:
    bench = make_bench()
    storages = list(bench.problem.storages)
    storages[A] = replace(storages[A], can_return=False)
    bench.problem = replace(bench.problem, storages=tuple(storages))
    bench.decide(runs=[(3, A), (3, B)], present=[(3, A)])
    add_presence(bench.model, bench.problem, bench.variables, 3)
    assert not bench.is_feasible()


@pytest.mark.parametrize(
    ("runs", "present", "is_allowed"),
    [
        ([(3, B)], [], False),
        ([(3, B), (3, A)], [], True),
        ([(3, B)], [(2, A)], True),
        ([(3, B), (2, A)], [], False),
        ([], [], True),
    ],
)
def test_inputs(make_bench: Any, runs: Pairs, present: Pairs, is_allowed: bool) -> None:
    bench = make_bench()
    bench.decide(runs=runs, present=present)
    add_inputs(bench.model, bench.problem, bench.variables, 3, B)
    assert bench.is_feasible() is is_allowed


@pytest.mark.parametrize(
    ("budget_bytes", "present", "is_allowed"),
    [
        (9, [(2, A), (2, B)], True),  # 2 + 3 + 4
        (8, [(2, A), (2, B)], False),
        (8, [(2, B)], True),
        (3, [], False),  # c alone
    ],
)
def test_first_execution_memory(make_bench: Any, budget_bytes: int, present: Pairs, is_allowed: bool) -> None:
    bench = make_bench(budget_bytes=budget_bytes)
    bench.decide(runs=[], present=present)
    add_first_execution_memory(bench.model, bench.problem, bench.variables, 2)
    assert bench.is_feasible() is is_allowed


@pytest.mark.parametrize(("budget_bytes", "is_allowed"), [(10, False), (11, True)])
def test_first_execution_memory_counts_the_workspace(make_bench: Any, budget_bytes: int, is_allowed: bool) -> None:
    bench = make_bench(budget_bytes=budget_bytes, workspace_bytes=2)
    bench.decide(runs=[], present=[(2, A), (2, B)])
    add_first_execution_memory(bench.model, bench.problem, bench.variables, 2)
    assert bench.is_feasible() is is_allowed


@pytest.mark.parametrize(
    ("budget_bytes", "runs", "present", "is_allowed"),
    [
        (9, [(3, B)], [(2, A), (2, C), (3, C)], True),  # c passes: 4 + a 2 + b 3
        (8, [(3, B)], [(2, A), (2, C), (3, C)], False),
        (5, [(3, B)], [(2, A)], True),  # c can be dropped before
        (4, [(3, B)], [(2, A)], False),
        (5, [(3, B)], [(2, A), (3, A)], True),  # a passes and is read: it counts once
        (5, [(3, B), (3, A)], [(2, A), (3, A)], True),  # a is made again: it does not pass
        (7, [], [(2, B), (2, C), (3, C)], True),  # nothing runs: b and c pass
        (6, [], [(2, B), (2, C), (3, C)], False),
    ],
)
def test_recomputation_memory(
    make_bench: Any, budget_bytes: int, runs: Pairs, present: Pairs, is_allowed: bool
) -> None:
    bench = make_bench(budget_bytes=budget_bytes)
    bench.decide(runs=runs, present=present)
    passing = passing_literals(bench.model, bench.problem, bench.variables, 3)
    add_recomputation_memory(bench.model, bench.problem, bench.variables, 3, passing)
    assert bench.is_feasible() is is_allowed


def test_recomputation_memory_counts_what_cannot_leave_and_its_fresh_copy(make_bench: Any) -> None:
    for budget_bytes, is_allowed in ((6, True), (5, False)):
        bench = make_bench(budget_bytes=budget_bytes)
        storages = list(bench.problem.storages)
        storages[B] = replace(storages[B], pinned_from=1, size_bytes=1)
        bench.problem = replace(bench.problem, storages=tuple(storages))
        bench.decide(runs=[(3, B)], present=[(2, A), (2, B), (3, B)])
        passing = passing_literals(bench.model, bench.problem, bench.variables, 3)
        add_recomputation_memory(bench.model, bench.problem, bench.variables, 3, passing)
        assert bench.is_feasible() is is_allowed  # the old b 1, a 2, the fresh copy 3


@pytest.mark.parametrize(
    ("max_copies", "runs", "is_allowed"),
    [
        (None, [(1, A), (2, A), (3, A)], True),
        (3, [(1, A), (2, A), (3, A)], False),
        (3, [(1, A), (3, A)], True),
        (1, [(3, A)], False),
        (1, [], True),
    ],
)
def test_copies(make_bench: Any, max_copies: int | None, runs: Pairs, is_allowed: bool) -> None:
    bench = make_bench(max_copies=max_copies)
    bench.decide(runs=runs, present=[])
    add_copies(bench.model, bench.problem, bench.variables, A)
    assert bench.is_feasible() is is_allowed
