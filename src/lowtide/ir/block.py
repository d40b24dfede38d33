"""Blocks of an arena, and where in it a request is placed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["SLAB", "Block", "End", "Fit"]

SLAB = "<slab>"
"""Owner of the blocks that a pool cuts up for small requests; reserved, and always pinned."""


class End(StrEnum):
    """From which end of the arena a request is served (Coop's cheap tensor partitioning)."""

    LOW = "low"
    HIGH = "high"


class Fit(StrEnum):
    """Which of the free blocks that are large enough serves a request."""

    BEST = "best"
    """The smallest, of several the lowest."""

    FIRST = "first"
    """The nearest to the end of the arena from which the request is served."""


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
