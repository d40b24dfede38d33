"""Values that share a storage: which instance each copy lies in, and how long the instance is held.

    events                  0   1   2   3   4   5
    base, copy 0            ■───■                       evicted, but
    alias, copy 0               ■───────────■           lies in the same instance,
    instance 0 of base      ■───────────────■           so the bytes stay

Not in the paper: its values share nothing. Decided in ``docs/decisions/moccasin.md``.
"""

from __future__ import annotations

from collections.abc import Sequence

from ortools.sat.python import cp_model

from lowtide.planners.moccasin.variables import Copy, Execution, Instance

__all__ = [
    "add_instance_holds_copy",
    "add_instance_outlives_own_copy",
    "add_overwrite",
    "add_shared_instance",
    "add_shares_sibling",
]

_Literal = cp_model.IntVar


def add_instance_outlives_own_copy(model: cp_model.CpModel, instance: Instance) -> None:
    """An instance is held at least as long as the copy that allocated it."""
    model.add(instance.copy.end <= instance.end)


def add_instance_holds_copy(
    model: cp_model.CpModel, copy: Copy, is_in_instance: Sequence[_Literal], instances: Sequence[Instance]
) -> None:
    """A copy that is present lies in exactly one instance, and that instance outlives it."""
    model.add(sum(is_in_instance) == 1).only_enforce_if(copy.is_present)
    for is_in, instance in zip(is_in_instance, instances, strict=True):
        model.add_implication(is_in, copy.is_present)
        model.add_implication(is_in, instance.copy.is_present)
        model.add(copy.end <= instance.end).only_enforce_if(is_in)


def add_shared_instance(
    model: cp_model.CpModel,
    copy: Copy,
    is_in_instance: Sequence[_Literal],
    target_copies: Sequence[Copy],
    target_is_in_instance: Sequence[Sequence[_Literal]] | None,
) -> list[_Literal]:
    """A copy lies in the instance of that copy of its target which is retained at the copy's start.

    Args:
        model: Receives the constraints.
        copy: The copy of the alias, or of the value that takes the storage over.
        is_in_instance: Whether it lies in instance i of the root.
        target_copies: Copies of the value whose storage it shares.
        target_is_in_instance: The same for each copy of the target, or None where the target is the root.

    Returns:
        For each copy of the target whether it is the one retained then.
    """
    is_from = [model.new_bool_var("") for _ in target_copies]
    model.add(sum(is_from) == 1).only_enforce_if(copy.is_present)
    for index, (literal, target) in enumerate(zip(is_from, target_copies, strict=True)):
        model.add_implication(literal, copy.is_present)
        model.add_implication(literal, target.is_present)
        model.add(target.start < copy.start).only_enforce_if(literal)
        model.add(copy.start <= target.end).only_enforce_if(literal)
        for instance, is_in in enumerate(is_in_instance):
            if target_is_in_instance is not None:
                model.add_implication(literal, is_in).only_enforce_if(target_is_in_instance[index][instance])
            elif instance == index:
                model.add_implication(literal, is_in)
    return is_from


def add_shares_sibling(
    model: cp_model.CpModel,
    copy: Copy,
    is_in_instance: Sequence[_Literal],
    target_is_in_instance: Sequence[_Literal] | None,
    index: int,
) -> None:
    """A copy that shares the storage of another output of its own execution lies in that one's fresh instance.

    Also where that one is discarded: the referee's rule.
    """
    for instance, is_in in enumerate(is_in_instance):
        if target_is_in_instance is not None:
            model.add_implication(target_is_in_instance[instance], is_in).only_enforce_if(copy.is_present)
        elif instance == index:
            model.add_implication(copy.is_present, is_in)


def add_overwrite(
    model: cp_model.CpModel,
    execution: Execution,
    overwriting_is_in: Sequence[_Literal],
    other: Copy,
    other_is_in: Sequence[_Literal],
) -> None:
    """When an instance is taken over, every other copy in it that was made before ends at that event."""
    for taken, shared in zip(overwriting_is_in, other_is_in, strict=True):
        is_before = model.new_bool_var("")
        model.add(other.end <= execution.start).only_enforce_if(taken, shared, is_before)
        model.add(other.start >= execution.start).only_enforce_if(taken, shared, ~is_before)
