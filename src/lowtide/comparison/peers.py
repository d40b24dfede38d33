"""What a model is really trained with: plain PyTorch, what PyTorch itself offers against memory, and lowtide.

A new peer is a function that prepares a model and a line in :data:`PEERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

from lowtide.comparison.rows import EAGER
from lowtide.units import Bytes

__all__ = ["ARENA_PEAK", "PEERS", "Peer"]

Settings: TypeAlias = dict[str, Any]

ARENA_PEAK = "arena_peak_bytes"
"""In the report of a training: most bytes that were where the malloc meter does not see them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One way to train a model.

    Attributes:
        prepare: Function that prepares the model, as ``TrainingRun.prepare``; None trains it as it is.
        report: Function that has the last word in the training's process, as ``TrainingRun.report``, or None.
        settings: From a budget and the peak of eager to the keyword arguments of ``prepare``; None where the peer
            takes no budget.
        lowest: The keyword arguments of ``prepare`` without a budget; None where there must be one.
        makes_room: Whether its budget leaves out bytes that the malloc meter sees, so that it is trained again with
            less, and so within the budget, where it was over.
    """

    prepare: str | None = None
    report: str | None = None
    settings: Callable[[Bytes, Bytes], Settings] | None = None
    lowest: Settings | None = None
    makes_room: bool = False


def _activation_memory_budget(backend: str) -> Peer:
    """Its ratio is one of saved bytes, not of the peak: the share that the budget has of eager's is what users try."""

    def settings(budget_bytes: Bytes, eager_peak_bytes: Bytes) -> Settings:
        return {"backend": backend, "ratio": min(1.0, budget_bytes / eager_peak_bytes)}

    return Peer(
        prepare="lowtide.measure.torch_peers:limit_saved_activations",
        settings=settings,
        lowest={"backend": backend, "ratio": 0.0},
    )


def _compile_settings(budget_bytes: Bytes, _eager_peak_bytes: Bytes) -> Settings:
    return {"budget": budget_bytes, "counts": "compiled"}


def _session_settings(budget_bytes: Bytes, _eager_peak_bytes: Bytes) -> Settings:
    return {"budget_bytes": budget_bytes}


PEERS: Mapping[str, Peer] = MappingProxyType(
    {
        EAGER: Peer(lowest={}),
        "checkpoint": Peer(prepare="lowtide.measure.torch_peers:checkpoint_blocks", lowest={}),
        "amb-aot_eager": _activation_memory_budget("aot_eager"),
        "amb-inductor": _activation_memory_budget("inductor"),
        "lowtide.compile": Peer(prepare="lowtide:compile", settings=_compile_settings),
        "lowtide.budget": Peer(
            prepare="lowtide.comparison.online_training:enter_budget",
            report="lowtide.comparison.online_training:leave_budget",
            settings=_session_settings,
            makes_room=True,
        ),
    }
)
"""By name. ``amb`` is PyTorch's ``activation_memory_budget``."""
