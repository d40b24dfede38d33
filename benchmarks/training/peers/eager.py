"""Plain PyTorch, to which all others are compared."""

from __future__ import annotations

from benchmarks.training.peers.setting import Setting

__all__ = ["Eager"]


class Eager:
    name = "eager"
    limits = "Keeps every activation that backward reads; there is nothing to set."

    def settings(self) -> tuple[Setting, ...]:
        return (Setting(peer=self.name, prepare=lambda model, _: model),)
