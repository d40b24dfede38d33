"""The decision variables: executions of nodes, copies of values, and the storage instances that copies lie in.

    events        0   1   2   3   4   5   6
    execution 0   ■                               start 0, always present
    copy 0        ■───────■                       start 0, end 2 (its last use, included)
    execution 1                   ■               start 4, present or not
    copy 1                        ■───────■       start 4, end 6

A copy starts where its execution does, so the two share the variable. Ends are included: a value is evicted right after
its last use, so an interval that ends at event e holds memory at e.

Source: Bartan et al. 2023, section 3.1; their s, e, a are start, end, is_present.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ortools.sat.python import cp_model

from lowtide.planners.moccasin.problem import Column, Problem, RetainedValue

__all__ = ["BEFORE_FIRST_EVENT", "Copy", "Execution", "Instance", "Variables", "make_variables"]

BEFORE_FIRST_EVENT = -1
"""Where the one copy of a graph input starts: it is resident before the first event."""


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a node.

    Attributes:
        start: Its event.
        is_present: Whether it takes place; the first one always does.
    """

    start: cp_model.IntVar
    is_present: cp_model.IntVar


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of a value and its retention interval [start, end], both ends included.

    Attributes:
        start: The event of the execution that makes it.
        end: The event after which it is evicted.
        is_present: Whether it is made.
        is_discarded: Whether an older copy is still resident, so that this one is dropped at once; None where that
            is never of use.
    """

    start: cp_model.IntVar
    end: cp_model.IntVar
    is_present: cp_model.IntVar
    is_discarded: cp_model.IntVar | None


@dataclass(frozen=True, slots=True)
class Instance:
    """The storage that one copy of an owning value allocates, and how long some copy lies in it.

    Attributes:
        copy: The copy that allocates it.
        end: The event after which nothing refers to it; the copy's own end where no other value can lie in it.
        size_bytes: Its bytes.
    """

    copy: Copy
    end: cp_model.IntVar
    size_bytes: int


@dataclass(frozen=True)
class Variables:
    """All variables of a model.

    Attributes:
        executions: By position of the column.
        copies: By value.
        instances: By owning value.
        is_in_instance: For each value that shares a storage and each of its copies: whether it lies in instance i of
            its root, by i.
        capacity: Most bytes retained at any event: max(peak, budget) in phase 1, the budget in phase 2.
    """

    executions: tuple[tuple[Execution, ...], ...]
    copies: Mapping[str, tuple[Copy, ...]]
    instances: Mapping[str, tuple[Instance, ...]]
    is_in_instance: Mapping[str, tuple[tuple[cp_model.IntVar, ...], ...]]
    capacity: cp_model.IntVar


def make_variables(model: cp_model.CpModel, problem: Problem) -> Variables:
    """Create the variables of a problem, their domains being the events that matter."""
    executions = tuple(_executions(model, column) for column in problem.columns)
    copies = {value.name: _copies(model, problem, value, executions) for value in problem.values}
    total_bytes = sum(value.size_bytes * value.max_copies for value in problem.values)
    scratch_bytes = max((column.workspace_bytes for column in problem.columns), default=0)
    most_bytes = max(problem.budget_bytes, total_bytes + scratch_bytes)
    return Variables(
        executions=executions,
        copies=copies,
        instances={v.name: _instances(model, problem, v, copies[v.name]) for v in problem.values if v.shares is None},
        is_in_instance={
            v.name: _choices(model, problem, v, len(copies[v.name])) for v in problem.values if v.shares is not None
        },
        capacity=model.new_int_var(problem.budget_bytes, most_bytes, "capacity"),
    )


def _executions(model: cp_model.CpModel, column: Column) -> tuple[Execution, ...]:
    first = Execution(model.new_constant(column.first_event), model.new_constant(1))
    domain = cp_model.Domain.from_values(column.recompute_events)
    again = [
        Execution(
            model.new_int_var_from_domain(domain, f"start {column.node} {index}"),
            model.new_bool_var(f"present {column.node} {index}"),
        )
        for index in range(1, column.max_executions)
    ]
    return (first, *again)


def _copies(
    model: cp_model.CpModel,
    problem: Problem,
    value: RetainedValue,
    executions: tuple[tuple[Execution, ...], ...],
) -> tuple[Copy, ...]:
    if value.column is None:
        made: tuple[Execution, ...] = (Execution(model.new_constant(BEFORE_FIRST_EVENT), model.new_constant(1)),)
        starts: tuple[int, ...] = (BEFORE_FIRST_EVENT,)
    else:
        made = executions[value.column][: value.max_copies]
        column = problem.columns[value.column]
        starts = (column.first_event, *column.recompute_events)
    last = () if value.is_evictable else (problem.last_event,)
    ends = cp_model.Domain.from_values(sorted({*starts, *problem.use_events(value), *last}))
    return tuple(
        Copy(
            start=execution.start,
            end=model.new_int_var_from_domain(ends, f"end {value.name} {index}"),
            is_present=execution.is_present,
            is_discarded=_is_discarded(model, problem, value, index, execution),
        )
        for index, execution in enumerate(made)
    )


def _is_discarded(
    model: cp_model.CpModel, problem: Problem, value: RetainedValue, index: int, execution: Execution
) -> cp_model.IntVar | None:
    if index == 0 or not problem.may_be_remade_while_resident(value):
        return None
    if not value.is_evictable:
        return execution.is_present
    return model.new_bool_var(f"discarded {value.name} {index}")


def _instances(
    model: cp_model.CpModel, problem: Problem, value: RetainedValue, copies: tuple[Copy, ...]
) -> tuple[Instance, ...]:
    if not problem.sharers_by_root[value.name]:
        return tuple(Instance(copy, copy.end, value.size_bytes) for copy in copies)
    return tuple(
        Instance(
            copy,
            model.new_int_var(BEFORE_FIRST_EVENT, problem.last_event, f"end of storage {value.name} {index}"),
            value.size_bytes,
        )
        for index, copy in enumerate(copies)
    )


def _choices(
    model: cp_model.CpModel, problem: Problem, value: RetainedValue, num_copies: int
) -> tuple[tuple[cp_model.IntVar, ...], ...]:
    root = problem.value_by_name[problem.root_by_value[value.name]]
    return tuple(
        tuple(model.new_bool_var(f"{value.name} {index} in {root.name} {i}") for i in range(root.max_copies))
        for index in range(num_copies)
    )
