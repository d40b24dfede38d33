"""Who holds the bytes that cannot be evicted: asked when memory has run out, and only then.

The shim knows each tensor's bytes and the op that made them, not what they are called. Names come from the modules that
are alive: their parameters, gradients and buffers, each by the path from the outermost module. Nothing is tracked
beforehand; the price is a walk over Python's objects when an error is made.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import torch

from lowtide.runtime.errors import Holder

__all__ = ["Unevictable", "name_holders"]

Unevictable = tuple[int, int, str]
"""Address of the storage, bytes, and the op that made them, "" where none did."""


def name_holders(unevictable: Sequence[Unevictable]) -> list[Holder]:
    """Put names to bytes.

    Args:
        unevictable: Storages that cannot be evicted, by the address of their storage object.

    Returns:
        Holders, the largest first; storages of one module and op together.
    """
    names = _name_by_storage()
    bytes_by_holder: Counter[tuple[str, str]] = Counter()
    for storage, size_bytes, op in unevictable:
        bytes_by_holder[names.get(storage, ("", op))] += size_bytes
    return [Holder(module, op, size_bytes) for (module, op), size_bytes in bytes_by_holder.most_common()]


def _name_by_storage() -> dict[int, tuple[str, str]]:
    """Module and what it is there, by address of the storage object."""
    names: dict[int, tuple[str, str]] = {}
    modules = [found for found in gc.get_objects() if _is_a(found, torch.nn.Module)]
    inner = {id(child) for module in modules for child in module.children()}
    for root in modules:
        if id(root) in inner:
            continue
        for path, module in root.named_modules(prefix=type(root).__name__):
            for kind, tensor in _tensors_of(module):
                names.setdefault(_storage_of(tensor), (path, kind))
    for found in gc.get_objects():
        if _is_a(found, torch.optim.Optimizer):
            for kind, tensor in _state_of(found):
                names.setdefault(_storage_of(tensor), (type(found).__name__, kind))
    return names


def _is_a(found: object, kind: type) -> bool:
    return issubclass(type(found), kind)  # isinstance would ask proxies for their class


def _tensors_of(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for parameter in module.parameters(recurse=False):
        yield "parameters", parameter
        if parameter.grad is not None:
            yield "gradients", parameter.grad
    for buffer in module.buffers(recurse=False):
        yield "buffers", buffer


def _state_of(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, torch.Tensor]]:
    for state in optimizer.state.values():
        for value in state.values() if isinstance(state, dict) else ():
            if isinstance(value, torch.Tensor):
                yield "state", value


_plain_storage: Callable[[torch.Tensor], torch.UntypedStorage] = torch._C.TensorBase.untyped_storage


def _storage_of(tensor: torch.Tensor) -> int:
    address: int = _plain_storage(tensor)._cdata
    return address
