"""The budget, at every first execution and, as far as no order within the stage can help, at every recomputation."""

from __future__ import annotations

from collections.abc import Mapping

from ortools.sat.python import cp_model

from lowtide.planners.cpsat.problem import Problem
from lowtide.planners.cpsat.variables import Variables

__all__ = ["add_first_execution_memory", "add_recomputation_memory", "passing_literals"]


def add_first_execution_memory(model: cp_model.CpModel, problem: Problem, variables: Variables, stage: int) -> None:
    """What is present at the first execution of a stage, and its workspace, fit the budget."""
    sizes = [
        storage.size_bytes * variables.present[stage, index]
        for index, storage in enumerate(problem.storages)
        if storage.size_bytes and (stage, index) in variables.present
    ]
    model.add(sum(sizes) + problem.workspace_bytes_at(stage) <= problem.budget_bytes)


def passing_literals(
    model: cp_model.CpModel, problem: Problem, variables: Variables, stage: int
) -> dict[int, cp_model.IntVar]:
    """For each storage that can pass a stage a literal that is true at least where it does.

    A storage passes a stage if it is present at the first execution before it and at its own, and is not made again in
    between: then it stays all the while, in whatever order the stage's recomputations run.
    """
    passing: dict[int, cp_model.IntVar] = {}
    for index, storage in enumerate(problem.storages):
        here, before = variables.present.get((stage, index)), variables.present.get((stage - 1, index))
        if not storage.size_bytes or here is None or before is None or storage.column >= stage:
            continue
        made = variables.made(problem, stage, index)
        if made is None or (storage.pinned_from is not None and storage.pinned_from < stage):
            passing[index] = here
            continue
        passing[index] = model.new_bool_var(f"passes {stage} {storage.root}")
        model.add_bool_or([~here, made, passing[index]])
    return passing


def add_recomputation_memory(
    model: cp_model.CpModel, problem: Problem, variables: Variables, stage: int, passing: Mapping[int, cp_model.IntVar]
) -> None:
    """When a column runs again, what passes its stage and what it reads and makes fit the budget together.

    Args:
        model: Receives one variable and one row for each column that can run.
        problem: What is planned.
        variables: Of the model.
        stage: In which the columns run.
        passing: From :func:`passing_literals`.
    """
    columns = list(problem.runs_in(stage))
    if not columns:
        return
    size_bytes = [storage.size_bytes for storage in problem.storages]
    total = model.new_int_var(0, problem.budget_bytes, f"bytes that pass {stage}")
    model.add(total >= sum(size_bytes[index] * literal for index, literal in passing.items()))
    for position in columns:
        column = problem.columns[position]
        needed = column.fresh_bytes + column.workspace_bytes + sum(size_bytes[index] for index in column.reads)
        counted_twice = sum(size_bytes[index] * passing[index] for index in column.reads if index in passing)
        row = model.add(total - counted_twice + needed <= problem.budget_bytes)
        row.only_enforce_if(variables.runs[stage, position])
