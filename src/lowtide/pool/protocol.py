"""What a pool is: memory as offsets, blocks that tile an arena in address order.

offset 0                                             capacity
  │ value a │   free   │ value b │ value c │   free   │
    └ block, owned       └ adjacent blocks coalesce as soon as they are free

A pool may keep a region for small requests: slabs, blocks of the arena owned by :data:`lowtide.ir.block.SLAB` that
are tiled by small blocks. Coop (Zhang et al., NeurIPS 2023) does so for requests of 10 KiB and less: they are never
evicted, and among large blocks they would cut the windows that can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from lowtide.errors import InputError
from lowtide.ir import Block, End
from lowtide.ir.block import Fit

__all__ = ["Pool", "SmallRequests", "check_int64", "clamp_int64"]

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class SmallRequests:
    """Which requests a pool serves from slabs.

    Attributes:
        largest_bytes: The largest such request.
        slab_bytes: Bytes of a slab, a multiple of the alignment, at least ``largest_bytes``.
    """

    largest_bytes: int = 10 * 1024
    slab_bytes: int = 64 * 1024


@runtime_checkable
class Pool(Protocol):
    """Memory of a fixed capacity, handed out as offsets to owners, one block each.

    Sizes are rounded up to the alignment, 0 to one unit of it. A call that makes no sense raises
    :class:`~lowtide.errors.InputError` and changes nothing: an owner that holds nothing, or already holds a block, a
    size below 0, an ``unpin`` too many. A size above 2**63 - 1 counts as that: no pool holds it.
    """

    @property
    def capacity_bytes(self) -> int:
        """Bytes of the arena."""
        ...

    @property
    def free_bytes(self) -> int:
        """Bytes of all free blocks; what is free within slabs does not count."""
        ...

    @property
    def largest_hole_bytes(self) -> int:
        """Bytes of the largest free block, 0 where there is none."""
        ...

    @property
    def high_water_bytes(self) -> int:
        """The highest end that an owned block ever had."""
        ...

    def allocate(self, owner: str, *, size_bytes: int, end: End = End.LOW, fit: Fit = Fit.BEST) -> int | None:
        """Take a block; return its offset, or None where no free block holds it.

        A small request goes to a slab, wherever ``end`` and ``fit`` point; where no slab has room and none can be had
        it is served like any other.

        Args:
            owner: Who holds the block from now on; holds none yet.
            size_bytes: Bytes asked for.
            end: Which end of the free block is taken; with ``Fit.FIRST`` also from where the search begins.
            fit: Which free block serves the request.
        """
        ...

    def take(self, owner: str, *, hole_offset: int, size_bytes: int, end: End = End.LOW) -> int:
        """Take a block from the free block that begins at ``hole_offset``, never from a slab; return its offset."""
        ...

    def free(self, owner: str) -> None:
        """Give back the block of an owner, whatever its pins; free neighbours coalesce at once."""
        ...

    def hand_over(self, owner: str, *, new_owner: str) -> None:
        """Let another owner, which holds nothing yet, have an owner's block, pins and all (an operation in place)."""
        ...

    def pin(self, owner: str) -> None:
        """Forbid evicting and moving an owner until as many ``unpin``."""
        ...

    def unpin(self, owner: str) -> None:
        """Undo one ``pin``."""
        ...

    def slide(self, owner: str, *, end: End) -> int:
        """Move a block to the far end of the free block beside it, if there is one; return its offset.

        One step of compaction. A pinned block and one in a slab cannot move.
        """
        ...

    def blocks(self) -> Sequence[Block]:
        """All blocks in address order; they tile the arena. Slabs are among them."""
        ...

    def small_blocks(self) -> Sequence[Block]:
        """The blocks that tile the slabs, in address order."""
        ...


def check_int64(**numbers: int) -> None:
    """Refuse what a native pool cannot count.

    Raises:
        InputError: A number is below -2**63 or above 2**63 - 1.
    """
    for name, number in numbers.items():
        if number != clamp_int64(number):
            raise InputError(f"{name} {number} does not fit into 64 bits")


def clamp_int64(number: int) -> int:
    """The nearest number from -2**63 to 2**63 - 1."""
    return max(_INT64_MIN, min(number, _INT64_MAX))
