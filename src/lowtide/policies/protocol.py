"""What an eviction policy is: blocks and their worth in, owners to evict out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from lowtide.ir import Block, Interval

__all__ = ["Policy"]


@runtime_checkable
class Policy(Protocol):
    """Decides what to evict when no free block holds a request."""

    @property
    def name(self) -> str:
        """The name by which users choose it."""
        ...

    def choose(self, blocks: Sequence[Block], *, size_bytes: int, cost_of: Callable[[str], float]) -> Interval | None:
        """Choose a run of adjacent blocks to clear.

        Args:
            blocks: All blocks in address order.
            size_bytes: Bytes requested.
            cost_of: What it would cost to recompute an owner's value now, discounted by its staleness.

        Returns:
            Positions in ``blocks`` of a run without pinned blocks that holds the request once cleared, or None.
        """
        ...
