"""Variables whose values are known, and a way to ask whether constraints allow them."""

from __future__ import annotations

import pytest
from ortools.sat.python import cp_model

from lowtide.planners.moccasin.variables import Copy, Execution, Instance


class Bench:
    """A model to put fixed variables and one constraint into."""

    def __init__(self) -> None:
        self.model = cp_model.CpModel()

    def literal(self, value: bool) -> cp_model.IntVar:
        return self.model.new_constant(int(value))

    def execution(self, start: int, *, present: bool = True) -> Execution:
        return Execution(self.model.new_constant(start), self.literal(present))

    def copy(self, start: int, end: int, *, present: bool = True, discarded: bool | None = None) -> Copy:
        return Copy(
            self.model.new_constant(start),
            self.model.new_constant(end),
            self.literal(present),
            None if discarded is None else self.literal(discarded),
        )

    def instance(self, copy: Copy, end: int, size_bytes: int = 1) -> Instance:
        return Instance(copy, self.model.new_constant(end), size_bytes)

    def is_feasible(self) -> bool:
        status = cp_model.CpSolver().solve(self.model)
        assert status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
        return status == cp_model.OPTIMAL


@pytest.fixture
def bench() -> Bench:
    return Bench()
