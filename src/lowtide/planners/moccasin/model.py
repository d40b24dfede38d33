"""The whole model, one constraint after another."""

from __future__ import annotations

from collections.abc import Sequence

from ortools.sat.python import cp_model

from lowtide.planners.moccasin.constraints.executions import add_execution_order
from lowtide.planners.moccasin.constraints.implied import add_implied
from lowtide.planners.moccasin.constraints.memory import add_cumulative_memory
from lowtide.planners.moccasin.constraints.precedence import add_input_retained
from lowtide.planners.moccasin.constraints.retention import (
    add_copy_order,
    add_discarded_copy,
    add_end_after_start,
    add_unevictable,
)
from lowtide.planners.moccasin.constraints.sharing import (
    add_instance_holds_copy,
    add_instance_outlives_own_copy,
    add_overwrite,
    add_shared_instance,
    add_shares_sibling,
)
from lowtide.planners.moccasin.problem import Problem, RetainedValue
from lowtide.planners.moccasin.variables import Execution, Variables, make_variables

__all__ = ["MAX_IMPLIED_LITERALS", "build_model", "num_implied_literals", "total_duration"]

MAX_IMPLIED_LITERALS = 400_000
"""Above so many literals (copies x stages) the implied constraints are left out: they cost more than they give."""

_Literal = cp_model.IntVar


def build_model(
    problem: Problem, *, max_implied_literals: int = MAX_IMPLIED_LITERALS
) -> tuple[cp_model.CpModel, Variables]:
    """Build the model of a problem, without an objective.

    Args:
        problem: What to plan.
        max_implied_literals: Leave the implied constraints out where they need more; 0 gives the paper's model alone.
    """
    model = cp_model.CpModel()
    variables = make_variables(model, problem)
    for executions in variables.executions:
        add_execution_order(model, executions)
    _add_retention(model, problem, variables)
    _add_precedence(model, problem, variables)
    _add_sharing(model, problem, variables)
    add_cumulative_memory(model, problem, variables)
    if num_implied_literals(problem) <= max_implied_literals:
        add_implied(model, problem, variables)
    return model, variables


def num_implied_literals(problem: Problem) -> int:
    """How many literals the implied constraints would need: stages in which each copy can be retained, and run."""
    num_stages = len(problem.columns)
    return sum(3 * value.max_copies * (num_stages - (value.column or 0)) for value in problem.values)


def total_duration(problem: Problem, variables: Variables) -> cp_model.LinearExprT:
    """The duration of the plan: of all executions that are present."""
    return sum(
        column.duration * execution.is_present
        for column, executions in zip(problem.columns, variables.executions, strict=True)
        for execution in executions
    )


def _add_retention(model: cp_model.CpModel, problem: Problem, variables: Variables) -> None:
    for value in problem.values:
        copies = variables.copies[value.name]
        for copy in copies:
            add_end_after_start(model, copy)
            add_discarded_copy(model, copy)
        add_copy_order(model, copies)


def _add_precedence(model: cp_model.CpModel, problem: Problem, variables: Variables) -> None:
    for value in problem.values:
        copies = variables.copies[value.name]
        for reader in value.readers:
            add_input_retained(model, copies, variables.executions[reader])
        for reader in value.recompute_readers:
            add_input_retained(model, copies, variables.executions[reader][1:])


def _add_sharing(model: cp_model.CpModel, problem: Problem, variables: Variables) -> None:
    for root, sharers in problem.sharers_by_root.items():
        overwritings: list[tuple[RetainedValue, int, Execution]] = []
        for instance in variables.instances.get(root, ()) if sharers else ():
            add_instance_outlives_own_copy(model, instance)
        for value in sharers:
            _add_shared_copies(model, problem, value, variables)
            if value.is_overwrite and value.column is not None:
                executions = variables.executions[value.column][: value.max_copies]
                overwritings += [(value, index, execution) for index, execution in enumerate(executions)]
        for overwriting in overwritings:
            _add_overwriting(model, problem, overwriting, variables)
        _add_unevictable_values(model, problem, root, overwritings, variables)


def _add_shared_copies(model: cp_model.CpModel, problem: Problem, value: RetainedValue, variables: Variables) -> None:
    assert value.shares is not None
    target = problem.value_by_name[value.shares]
    instances = variables.instances[problem.root_by_value[value.name]]
    target_choices = variables.is_in_instance.get(target.name)
    for index, copy in enumerate(variables.copies[value.name]):
        choices = variables.is_in_instance[value.name][index]
        add_instance_holds_copy(model, copy, choices, instances)
        if target.column == value.column:
            of_target = None if target_choices is None else target_choices[index]
            add_shares_sibling(model, copy, choices, of_target, index)
        else:
            add_shared_instance(model, copy, choices, variables.copies[target.name], target_choices)


def _add_overwriting(
    model: cp_model.CpModel,
    problem: Problem,
    overwriting: tuple[RetainedValue, int, Execution],
    variables: Variables,
) -> None:
    value, index, execution = overwriting
    root = problem.root_by_value[value.name]
    for other in (problem.value_by_name[root], *problem.sharers_by_root[root]):
        for other_index, copy in enumerate(variables.copies[other.name]):
            if (other.name, other_index) != (value.name, index):
                choices = _choices_of(model, other, other_index, variables)
                add_overwrite(model, execution, variables.is_in_instance[value.name][index], copy, choices)


def _choices_of(model: cp_model.CpModel, value: RetainedValue, index: int, variables: Variables) -> Sequence[_Literal]:
    if value.shares is not None:
        return variables.is_in_instance[value.name][index]
    num_instances = len(variables.instances[value.name])
    return [model.new_constant(int(instance == index)) for instance in range(num_instances)]


def _add_unevictable_values(
    model: cp_model.CpModel,
    problem: Problem,
    root: str,
    overwritings: Sequence[tuple[RetainedValue, int, Execution]],
    variables: Variables,
) -> None:
    for value in (problem.value_by_name[root], *problem.sharers_by_root[root]):
        if value.is_evictable:
            continue
        first_choices = _choices_of(model, value, 0, variables)
        ends: list[tuple[Execution, _Literal]] = []
        for other, index, execution in overwritings:
            for taken, shared in zip(variables.is_in_instance[other.name][index], first_choices, strict=True):
                both = model.new_bool_var("")
                model.add_implication(both, taken)
                model.add_implication(both, shared)
                ends.append((execution, both))
        add_unevictable(model, variables.copies[value.name][0], problem.last_event, ends)
