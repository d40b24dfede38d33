"""What one retention interval, and the intervals of one value, look like.

Source: Bartan et al. 2023, section 3.1: start <= end; copies of a value do not overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from ortools.sat.python import cp_model

from lowtide.planners.moccasin.variables import Copy, Execution

__all__ = ["add_copy_order", "add_discarded_copy", "add_end_after_start", "add_unevictable"]

_Literal = cp_model.IntVar


def add_end_after_start(model: cp_model.CpModel, copy: Copy) -> None:
    """A copy is retained at least at the event that makes it; an absent one ends where it would start."""
    model.add(copy.start <= copy.end)
    model.add(copy.start == copy.end).only_enforce_if(~copy.is_present)


def add_copy_order(model: cp_model.CpModel, copies: tuple[Copy, ...]) -> None:
    """A copy ends before the next one starts, unless the next one is discarded."""
    for earlier, later in combinations(copies, 2):
        conditions: list[cp_model.LiteralT] = [later.is_present]
        if later.is_discarded is not None:
            conditions.append(~later.is_discarded)
        model.add(earlier.end < later.start).only_enforce_if(*conditions)


def add_discarded_copy(model: cp_model.CpModel, copy: Copy) -> None:
    """A discarded copy is held only at the event that makes it, as the referee drops it right after."""
    if copy.is_discarded is not None:
        model.add(copy.start == copy.end).only_enforce_if(copy.is_discarded)
        model.add_implication(copy.is_discarded, copy.is_present)


def add_unevictable(
    model: cp_model.CpModel, first_copy: Copy, last_event: int, overwritings: Sequence[tuple[Execution, _Literal]]
) -> None:
    """A value that must never be evicted stays to the end of the plan, or until it is overwritten.

    Departure: the paper has no such values.

    Args:
        model: Receives the constraint.
        first_copy: The copy that stays.
        last_event: The end of the plan.
        overwritings: Executions that may take its storage over, each with the literal of its doing so.
    """
    is_last = model.new_bool_var("")
    model.add(first_copy.end == last_event).only_enforce_if(is_last)
    ends = [is_last]
    for execution, takes_over in overwritings:
        is_ended = model.new_bool_var("")
        model.add_implication(is_ended, takes_over)
        model.add(first_copy.end == execution.start).only_enforce_if(is_ended)
        ends.append(is_ended)
    model.add_bool_or(ends)
