"""What a peer is: a name, what it cannot do, and the settings in which it is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import nn
from torch.optim import Optimizer

__all__ = ["Peer", "Setting"]


def _report_nothing() -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One way to train a model.

    Attributes:
        peer: Name of the peer.
        label: What is set, e.g. ``"ratio 0.5"``; empty where a peer has one setting only.
        prepare: Changes the model in place.
        report: Figures of the compilation, asked for right after the first step.
    """

    peer: str
    label: str = ""
    prepare: Callable[[nn.Module, Optimizer], object]
    report: Callable[[], Mapping[str, Any]] = _report_nothing


class Peer(Protocol):
    """One file in this folder provides one."""

    @property
    def name(self) -> str:
        """What tables call it."""
        ...

    @property
    def limits(self) -> str:
        """What it cannot do, in a sentence or two."""
        ...

    def settings(self) -> tuple[Setting, ...]:
        """The settings in which it is measured."""
        ...
