"""A node runs only while some copy of each of its inputs is retained.

    level of one input      0   1   1   1   0   1   1   0       copies of it retained, less a running reader
    its copies                  ■───────■       ■───■
    reader runs at                  ▲

Source: Bartan et al. 2023, section 3.1, the reservoir constraint: a copy adds one to the level right after it is made
and takes it back right after its end; an execution of the reader takes one for the time it runs; the level is never
below 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from ortools.sat.python import cp_model

from lowtide.planners.moccasin.variables import Copy, Execution

__all__ = ["add_input_retained"]


def add_input_retained(model: cp_model.CpModel, copies: Sequence[Copy], executions: Sequence[Execution]) -> None:
    """When an execution of the reader is present, some copy of the input is retained at its event.

    Args:
        model: Receives one reservoir constraint.
        copies: All copies of the input.
        executions: The executions of the reader that read it.
    """
    if not executions:
        return
    times: list[cp_model.LinearExprT] = []
    changes: list[int] = []
    actives: list[cp_model.IntVar] = []
    for copy in copies:
        times += [copy.start + 1, copy.end + 1]
        changes += [1, -1]
        actives += [copy.is_present, copy.is_present]
    for execution in executions:
        times += [execution.start, execution.start + 1]
        changes += [-1, 1]
        actives += [execution.is_present, execution.is_present]
    model.add_reservoir_constraint_with_active(times, changes, actives, 0, len(copies))
