"""What a pool is: memory as offsets, blocks that tile an arena in address order.

offset 0                                             capacity
  │ value a │   free   │ value b │ value c │   free   │
    └ block, owned       └ adjacent blocks coalesce as soon as they are free
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from lowtide.ir import Block, End

__all__ = ["Pool"]


@runtime_checkable
class Pool(Protocol):
    """Memory of a fixed capacity, handed out as offsets."""

    @property
    def capacity_bytes(self) -> int:
        """Bytes of the arena."""
        ...

    @property
    def free_bytes(self) -> int:
        """Bytes of all free blocks."""
        ...

    def allocate(self, owner: str, *, size_bytes: int, end: End = End.LOW) -> int | None:
        """Take a block by best fit over (size, offset); return its offset, or None where no free block holds it."""
        ...

    def free(self, owner: str) -> None:
        """Give back the block of an owner; free neighbours coalesce at once."""
        ...

    def pin(self, owner: str) -> None:
        """Forbid evicting an owner until as many ``unpin``."""
        ...

    def unpin(self, owner: str) -> None:
        """Undo one ``pin``."""
        ...

    def blocks(self) -> Sequence[Block]:
        """All blocks in address order; they tile the arena."""
        ...
