"""Ways in which a tensor's bytes leave PyTorch's dispatcher, made safe while a budget is active.

An op sees its inputs through the dispatcher, where absent ones are recomputed first. What follows does not: it takes an
address and reads on its own. So these methods first make the tensor resident, and then

    keep it where it is for good      an address that lives on: numpy(), data_ptr(), dlpack, untyped_storage()
    keep it until they return         bytes that are copied at once: tolist(), deepcopy, pickle and torch.save

Printing, ``item()`` and comparisons are made of ops and of these. ``install`` puts wrappers on ``torch.Tensor`` (and
the few functions that do the same), ``remove`` takes them off; outside a budget nothing of torch is changed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

__all__ = ["Escapes", "Guardian"]

LASTING = (
    "numpy",
    "__array__",
    "data_ptr",
    "__dlpack__",
    "untyped_storage",
    "storage",
    "_typed_storage",
    "share_memory_",
)
"""Methods after which the address may be used at any time."""

PASSING = ("tolist", "__deepcopy__", "__reduce_ex__", "__format__")
"""Methods that have read all they need when they return."""

_MISSING = object()


class Guardian(Protocol):
    """What the shim does for one tensor."""

    def pin(self, tensor: torch.Tensor) -> None:
        """Make it resident; never evict or move it again."""

    def unpin(self, tensor: torch.Tensor) -> None:
        """Undo one ``pin``."""


@dataclass(frozen=True)
class _Patch:
    owner: Any
    name: str
    original: Any  # what the owner itself had, or _MISSING where it inherits

    def undo(self) -> None:
        if self.original is _MISSING:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self.original)


class Escapes:
    """The wrappers, while a budget is active.

    Args:
        guardian: Pins and unpins tensors; asked for tensors on the CPU only.
    """

    def __init__(self, guardian: Guardian) -> None:
        self._guardian = guardian
        self._patches: list[_Patch] = []
        self._depth = 0

    def install(self) -> None:
        """Put the wrappers on; as often as ``remove`` will be called."""
        self._depth += 1
        if self._depth > 1:
            return
        for name in LASTING:
            self._wrap(torch.Tensor, name, self._lasting)
        for name in PASSING:
            self._wrap(torch.Tensor, name, self._passing)
        self._wrap(torch.utils.dlpack, "to_dlpack", self._lasting)

    def remove(self) -> None:
        """Take the wrappers off."""
        self._depth -= 1
        if self._depth > 0:
            return
        for patch in reversed(self._patches):
            patch.undo()
        self._patches.clear()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Wrappers on inside the block."""
        self.install()
        try:
            yield
        finally:
            self.remove()

    def _wrap(self, owner: Any, name: str, hold: Callable[[torch.Tensor], AbstractContextManager[None]]) -> None:
        inner = getattr(owner, name)

        @functools.wraps(inner)
        def wrapper(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(tensor, torch.Tensor) or tensor.device.type != "cpu":
                return inner(tensor, *args, **kwargs)
            with hold(tensor):
                return inner(tensor, *args, **kwargs)

        self._patches.append(_Patch(owner, name, vars(owner).get(name, _MISSING)))
        setattr(owner, name, wrapper)

    @contextmanager
    def _lasting(self, tensor: torch.Tensor) -> Iterator[None]:
        self._guardian.pin(tensor)
        yield

    @contextmanager
    def _passing(self, tensor: torch.Tensor) -> Iterator[None]:
        self._guardian.pin(tensor)
        try:
            yield
        finally:
            self._guardian.unpin(tensor)
