"""Blocks of an arena, and from which end they are taken."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Block", "End"]


class End(StrEnum):
    """From which end of the arena a request is served (Coop's cheap tensor partitioning)."""

    LOW = "low"
    HIGH = "high"


@dataclass(frozen=True, slots=True)
class Block:
    """A run of bytes of the arena.

    Attributes:
        offset: Distance from the arena's start, in bytes; a multiple of the alignment.
        size_bytes: Bytes, a multiple of the alignment, above 0.
        owner: Id of what holds it, or None where it is free.
        is_pinned: Whether it must not be evicted now.
    """

    offset: int
    size_bytes: int
    owner: str | None
    is_pinned: bool = False
