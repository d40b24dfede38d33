"""What a recomputation reads was present at the stage before, or is made again in the same stage."""

from __future__ import annotations

from ortools.sat.python import cp_model

from lowtide.planners.cpsat.problem import Problem
from lowtide.planners.cpsat.variables import Variables

__all__ = ["add_inputs"]


def add_inputs(model: cp_model.CpModel, problem: Problem, variables: Variables, stage: int, column: int) -> None:
    """If a column runs again in a stage, each storage that it reads was present before or is made in the stage.

    Args:
        model: Receives one clause for each storage read.
        problem: What is planned.
        variables: Of the model.
        stage: In which the column runs.
        column: Which runs.
    """
    for index in problem.columns[column].reads:
        sources = (variables.present.get((stage - 1, index)), variables.made(problem, stage, index))
        model.add_bool_or([~variables.runs[stage, column], *(source for source in sources if source is not None)])
