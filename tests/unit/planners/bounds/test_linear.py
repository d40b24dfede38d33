"""A program that grows between solves is bounded like one that is built at once; rows that do nothing are dropped."""

from __future__ import annotations

import time
from random import Random

import numpy as np

from lowtide.planners.bounds.covering import CoverProgram
from lowtide.planners.bounds.linear import LinearSession


def grow(program: CoverProgram, rng: Random) -> None:
    """Add a few variables and a row over some of all, which all of them together can meet."""
    for _ in range(3):
        program.add_variable(cost=rng.randint(1, 50))
    chosen = rng.sample(range(program.num_variables), min(program.num_variables, 4))
    terms = [(variable, rng.randint(1, 9)) for variable in chosen]
    program.add_row(terms, least=rng.randint(1, sum(size for _, size in terms)))


def test_growing_gives_the_bound_of_a_fresh_solve() -> None:
    rng = Random(5)
    program = CoverProgram()
    session = LinearSession(program)
    for _ in range(25):
        grow(program, rng)
        found = session.solve(ends=None)
        assert found.is_solved
        assert found.cost == program.solve_lp(time_limit_seconds=None).cost
    assert found.values is not None
    assert found.cost - 1 < program.cost_of(found.values) <= found.cost + 1e-6


def test_a_changed_row_is_seen() -> None:
    program = CoverProgram()
    cheap, dear = program.add_variable(cost=1), program.add_variable(cost=10)
    row = program.add_row([(cheap, 4), (dear, 4)], least=4)
    session = LinearSession(program)
    assert session.solve(ends=None).cost == 1
    program.change_row(row, cheap, by=-4)
    assert session.solve(ends=None).cost == 10
    assert program.solve_mip(time_limit_seconds=None).cost == 10


def test_idle_rows_are_dropped_and_kept_ones_are_not() -> None:
    program = CoverProgram()
    variables = [program.add_variable(cost=100) for _ in range(8)]
    kept = program.add_row([(variables[0], 2)], least=0, is_kept=True)
    for _ in range(5):
        program.add_row([(variables[1], 2)], least=0)
    session = LinearSession(program)
    for variable in variables[2:]:
        program.add_row([(variable, 1)], least=1)
        session.solve(ends=None)
    assert program.num_rows < 12
    assert kept in program.rows
    assert session.solve(ends=None).cost == 600


def test_a_contradiction_between_rows_is_proven() -> None:
    program = CoverProgram()
    one, other = program.add_variable(cost=1), program.add_variable(cost=1)
    program.add_row([(one, 1), (other, 1)], least=2)
    program.add_row([(one, -1), (other, -1)], least=-1)
    assert LinearSession(program).solve(ends=None).is_infeasible
    assert program.solve_lp(time_limit_seconds=None).is_infeasible


def test_time_that_is_over_gives_no_wrong_bound() -> None:
    rng = Random(7)
    program = CoverProgram()
    for _ in range(30):
        grow(program, rng)
    optimum = program.solve_mip(time_limit_seconds=None)
    stopped = LinearSession(program).solve(ends=time.monotonic() - 1.0)
    assert 0 <= stopped.cost <= optimum.cost
    assert optimum.values is not None
    assert np.allclose(optimum.values, np.round(optimum.values), atol=1e-6)


def test_bounds_are_multiples_of_what_divides_all_costs() -> None:
    program = CoverProgram()
    items = [(program.add_variable(cost=6), 3), (program.add_variable(cost=10), 4)]
    program.add_row(items, least=4)  # fractional: 6 + 10 / 4 = 8.5, and costs are even
    assert program.solve_lp(time_limit_seconds=None).cost == 10
