"""Most executions of a node."""

from __future__ import annotations

from ortools.sat.python import cp_model

from lowtide.planners.cpsat.problem import Problem
from lowtide.planners.cpsat.variables import Variables

__all__ = ["add_copies"]


def add_copies(model: cp_model.CpModel, problem: Problem, variables: Variables, column: int) -> None:
    """A column runs again in at most ``max_copies - 1`` stages; any number without ``max_copies``."""
    if problem.max_copies is None:
        return
    runs = [variables.runs[stage, column] for stage in problem.runs_of(column)]
    if len(runs) >= problem.max_copies:
        model.add(sum(runs) <= problem.max_copies - 1)
