"""The whole model, one constraint after another, and a stage's further cuts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ortools.sat.python import cp_model

from lowtide.planners.cpsat.constraints.copies import add_copies
from lowtide.planners.cpsat.constraints.inputs import add_inputs
from lowtide.planners.cpsat.constraints.memory import (
    add_first_execution_memory,
    add_recomputation_memory,
    passing_literals,
)
from lowtide.planners.cpsat.constraints.presence import add_presence
from lowtide.planners.cpsat.problem import Problem
from lowtide.planners.cpsat.variables import Variables, make_variables

__all__ = ["Model", "build_model"]


@dataclass(frozen=True)
class Model:
    """A model, its variables, and what its objective is made of.

    Attributes:
        model: For the solver.
        variables: Decisions.
        problem: What is planned.
        extras: By stage: duration of executions that the cuts found beyond one run of each column.
    """

    model: cp_model.CpModel
    variables: Variables
    problem: Problem
    extras: dict[int, cp_model.IntVar] = field(default_factory=dict)

    @property
    def extra_duration(self) -> cp_model.LinearExprT:
        """The objective: duration of all executions beyond the first ones."""
        columns = self.problem.columns
        runs = sum(columns[column].duration * run for (_, column), run in self.variables.runs.items())
        return runs + sum(self.extras.values())

    def add_cut(self, stage: int, escapes: Sequence[cp_model.LiteralT], extra_duration: int | None) -> None:
        """Add what was found out about a stage.

        Args:
            stage: Which.
            escapes: One of these literals is true, or else:
            extra_duration: The stage takes so much more than one run of each of its columns; None: it is impossible.
        """
        if extra_duration is None:
            self.model.add_bool_or(escapes)
            return
        if stage not in self.extras:
            most = sum(column.duration for column in self.problem.columns) * self.problem.num_stages
            self.extras[stage] = self.model.new_int_var(0, most, f"extra {stage}")
        is_dearer = self.model.new_bool_var("")
        self.model.add_bool_or([*escapes, is_dearer])
        self.model.add(self.extras[stage] >= extra_duration).only_enforce_if(is_dearer)


def build_model(problem: Problem) -> Model:
    """Build the model of a problem, without its objective."""
    model = cp_model.CpModel()
    variables = make_variables(model, problem)
    for stage in range(problem.num_stages):
        add_presence(model, problem, variables, stage)
        add_first_execution_memory(model, problem, variables, stage)
        passing = passing_literals(model, problem, variables, stage)
        add_recomputation_memory(model, problem, variables, stage, passing)
        for column in problem.runs_in(stage):
            add_inputs(model, problem, variables, stage, column)
    for column in range(len(problem.columns)):
        add_copies(model, problem, variables, column)
    return Model(model, variables, problem)
