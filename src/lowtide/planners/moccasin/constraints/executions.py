"""Executions of one node come one after another, and the second only if there is a first.

Source: Bartan et al. 2023, section 3.1, "copies of a node are ordered" (breaks the symmetry among them).
"""

from __future__ import annotations

from itertools import pairwise

from ortools.sat.python import cp_model

from lowtide.planners.moccasin.variables import Execution

__all__ = ["add_execution_order"]


def add_execution_order(model: cp_model.CpModel, executions: tuple[Execution, ...]) -> None:
    """Order the executions of one node: start i < start i + 1, and i + 1 present implies i present."""
    for earlier, later in pairwise(executions):
        model.add_implication(later.is_present, earlier.is_present)
        model.add(earlier.start < later.start).only_enforce_if(later.is_present)
