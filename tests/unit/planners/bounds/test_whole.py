"""Bounds of programs with whole variables are never above the optimum, however far apart their costs lie."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from lowtide.planners.bounds.covering import CoverProgram
from lowtide.planners.bounds.whole import rounded_up
from lowtide.planners.exact.program import WholeProgram

Rows = list[tuple[list[tuple[int, int]], int]]

POOLS = {
    "far apart": (0, 1, 2, 3, 2**40),
    "nearly equal": (10**9, 10**9 + 1, 10**9 + 3),
    "measured": (1000, 1001, 1500, 2003, 10**8, 10**8 + 1),
    "within a million": (1, 7, 999_983, 1_000_000),
    "whole microseconds": (1000, 2000, 17_000, 10**8, 10**8 + 1000),
}


def random_rows(rng: Random, num_variables: int) -> Rows:
    rows: Rows = []
    for _ in range(rng.randint(1, 5)):
        terms = [(variable, rng.randint(1, 9)) for variable in rng.sample(range(num_variables), rng.randint(1, 3))]
        rows.append((terms, rng.randint(1, sum(size for _, size in terms))))
    return rows


def least_cost(costs: list[int], rows: Rows) -> int:
    return min(
        sum(cost for cost, chosen in zip(costs, choice, strict=True) if chosen)
        for choice in product((0, 1), repeat=len(costs))
        if all(sum(size * choice[variable] for variable, size in terms) >= least for terms, least in rows)
    )


def bounds_of(costs: list[int], rows: Rows) -> tuple[int, int]:
    whole, cover = WholeProgram(), CoverProgram()
    for program in (whole, cover):
        for cost in costs:
            program.add_variable(cost=cost)
        for terms, least in rows:
            program.add_row(terms, least=least)
    return (
        whole.solve(time_limit_seconds=None, max_search_nodes=None).cost,
        cover.solve_mip(time_limit_seconds=None).cost,
    )


@pytest.mark.parametrize("pool", sorted(POOLS))
def test_no_bound_is_above_the_optimum(pool: str) -> None:
    rng = Random(pool)
    for _ in range(60):
        costs = [rng.choice(POOLS[pool]) for _ in range(rng.randint(3, 7))]
        rows = random_rows(rng, len(costs))
        optimum = least_cost(costs, rows)
        found = bounds_of(costs, rows)
        assert max(found) <= optimum, (costs, rows)
        if pool in ("within a million", "whole microseconds"):
            assert found == (optimum, optimum)


@pytest.mark.parametrize(
    ("bound", "costs", "whole"),
    [
        (0.0, [3], 0),
        (float("inf"), [3], 0),
        (6.9999999, [3, 6], 9),
        (7.0, [7], 7),
        (7.0000001, [7, 1], 7),
        (1e8 + 900, [1000, 10**8], 10**8 + 1000),
        (1e9, [10**9, 1], 10**9 - 100),  # what the solver does not see: a ten-millionth of the largest cost
    ],
)
def test_it_is_the_next_sum_of_costs_less_the_tolerance(bound: float, costs: list[int], whole: int) -> None:
    assert rounded_up(bound, costs) == whole
