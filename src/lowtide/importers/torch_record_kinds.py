"""What the tensors are that a recording finds ready made: parameters, buffers, optimizer state, or the user's own."""

from __future__ import annotations

import gc

import torch
from torch import nn

from lowtide.importers.torch_record_call import has_storage, tensors_in
from lowtide.ir import InputKind

__all__ = ["kind_by_storage", "storage_key"]


def storage_key(tensor: torch.Tensor) -> int:
    """Equal for tensors that share a storage, as long as that is alive."""
    return int(tensor.untyped_storage()._cdata)


def kind_by_storage() -> dict[int, InputKind]:
    """The kind of every storage that a module or an optimizer of this process holds, by :func:`storage_key`.

    They are found through Python's garbage collector, so that nobody has to name the model.
    """
    modules, optimizers = _modules_and_optimizers()
    kinds: dict[int, InputKind] = {}
    for optimizer in optimizers:
        _note(kinds, tensors_in(list(optimizer.state.values())), InputKind.STATE)
    for module in modules:
        _note(kinds, tensors_in(list(module._buffers.values())), InputKind.BUFFER)
    for module in modules:  # last: where a storage is several things, it is a parameter
        _note(kinds, tensors_in(list(module._parameters.values())), InputKind.PARAMETER)
    return kinds


def _modules_and_optimizers() -> tuple[list[nn.Module], list[torch.optim.Optimizer]]:
    """All that the garbage collector knows; by type, as proxies answer ``isinstance`` with an import, or an error."""
    is_module: dict[type, bool] = {}
    is_optimizer: dict[type, bool] = {}
    modules: list[nn.Module] = []
    optimizers: list[torch.optim.Optimizer] = []
    for thing in gc.get_objects():
        kind = type(thing)
        if kind not in is_module:
            is_module[kind] = issubclass(kind, nn.Module)
            is_optimizer[kind] = issubclass(kind, torch.optim.Optimizer)
        if is_module[kind]:
            modules.append(thing)
        elif is_optimizer[kind]:
            optimizers.append(thing)
    return modules, optimizers


def _note(kinds: dict[int, InputKind], tensors: list[torch.Tensor], kind: InputKind) -> None:
    for tensor in tensors:
        if has_storage(tensor):
            kinds[storage_key(tensor)] = kind
