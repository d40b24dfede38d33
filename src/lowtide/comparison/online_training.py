"""In the process of a training: ``lowtide.budget`` around all of its steps.

The arena also holds what an optimizer keeps between steps, which other measured rows do not count: the budget is given
room for it, and it is taken off the peak again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowtide.comparison.peers import ARENA_PEAK
from lowtide.errors import InputError
from lowtide.runtime.options import SessionOptions
from lowtide.runtime.session import Session, active_session
from lowtide.units import Bytes, align_up

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
    """
    del optimizer
    _Kept.size_bytes = sum(
        align_up(parameter.numel() * parameter.element_size(), _ALIGNMENT)
        for parameter in model.parameters()
        if parameter.requires_grad
    )
    Session(budget_bytes + _Kept.size_bytes, options=SessionOptions()).__enter__()
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
