"""Ways in which a tensor's bytes leave PyTorch's dispatcher, made safe while a budget is active.

An op sees its inputs through the dispatcher, where absent ones are recomputed first. What follows does not: it takes an
address and reads, or writes, on its own. So these methods first make the tensor resident, and then

    expose   bytes that others can write from now on     numpy(), data_ptr(), dlpack, share_memory_()
    keep     an address that is used to read, for good   untyped_storage(), const_data_ptr()
    hold     bytes that are read until it returns        tolist(), deepcopy, torch.save
    redo     bytes that it writes itself, unseen         apply_(), map_()

What is exposed or kept stays where it is; from exposed bytes, nothing is recomputed, as nobody knows what was in them.
Printing, ``item()`` and comparisons are made of ops and of these. The wrappers lie on ``torch.Tensor`` and on the few
functions that do the same; outside a budget nothing of torch is changed.

``torch.save`` and ``deepcopy`` ask for storages on their way: within them, what is kept is kept until they return.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from lowtide.runtime.patching import Patches

__all__ = ["Escapes", "Guardian"]

EXPOSING = ("numpy", "__array__", "data_ptr", "mutable_data_ptr", "__dlpack__", "share_memory_")
"""Methods whose result can be written through."""

KEEPING = ("untyped_storage", "storage", "_typed_storage", "const_data_ptr")
"""Methods after which the bytes may be read at any time."""

HOLDING = ("tolist", "__deepcopy__", "__format__", "is_pinned")
"""Methods that have read all they need when they return."""

REDOING = ("apply_", "map_", "map2_")
"""Methods that read and write by themselves."""

_FUNCTIONS_EXPOSING = ((torch.utils.dlpack, "to_dlpack"), (torch._C, "_to_dlpack"), (torch, "to_dlpack"))

_FUNCTIONS_HOLDING = ((torch, "save"), (torch.serialization, "save"))


class Guardian(Protocol):
    """What the shim does for one tensor."""

    def pin(self, tensor: torch.Tensor) -> None:
        """Make it resident; never evict or move it again."""

    def unpin(self, tensor: torch.Tensor) -> None:
        """Undo one ``pin``."""

    def expose(self, tensor: torch.Tensor) -> None:
        """Pin it for good, and never recompute anything from it."""


class _Scopes(threading.local):
    """By thread: the tensors kept by the function that is to let go of them; None outside of any."""

    kept: list[torch.Tensor] | None = None


class Escapes:
    """The wrappers, while a budget is active.

    Args:
        guardian: Pins, unpins and exposes tensors; asked for tensors on the CPU only.
    """

    def __init__(self, guardian: Guardian) -> None:
        self._guardian = guardian
        self._patches = Patches()
        self._scopes = _Scopes()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Wrappers on inside the block."""
        try:
            self._install()
            yield
        finally:
            self._patches.undo()

    def _install(self) -> None:
        tensor = torch.Tensor
        for name in EXPOSING:
            self._wrap(tensor, name, self._exposing)
        for name in KEEPING:
            self._wrap(tensor, name, self._keeping)
        for name in HOLDING:
            self._wrap(tensor, name, self._holding)
        for name in REDOING:
            self._wrap(tensor, name, self._redoing)
        for owner, name in _FUNCTIONS_EXPOSING:
            self._wrap(owner, name, self._exposing)
        for owner, name in _FUNCTIONS_HOLDING:
            self._patches.set(owner, name, self._scoped(getattr(owner, name)))

    def _wrap(self, owner: Any, name: str, act: Callable[..., Any]) -> None:
        if not hasattr(owner, name):
            return
        inner = getattr(owner, name)

        @functools.wraps(inner)
        def wrapper(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(tensor, torch.Tensor) or tensor.device.type != "cpu":
                return inner(tensor, *args, **kwargs)
            return act(inner, tensor, *args, **kwargs)

        self._patches.set(owner, name, wrapper)

    def _exposing(self, inner: Callable[..., Any], tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if self._scopes.kept is not None:
            return self._keeping(inner, tensor, *args, **kwargs)
        self._guardian.expose(tensor)
        result = inner(tensor, *args, **kwargs)
        if result is tensor:  # share_memory_ has given it other bytes
            self._guardian.expose(tensor)
        return result

    def _keeping(self, inner: Callable[..., Any], tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        self._guardian.pin(tensor)
        if self._scopes.kept is not None:
            self._scopes.kept.append(tensor)
        return inner(tensor, *args, **kwargs)

    def _holding(self, inner: Callable[..., Any], tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        self._guardian.pin(tensor)
        try:
            with self._scope():
                return inner(tensor, *args, **kwargs)
        finally:
            self._guardian.unpin(tensor)

    def _redoing(self, inner: Callable[..., Any], tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """On a copy, which is then written where the dispatcher sees it."""
        if tensor.requires_grad:
            return inner(tensor, *args, **kwargs)  # raises
        copied = tensor.clone()
        for one in (copied, *args):
            if isinstance(one, torch.Tensor):
                self._guardian.expose(one)
        inner(copied, *args, **kwargs)
        tensor.copy_(copied)
        return tensor

    def _scoped(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(inner)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with self._scope():
                return inner(*args, **kwargs)

        return wrapper

    @contextmanager
    def _scope(self) -> Iterator[None]:
        outer = self._scopes.kept
        kept: list[torch.Tensor] = []
        self._scopes.kept = kept
        try:
            yield
        finally:
            self._scopes.kept = outer
            for tensor in kept:
                self._guardian.unpin(tensor)
