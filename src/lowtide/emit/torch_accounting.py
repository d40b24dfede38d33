"""What a budget counts when a model is compiled, beyond the compiled step itself.

counts="compiled"   [ compiled step                                                            ]
counts="device"     [ parameters | buffers | gradients there already | optimizer state | compiled step ]
                                                                          gradients that the step makes are in it
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch

_STEP_COUNTER_BYTES = 64
"""What a parameter's step counter takes, where an optimizer keeps one: a scalar tensor, aligned."""

__all__ = ["Counts", "StandingBytes", "optimizer_state_bytes", "standing_bytes"]


class Counts(StrEnum):
    """What the bytes of a budget are for."""

    DEVICE = "device"
    COMPILED = "compiled"


@dataclass(frozen=True, slots=True)
class StandingBytes:
    """Bytes that stay resident around the compiled step, all of them storages counted once.

    Attributes:
        parameters: Of the model.
        buffers: Of the model.
        gradients: That exist before the step; it adds to them (gradient accumulation, ``set_to_none=False``).
        optimizer: State of the optimizer, as it is or, before its first step, as it will be.
        is_optimizer_known: Whether ``optimizer`` could be told.
    """

    parameters: int = 0
    buffers: int = 0
    gradients: int = 0
    optimizer: int = 0
    is_optimizer_known: bool = True

    @property
    def total(self) -> int:
        """All of them together."""
        return self.parameters + self.buffers + self.gradients + self.optimizer


def standing_bytes(model: torch.nn.Module, optimizer: torch.optim.Optimizer | None) -> StandingBytes:
    """Bytes that a model and its optimizer hold outside the compiled step.

    Args:
        model: The model.
        optimizer: Its optimizer, or None where there is none or none was named.
    """
    parameters = list(model.parameters())
    state = 0 if optimizer is None else optimizer_state_bytes(optimizer)
    return StandingBytes(
        parameters=_storage_bytes(parameters),
        buffers=_storage_bytes(model.buffers()),
        gradients=_storage_bytes(parameter.grad for parameter in parameters if parameter.grad is not None),
        optimizer=state or 0,
        is_optimizer_known=state is not None,
    )


def optimizer_state_bytes(optimizer: torch.optim.Optimizer) -> int | None:
    """Bytes of an optimizer's state: what it holds, or before its first step what its class will hold.

    Returns:
        Bytes, or None where the class is not known and it holds nothing yet.
    """
    held = _storage_bytes(
        value for state in optimizer.state.values() for value in state.values() if isinstance(value, torch.Tensor)
    )
    if held:
        return held
    predicted = 0
    for group in optimizer.param_groups:
        copies = _copies_per_parameter(optimizer, group)
        if copies is None:
            return None
        trained = [parameter for parameter in group["params"] if parameter.requires_grad]
        predicted += copies * sum(parameter.numel() * parameter.element_size() for parameter in trained)
        predicted += _STEP_COUNTER_BYTES * len(trained)
    return predicted


def _copies_per_parameter(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> int | None:
    """How many tensors of a parameter's size the state holds, by class and options."""
    optim = torch.optim
    match optimizer:
        case optim.SGD():
            return 1 if group["momentum"] else 0
        case optim.Adam() | optim.AdamW() | optim.NAdam() | optim.RAdam():
            return 3 if group.get("amsgrad") else 2
        case optim.Adamax() | optim.Adadelta() | optim.Rprop():
            return 2
        case optim.Adagrad():
            return 1
        case optim.RMSprop():
            return 1 + bool(group["momentum"]) + bool(group["centered"])
        case optim.ASGD():
            return 1
        case _:
            return None


def _storage_bytes(tensors: Iterable[torch.Tensor]) -> int:
    storages = {storage._cdata: storage.nbytes() for storage in (tensor.untyped_storage() for tensor in tensors)}
    return sum(storages.values())
