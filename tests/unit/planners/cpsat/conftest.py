"""A small problem by hand, and a way to ask whether a constraint allows a choice."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from ortools.sat.python import cp_model

from lowtide.planners.cpsat.problem import Column, Problem, Storage
from lowtide.planners.cpsat.variables import Variables, make_variables


class Bench:
    """A model of a problem in which everything is decided but what one constraint says."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.model = cp_model.CpModel()
        self.variables: Variables = make_variables(self.model, problem)

    def decide(self, *, runs: Iterable[tuple[int, int]], present: Iterable[tuple[int, int]]) -> None:
        """Fix every run and every presence that is not constant."""
        chosen_runs, chosen_present = set(runs), set(present)
        assert chosen_runs <= self.variables.runs.keys()
        assert chosen_present <= self.variables.present.keys()
        for pair, run in self.variables.runs.items():
            self.model.add(run == int(pair in chosen_runs))
        for (stage, index), literal in self.variables.present.items():
            if not self.problem.storages[index].is_needed_at(stage):
                self.model.add(literal == int((stage, index) in chosen_present))

    def is_feasible(self) -> bool:
        status = cp_model.CpSolver().solve(self.model)
        assert status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
        return status == cp_model.OPTIMAL


@pytest.fixture
def make_bench() -> Callable[..., Bench]:
    """``make_bench(budget_bytes=8, max_copies=None)``: a (2 bytes), b reads a (3), c (4), d reads b (1); d is kept.

    Storage i is made by column i; b is used by nothing but d, a by b alone.
    """

    def make(*, budget_bytes: int = 8, max_copies: int | None = None, workspace_bytes: int = 0) -> Bench:
        sizes, reads = (2, 3, 4, 1), ((), (0,), (), (1,))
        uses = ({0, 1}, {1, 3}, {2}, {3, 4})
        last_stages = (3, 3, 2, 4)
        columns = tuple(
            Column("abcd"[i], 5, workspace_bytes, sizes[i], reads[i], (i,), last_stages[i]) for i in range(4)
        )
        storages = tuple(
            Storage("abcd"[i], i, sizes[i], can_return=True, uses=frozenset(uses[i]), pinned_from=None, last_stage=4)
            for i in range(4)
        )
        return Bench(Problem(columns, storages, 5, budget_bytes, max_copies))

    return make
