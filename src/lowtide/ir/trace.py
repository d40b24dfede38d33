"""What happened: calls, evictions and placements as they were, one event after another.

Both ways in leave a trace: the online runtime writes one as it goes, a plan can be written as one. A trace without
allocations is a recording made without a budget; it, too, can be simulated, planned and reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

__all__ = ["BlockKind", "Call", "Event", "Mark", "MarkKind", "Memory", "MemoryKind", "Trace"]


class MemoryKind(StrEnum):
    """Whether a block is taken or given back."""

    ALLOC = "alloc"
    FREE = "free"


class BlockKind(StrEnum):
    """What a block is for."""

    VALUE = "value"
    SCRATCH = "scratch"
    SMALL = "small"


class MarkKind(StrEnum):
    """What happened to a value. A MOVE announces that the FREE and ALLOC of the same id that follow relocate it."""

    EVICT = "evict"
    MOVE = "move"
    PIN = "pin"
    UNPIN = "unpin"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class Call:
    """One execution of an op.

    Attributes:
        op: What was executed.
        inputs: Ids of the values read.
        outputs: Ids of the values produced.
        alias_by_output: The input whose storage an output shares.
        overwrites_by_output: The input whose storage an output took over.
        cost: Modelled duration, a whole number.
        rng: Whether it draws random numbers.
        backward: Whether it ran inside backward.
        recompute: Whether it is an execution beyond the first.
        meta: Annotations.
    """

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    alias_by_output: Mapping[str, str] = field(default_factory=dict)
    overwrites_by_output: Mapping[str, str] = field(default_factory=dict)
    cost: int = 0
    rng: bool = False
    backward: bool = False
    recompute: bool = False
    meta: Mapping[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Memory:
    """A block of the arena taken or given back; ``offset`` and ``size_bytes`` are bytes."""

    event: MemoryKind
    id: str
    offset: int
    size_bytes: int
    block: BlockKind = BlockKind.VALUE


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened to a value without a call."""

    event: MarkKind
    id: str


Event: TypeAlias = Call | Memory | Mark


@dataclass(frozen=True, slots=True)
class Trace:
    """Events in the order in which they happened.

    Attributes:
        capacity_bytes: Bytes of the arena, or None for a recording made without one.
        alignment: Every offset is a multiple of it, in bytes.
        policy: Name of the eviction policy, or None.
        seed: Seed of the run.
        cost_model: How ``Call.cost`` was made, e.g. ``"bytes-flops-1"``.
        events: What happened.
        meta: Annotations.
    """

    capacity_bytes: int | None
    alignment: int
    policy: str | None
    seed: int
    cost_model: str
    events: tuple[Event, ...]
    meta: Mapping[str, Any] = field(default_factory=dict, compare=False)
