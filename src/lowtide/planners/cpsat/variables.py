"""The decision variables: which nodes run again in which stage, and which storages are present at which stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ortools.sat.python import cp_model

from lowtide.planners.cpsat.problem import Problem

__all__ = ["Variables", "make_variables"]


@dataclass(frozen=True)
class Variables:
    """All decision variables of a model.

    Attributes:
        runs: By (stage, column): whether the node of the column runs in the stage beyond its first execution.
        present: By (stage, storage): whether the storage is present at the first execution of the stage; stage -1 is
            the moment before the plan. Constant where every plan agrees; without an entry it is not present.
    """

    runs: Mapping[tuple[int, int], cp_model.IntVar]
    present: Mapping[tuple[int, int], cp_model.IntVar]

    def made(self, problem: Problem, stage: int, storage: int) -> cp_model.IntVar | None:
        """Whether a storage is made again in a stage, or None where it cannot be."""
        owner = problem.storages[storage]
        return self.runs.get((stage, owner.column)) if owner.can_return else None


def make_variables(model: cp_model.CpModel, problem: Problem) -> Variables:
    """Create the variables of a problem."""
    always = model.new_constant(1)
    present: dict[tuple[int, int], cp_model.IntVar] = {}
    for index, storage in enumerate(problem.storages):
        for stage in range(storage.column, problem.num_stages):
            if storage.is_needed_at(stage):
                present[stage, index] = always
            elif storage.may_be_present_at(stage):
                present[stage, index] = model.new_bool_var(f"present {stage} {storage.root}")
    return Variables(
        runs={
            (stage, position): model.new_bool_var(f"run {stage} {column.node}")
            for position, column in enumerate(problem.columns)
            for stage in problem.runs_of(position)
        },
        present=present,
    )
