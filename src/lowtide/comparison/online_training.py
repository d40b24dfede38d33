"""In the process of a training: ``lowtide.budget`` around all of its steps.

The arena also holds what an optimizer keeps between steps, which other measured rows do not count: the budget is given
room for it, and it is taken off the peak again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowtide.comparison.peers import ARENA_PEAK
from lowtide.errors import InputError, UnitError
from lowtide.runtime.options import MIN_BUDGET_BYTES, SessionOptions
from lowtide.runtime.session import Session, active_session
from lowtide.units import Bytes, align_up, format_bytes

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

__all__ = ["enter_budget", "leave_budget"]

_ALIGNMENT = 64


class _Kept:
    """What the optimizer of this process's training keeps in the arena."""

    size_bytes: Bytes = 0


def enter_budget(model: nn.Module, *, optimizer: Optimizer, budget_bytes: Bytes) -> nn.Module:
    """A ``TrainingRun.prepare``: from here on, what is allocated lies in an arena.

    Args:
        model: Stays as it is, outside.
        optimizer: SGD with momentum: it will keep as many bytes as the parameters have.
        budget_bytes: For what forward and backward allocate, gradients included.

    Returns:
        The same model.

    Raises:
        UnitError: There is no arena as small as that.
    """
    del optimizer
    _Kept.size_bytes = sum(
        align_up(parameter.numel() * parameter.element_size(), _ALIGNMENT)
        for parameter in model.parameters()
        if parameter.requires_grad
    )
    arena_bytes = budget_bytes + _Kept.size_bytes
    if arena_bytes < MIN_BUDGET_BYTES:
        raise UnitError(
            f"the arena would have {format_bytes(arena_bytes)}, {format_bytes(_Kept.size_bytes)} of them for the "
            f"optimizer's state; the smallest has {format_bytes(MIN_BUDGET_BYTES)}: give a larger budget or model"
        )
    Session(arena_bytes, options=SessionOptions()).__enter__()
    return model


def leave_budget() -> dict[str, int]:
    """A ``TrainingRun.report``: leave the arena, and say what was in it at most.

    Raises:
        InputError: No training entered one.
    """
    session = active_session()
    if session is None:
        raise InputError("no session is active: enter_budget comes first")
    peak_bytes = session.stats.peak_bytes
    session.__exit__(None, None, None)
    return {ARENA_PEAK: max(0, peak_bytes - _Kept.size_bytes)}
