"""A small instance by hand, and a way to ask whether a constraint allows a choice."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any

import pytest

from lowtide.planners.checkmate.instance import Instance
from lowtide.planners.checkmate.program import Program
from lowtide.planners.checkmate.variables import Variables, make_variables


class Bench:
    """A program of an instance in which everything is decided but what one constraint says."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.program = Program()
        self.variables: Variables = make_variables(self.program, instance)

    def decide(
        self,
        *,
        runs: Collection[tuple[int, int]] = (),
        kept: Collection[tuple[int, int]] = (),
        freed: Collection[tuple[int, int, int]] = (),
    ) -> None:
        """Fix R, S and FREE; first executions take place."""
        self._fix(self.variables.runs, [*runs, *((stage, stage) for stage in range(self.instance.num_nodes))])
        self._fix(self.variables.kept, kept)
        self._fix(self.variables.freed, freed)

    def _fix(self, variables: Any, chosen: Iterable[Any]) -> None:
        wanted = set(chosen)
        assert wanted <= variables.keys()
        for key, variable in variables.items():
            self.program.fix(variable, float(key in wanted))

    def is_feasible(self) -> bool:
        solved = self.program.solve(are_whole=True)
        assert solved.is_infeasible != solved.is_optimal
        return solved.is_optimal


@pytest.fixture
def make_bench() -> Callable[..., Bench]:
    """``make_bench(budget_bytes=8)``: node 0 makes a (2 bytes), 1 reads a and makes b (3), 2 makes c (4), 3 reads b."""

    def make(**changes: Any) -> Bench:
        reads: tuple[tuple[int, ...], ...] = ((), (0,), (), (1,))
        instance = Instance(
            durations=(5, 5, 5, 5),
            workspaces=(0, 0, 0, 0),
            dropped=(0, 0, 0, 0),
            reads=reads,
            reads_again=reads,
            makes=((0,), (1,), (2,), (3,)),
            makes_again=((0,), (1,), (2,), (3,)),
            last_stages=(3, 3, 3, 3),
            users=((1,), (3,), (), ()),
            sizes=(2, 3, 4, 1),
            producers=(0, 1, 2, 3),
            is_kept=(False, False, False, True),
            budget_bytes=8,
            max_copies=None,
        )
        return Bench(replace(instance, **changes))

    return make
