"""What a budget counts when a model is compiled, beyond the compiled step itself.

counts="compiled"   [ compiled step                                                            ]
counts="device"     [ parameters | buffers | gradients there already | optimizer state | compiled step ]
                                                                          gradients that the step makes are in it
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from lowtide.errors import CompileError

_STEP_COUNTER_BYTES = 64
"""What a parameter's step counter takes, where an optimizer keeps one: a scalar tensor, aligned."""

_PLAIN_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, FakeTensor})
_PARTS_BY_LAYOUT: Mapping[torch.layout, tuple[str, ...]] = {
    torch.sparse_coo: ("_indices", "_values"),
    **dict.fromkeys((torch.sparse_csr, torch.sparse_bsr), ("crow_indices", "col_indices", "values")),
    **dict.fromkeys((torch.sparse_csc, torch.sparse_bsc), ("ccol_indices", "row_indices", "values")),
}

__all__ = ["Counts", "StandingBytes", "optimizer_state_bytes", "standing_bytes", "storage_bytes"]


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

    Raises:
        CompileError: A parameter or a buffer is of a subclass of Tensor whose bytes cannot be told.
    """
    parameters = list(model.parameters())
    state = 0 if optimizer is None else optimizer_state_bytes(optimizer)
    return StandingBytes(
        parameters=storage_bytes(parameters),
        buffers=storage_bytes(model.buffers()),
        gradients=storage_bytes(parameter.grad for parameter in parameters if parameter.grad is not None),
        optimizer=state or 0,
        is_optimizer_known=state is not None,
    )


def optimizer_state_bytes(optimizer: torch.optim.Optimizer) -> int | None:
    """Bytes of an optimizer's state: what it holds, or before its first step what its class will hold.

    Returns:
        Bytes, or None where the class is not known and it holds nothing yet.
    """
    held = storage_bytes(
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
        predicted += copies * sum(
            inner.numel() * inner.element_size() for parameter in trained for inner in _held_by(parameter)
        )
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


def storage_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of the storages that tensors have, each storage once.

    Raises:
        CompileError: One of them is of a subclass that hides what it holds.
    """
    held = (inner.untyped_storage() for tensor in tensors for inner in _held_by(tensor))
    return sum({storage._cdata: storage.nbytes() for storage in held}.values())


def _held_by(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors whose storages a tensor takes: itself, or what it consists of, at any depth.

    A wrapper (a subclass of Tensor that holds others) has a storage in name only, a sparse tensor has none.
    """
    if tensor.layout in _PARTS_BY_LAYOUT:
        yield from (getattr(tensor, part)() for part in _PARTS_BY_LAYOUT[tensor.layout])
        return
    if type(tensor) in _PLAIN_TENSORS:
        yield tensor
        return
    can_take_apart: bool = is_traceable_wrapper_subclass(tensor)
    if can_take_apart:
        for name in tensor.__tensor_flatten__()[0]:  # type: ignore[attr-defined]  # what the check is for
            yield from _held_by(getattr(tensor, name))
    elif _hides_its_storage(tensor):
        raise CompileError(
            f"a {type(tensor).__name__} of shape {list(tensor.shape)} holds tensors that cannot be counted: give its "
            "class __tensor_flatten__ and __tensor_unflatten__"
        )
    else:
        yield tensor


def _hides_its_storage(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a wrapper that torch cannot take apart: its storage has a size, but no address."""
    try:
        return tensor.untyped_storage().data_ptr() == 0 < tensor.untyped_storage().nbytes() and not tensor.is_meta
    except RuntimeError:
        return True
