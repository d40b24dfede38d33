"""Attributes of torch's that are other ones while a budget is active, and come back after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Patches"]

_MISSING = object()


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


class Patches:
    """Attributes that were set, to be put back in reverse order."""

    def __init__(self) -> None:
        self._patches: list[_Patch] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute of a class or a module."""
        self._patches.append(_Patch(owner, name, vars(owner).get(name, _MISSING)))
        setattr(owner, name, value)

    def undo(self) -> None:
        """Put everything back."""
        while self._patches:
            self._patches.pop().undo()
