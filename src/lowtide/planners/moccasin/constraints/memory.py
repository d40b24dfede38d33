"""The budget: one cumulative constraint over everything that holds memory.

Source: Bartan et al. 2023, section 3.1, the cumulative constraint; their M is ``budget_bytes``, their m_v a value's
bytes. Departure: storage instances instead of values, and the workspace of executions beside them.
"""

from __future__ import annotations

from collections.abc import Iterator

from ortools.sat.python import cp_model

from lowtide.planners.moccasin.problem import Problem
from lowtide.planners.moccasin.variables import Variables

__all__ = ["add_cumulative_memory"]


def add_cumulative_memory(model: cp_model.CpModel, problem: Problem, variables: Variables) -> None:
    """At every event the instances retained and the workspace of the running node fit the capacity."""
    demands = [*_storages(model, problem, variables), *_workspaces(model, problem, variables)]
    model.add_cumulative(
        [interval for interval, _ in demands], [size_bytes for _, size_bytes in demands], variables.capacity
    )


_Demand = tuple[cp_model.IntervalVar, int]


def _storages(model: cp_model.CpModel, problem: Problem, variables: Variables) -> Iterator[_Demand]:
    """Every instance, from the event that allocates it to the last at which a copy lies in it."""
    for name, instances in variables.instances.items():
        for index, instance in enumerate(instances):
            if instance.size_bytes:
                length = model.new_int_var(1, problem.last_event + 2, f"length {name} {index}")
                interval = model.new_optional_interval_var(
                    instance.copy.start,
                    length,
                    instance.end + 1,
                    instance.copy.is_present,
                    f"storage {name} {index}",
                )
                yield interval, instance.size_bytes


def _workspaces(model: cp_model.CpModel, problem: Problem, variables: Variables) -> Iterator[_Demand]:
    """The workspace of every execution."""
    for column, executions in zip(problem.columns, variables.executions, strict=True):
        for index, execution in enumerate(executions):
            if column.workspace_bytes:
                interval = model.new_optional_fixed_size_interval_var(
                    execution.start, 1, execution.is_present, f"workspace {column.node} {index}"
                )
                yield interval, column.workspace_bytes
