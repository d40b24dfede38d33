"""The pool in C++ (``native/include/lowtide/pool.hpp``), with names for owners."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from lowtide import _pool
from lowtide.errors import InputError
from lowtide.ir import Block, End
from lowtide.ir.block import SLAB, Fit
from lowtide.pool.protocol import SmallRequests, check_int64, clamp_int64

__all__ = ["NativePool"]

_NONE = -1
_FREE_OWNER = -1
_SLAB_OWNER = -2


@dataclass(slots=True)
class _Holding:
    """What an owner holds: a block of the pool, or an offset within a slab."""

    number: int
    place: int
    is_small: bool


class NativePool:
    """A pool whose blocks live in C++: allocate and free take O(log n).

    Args:
        capacity_bytes: Bytes of the arena, a positive multiple of the alignment.
        alignment_bytes: Sizes are rounded up to this power of two.
        small: Which requests are served from slabs; None: none.

    Raises:
        InputError: The capacity, the alignment or the slabs contradict each other.
    """

    def __init__(self, *, capacity_bytes: int, alignment_bytes: int = 64, small: SmallRequests | None = None) -> None:
        check_int64(capacity_bytes=capacity_bytes, alignment_bytes=alignment_bytes)
        if small is not None:
            check_int64(largest_bytes=small.largest_bytes, slab_bytes=small.slab_bytes)
        with _as_input_error():
            self._pool = _pool.Pool(capacity_bytes, alignment_bytes)
            self._region = (
                None
                if small is None
                else _pool.SmallRegion(self._pool, small_bytes=small.largest_bytes, slab_bytes=small.slab_bytes)
            )
        self._held_by: dict[str, _Holding] = {}
        self._name_of: dict[int, str | None] = {_FREE_OWNER: None, _SLAB_OWNER: SLAB}
        self._num_named = 0

    @property
    def capacity_bytes(self) -> int:
        """Bytes of the arena."""
        return self._pool.capacity

    @property
    def free_bytes(self) -> int:
        """Bytes of all free blocks; what is free within slabs does not count."""
        return self._pool.free_bytes

    @property
    def largest_hole_bytes(self) -> int:
        """Bytes of the largest free block, 0 where there is none."""
        return self._pool.largest_hole

    @property
    def high_water_bytes(self) -> int:
        """The highest end that an owned block ever had."""
        return self._pool.high_water

    def allocate(self, owner: str, *, size_bytes: int, end: End = End.LOW, fit: Fit = Fit.BEST) -> int | None:
        """Take a block; return its offset, or None where no free block holds it."""
        self._check_new(owner)
        size_bytes, number = clamp_int64(size_bytes), self._num_named
        with _as_input_error():
            if self._region is not None:
                offset = self._region.allocate(size_bytes, number)
                if offset != _NONE:
                    self._enter(owner, _Holding(number, offset, is_small=True))
                    return offset
            block = self._pool.allocate(size_bytes, number, is_high=end is End.HIGH, is_first=fit is Fit.FIRST)
        if block == _NONE:
            return None
        self._enter(owner, _Holding(number, block, is_small=False))
        return self._pool.offset_of(block)

    def take(self, owner: str, *, hole_offset: int, size_bytes: int, end: End = End.LOW) -> int:
        """Take a block from the free block that begins at ``hole_offset``; return its offset."""
        self._check_new(owner)
        hole = self._pool.hole_at(clamp_int64(hole_offset))
        if hole == _NONE:
            raise InputError(f"no free block begins at offset {hole_offset}")
        number = self._num_named
        with _as_input_error():
            block = self._pool.take(hole, clamp_int64(size_bytes), number, is_high=end is End.HIGH)
        self._enter(owner, _Holding(number, block, is_small=False))
        return self._pool.offset_of(block)

    def free(self, owner: str) -> None:
        """Give back the block of an owner, whatever its pins; free neighbours coalesce at once."""
        holding = self._holding(owner)
        if holding.is_small:
            self._small.free(holding.place)
        else:
            self._pool.free(holding.place)
        del self._held_by[owner], self._name_of[holding.number]

    def hand_over(self, owner: str, *, new_owner: str) -> None:
        """Let another owner have an owner's block, pins and all."""
        holding = self._holding(owner)
        self._check_new(new_owner)
        number = self._num_named
        if holding.is_small:
            self._small.set_owner(holding.place, number)
        else:
            self._pool.set_owner(holding.place, number)
        del self._held_by[owner], self._name_of[holding.number]
        self._enter(new_owner, _Holding(number, holding.place, holding.is_small))

    def pin(self, owner: str) -> None:
        """Forbid evicting and moving an owner until as many ``unpin``."""
        holding = self._holding(owner)
        with _as_input_error():
            (self._small if holding.is_small else self._pool).pin(holding.place)

    def unpin(self, owner: str) -> None:
        """Undo one ``pin``."""
        holding = self._holding(owner)
        with _as_input_error():
            (self._small if holding.is_small else self._pool).unpin(holding.place)

    def slide(self, owner: str, *, end: End) -> int:
        """Move a block to the far end of the free block beside it, if there is one; return its offset."""
        holding = self._holding(owner)
        if holding.is_small:
            raise InputError(f"owner {owner!r} lies in a slab, at offset {holding.place}, and cannot move")
        with _as_input_error():
            return self._pool.offset_of(self._pool.slide(holding.place, is_high=end is End.HIGH))

    def blocks(self) -> Sequence[Block]:
        """All blocks in address order; they tile the arena. Slabs are among them."""
        return self._named(self._pool.blocks())

    def small_blocks(self) -> Sequence[Block]:
        """The blocks that tile the slabs, in address order."""
        return () if self._region is None else self._named(self._region.blocks())

    @property
    def _small(self) -> _pool.SmallRegion:
        assert self._region is not None, "only a region hands out small blocks"
        return self._region

    def _named(self, rows: list[tuple[int, int, int, int]]) -> Sequence[Block]:
        return tuple(Block(offset, size, self._name_of[owner], pins > 0) for offset, size, owner, pins in rows)

    def _holding(self, owner: str) -> _Holding:
        if owner not in self._held_by:
            raise InputError(f"owner {owner!r} holds nothing: it was freed, or never allocated")
        return self._held_by[owner]

    def _check_new(self, owner: str) -> None:
        if owner == SLAB:
            raise InputError(f"owner {owner!r} is reserved for slabs of small requests: choose another name")
        if owner in self._held_by:
            raise InputError(f"owner {owner!r} already holds a block: free that first, or choose another name")

    def _enter(self, owner: str, holding: _Holding) -> None:
        self._held_by[owner] = holding
        self._name_of[holding.number] = owner
        self._num_named += 1


@contextmanager
def _as_input_error() -> Iterator[None]:
    try:
        yield
    except _pool.PoolError as error:
        raise InputError(str(error)) from error
