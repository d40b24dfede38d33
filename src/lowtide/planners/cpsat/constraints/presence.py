"""What is present at a stage was so at the stage before, or is made again in between."""

from __future__ import annotations

from ortools.sat.python import cp_model

from lowtide.planners.cpsat.problem import Problem
from lowtide.planners.cpsat.variables import Variables

__all__ = ["add_presence"]


def add_presence(model: cp_model.CpModel, problem: Problem, variables: Variables, stage: int) -> None:
    """A storage present at a stage was present at the one before, or its column runs in this one.

    Args:
        model: Receives one clause for each storage that was made before the stage.
        problem: What is planned.
        variables: Of the model.
        stage: From 0; at stage 0 only graph inputs were made before.
    """
    for index, storage in enumerate(problem.storages):
        here = variables.present.get((stage, index))
        if here is None or storage.column >= stage:
            continue
        sources = (variables.present.get((stage - 1, index)), variables.made(problem, stage, index))
        model.add_bool_or([~here, *(source for source in sources if source is not None)])
