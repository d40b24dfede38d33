"""The pool in plain Python: lists, loops and nothing else, so that it can be seen to be right.

The oracle of :class:`lowtide.pool.native.NativePool`: the same calls get the same answers, block for block, and the
same errors, word for word. Every call takes O(n) or more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lowtide.errors import InputError
from lowtide.ir import Block, End
from lowtide.ir.block import SLAB, Fit
from lowtide.pool.protocol import SmallRequests, check_int64, clamp_int64
from lowtide.units import align_up

__all__ = ["ReferencePool"]


@dataclass(slots=True)
class _Span:
    """A block that can change."""

    offset: int
    size_bytes: int
    owner: str | None
    pins: int = 0

    def __str__(self) -> str:
        return f"the block of {self.size_bytes} bytes at offset {self.offset}"


class _Tiling:
    """Spans in address order, from an offset on, without gaps."""

    def __init__(self, *, offset: int, size_bytes: int) -> None:
        self.spans = [_Span(offset, size_bytes, None)]

    def holes(self) -> list[_Span]:
        return [span for span in self.spans if span.owner is None]

    def largest_hole_bytes(self) -> int:
        return max((hole.size_bytes for hole in self.holes()), default=0)

    def held_by(self, owner: str) -> _Span | None:
        return next((span for span in self.spans if span.owner == owner), None)

    def find(self, size_bytes: int, *, end: End, fit: Fit) -> _Span | None:
        holes = [hole for hole in self.holes() if hole.size_bytes >= size_bytes]
        if not holes:
            return None
        if fit is Fit.BEST:
            return min(holes, key=lambda hole: (hole.size_bytes, hole.offset))
        return holes[0] if end is End.LOW else holes[-1]

    def carve(self, hole: _Span, owner: str, size_bytes: int, *, end: End) -> _Span:
        start = hole.offset if end is End.LOW else hole.offset + hole.size_bytes - size_bytes
        taken = _Span(start, size_bytes, owner)
        parts = [
            _Span(hole.offset, start - hole.offset, None),
            taken,
            _Span(start + size_bytes, hole.offset + hole.size_bytes - start - size_bytes, None),
        ]
        index = self.spans.index(hole)
        self.spans[index : index + 1] = [part for part in parts if part.size_bytes > 0]
        return taken

    def release(self, span: _Span) -> None:
        span.owner, span.pins = None, 0
        self._coalesce()

    def slide(self, span: _Span, *, end: End) -> None:
        index = self.spans.index(span)
        neighbour = index - 1 if end is End.LOW else index + 1
        if not 0 <= neighbour < len(self.spans) or self.spans[neighbour].owner is not None:
            return
        low, high = min(index, neighbour), max(index, neighbour)
        start = self.spans[low].offset
        self.spans[low], self.spans[high] = self.spans[high], self.spans[low]
        self.spans[low].offset = start
        self.spans[high].offset = start + self.spans[low].size_bytes
        self._coalesce()

    def blocks(self) -> tuple[Block, ...]:
        return tuple(Block(span.offset, span.size_bytes, span.owner, span.pins > 0) for span in self.spans)

    def _coalesce(self) -> None:
        merged = self.spans[:1]
        for span in self.spans[1:]:
            if span.owner is None and merged[-1].owner is None:
                merged[-1].size_bytes += span.size_bytes
            else:
                merged.append(span)
        self.spans = merged


class ReferencePool:
    """The simplest right pool.

    Args:
        capacity_bytes: Bytes of the arena, a positive multiple of the alignment.
        alignment_bytes: Sizes are rounded up to this power of two.
        small: Which requests are served from slabs; None: none.

    Raises:
        InputError: The capacity, the alignment or the slabs contradict each other.
    """

    def __init__(self, *, capacity_bytes: int, alignment_bytes: int = 64, small: SmallRequests | None = None) -> None:
        _check_sizes(capacity_bytes, alignment_bytes, small)
        self._capacity_bytes = capacity_bytes
        self._alignment_bytes = alignment_bytes
        self._requests = small
        self._arena = _Tiling(offset=0, size_bytes=capacity_bytes)
        self._slabs: list[tuple[_Span, _Tiling]] = []
        self._high_water_bytes = 0

    @property
    def capacity_bytes(self) -> int:
        """Bytes of the arena."""
        return self._capacity_bytes

    @property
    def free_bytes(self) -> int:
        """Bytes of all free blocks; what is free within slabs does not count."""
        return sum(hole.size_bytes for hole in self._arena.holes())

    @property
    def largest_hole_bytes(self) -> int:
        """Bytes of the largest free block, 0 where there is none."""
        return self._arena.largest_hole_bytes()

    @property
    def high_water_bytes(self) -> int:
        """The highest end that an owned block ever had."""
        return self._high_water_bytes

    def allocate(self, owner: str, *, size_bytes: int, end: End = End.LOW, fit: Fit = Fit.BEST) -> int | None:
        """Take a block; return its offset, or None where no free block holds it."""
        self._check_new(owner)
        rounded_bytes = self._rounded(size_bytes)
        if self._requests is not None and size_bytes <= self._requests.largest_bytes:
            tiles = self._slab_for(rounded_bytes)
            hole = None if tiles is None else tiles.find(rounded_bytes, end=End.LOW, fit=Fit.BEST)
            if tiles is not None and hole is not None:
                return tiles.carve(hole, owner, rounded_bytes, end=End.LOW).offset
        hole = self._arena.find(rounded_bytes, end=end, fit=fit)
        return None if hole is None else self._carve(hole, owner, rounded_bytes, end=end).offset

    def take(self, owner: str, *, hole_offset: int, size_bytes: int, end: End = End.LOW) -> int:
        """Take a block from the free block that begins at ``hole_offset``; return its offset."""
        self._check_new(owner)
        hole = next((hole for hole in self._arena.holes() if hole.offset == hole_offset), None)
        if hole is None:
            raise InputError(f"no free block begins at offset {hole_offset}")
        rounded_bytes = self._rounded(size_bytes)
        if rounded_bytes > hole.size_bytes:
            raise InputError(
                f"the hole of {hole.size_bytes} bytes at offset {hole_offset} cannot hold "
                f"{clamp_int64(size_bytes)} bytes"
            )
        return self._carve(hole, owner, rounded_bytes, end=end).offset

    def free(self, owner: str) -> None:
        """Give back the block of an owner, whatever its pins; free neighbours coalesce at once."""
        tiling, span = self._holding(owner)
        tiling.release(span)
        for slab, tiles in self._slabs:
            if tiles is tiling and all(span.owner is None for span in tiles.spans):
                self._arena.release(slab)
        self._slabs = [(slab, tiles) for slab, tiles in self._slabs if slab.owner is not None]

    def hand_over(self, owner: str, *, new_owner: str) -> None:
        """Let another owner have an owner's block, pins and all."""
        _, span = self._holding(owner)
        self._check_new(new_owner)
        span.owner = new_owner

    def pin(self, owner: str) -> None:
        """Forbid evicting and moving an owner until as many ``unpin``."""
        self._holding(owner)[1].pins += 1

    def unpin(self, owner: str) -> None:
        """Undo one ``pin``."""
        _, span = self._holding(owner)
        if span.pins == 0:
            raise InputError(f"{span} is not pinned")
        span.pins -= 1

    def slide(self, owner: str, *, end: End) -> int:
        """Move a block to the far end of the free block beside it, if there is one; return its offset."""
        tiling, span = self._holding(owner)
        if tiling is not self._arena:
            raise InputError(f"owner {owner!r} lies in a slab, at offset {span.offset}, and cannot move")
        if span.pins > 0:
            raise InputError(f"{span} is pinned and cannot move")
        tiling.slide(span, end=end)
        self._note_end(span)
        return span.offset

    def blocks(self) -> Sequence[Block]:
        """All blocks in address order; they tile the arena. Slabs are among them."""
        return self._arena.blocks()

    def small_blocks(self) -> Sequence[Block]:
        """The blocks that tile the slabs, in address order."""
        tilings = [tiles for _, tiles in sorted(self._slabs, key=lambda pair: pair[0].offset)]
        return tuple(block for tiles in tilings for block in tiles.blocks())

    def _rounded(self, size_bytes: int) -> int:
        if size_bytes < 0:
            raise InputError(f"a block of {clamp_int64(size_bytes)} bytes is asked for: below 0")
        return align_up(max(size_bytes, 1), self._alignment_bytes)

    def _carve(self, hole: _Span, owner: str, size_bytes: int, *, end: End) -> _Span:
        span = self._arena.carve(hole, owner, size_bytes, end=end)
        self._note_end(span)
        return span

    def _note_end(self, span: _Span) -> None:
        self._high_water_bytes = max(self._high_water_bytes, span.offset + span.size_bytes)

    def _slab_for(self, size_bytes: int) -> _Tiling | None:
        """The slab with the least room that suffices, else a new one at the low end, else None."""
        assert self._requests is not None
        fitting = [(slab, tiles) for slab, tiles in self._slabs if tiles.largest_hole_bytes() >= size_bytes]
        if fitting:
            return min(fitting, key=lambda pair: (pair[1].largest_hole_bytes(), pair[0].offset))[1]
        hole = self._arena.find(self._requests.slab_bytes, end=End.LOW, fit=Fit.FIRST)
        if hole is None:
            return None
        slab = self._carve(hole, SLAB, self._requests.slab_bytes, end=End.LOW)
        slab.pins = 1
        tiles = _Tiling(offset=slab.offset, size_bytes=slab.size_bytes)
        self._slabs.append((slab, tiles))
        return tiles

    def _find(self, owner: str) -> tuple[_Tiling, _Span] | None:
        for tiling in (self._arena, *(tiles for _, tiles in self._slabs)):
            span = tiling.held_by(owner)
            if span is not None:
                return tiling, span
        return None

    def _holding(self, owner: str) -> tuple[_Tiling, _Span]:
        found = None if owner == SLAB else self._find(owner)
        if found is None:
            raise InputError(f"owner {owner!r} holds nothing: it was freed, or never allocated")
        return found

    def _check_new(self, owner: str) -> None:
        if owner == SLAB:
            raise InputError(f"owner {owner!r} is reserved for slabs of small requests: choose another name")
        if self._find(owner) is not None:
            raise InputError(f"owner {owner!r} already holds a block: free that first, or choose another name")


def _check_sizes(capacity_bytes: int, alignment_bytes: int, small: SmallRequests | None) -> None:
    check_int64(capacity_bytes=capacity_bytes, alignment_bytes=alignment_bytes)
    if small is not None:
        check_int64(largest_bytes=small.largest_bytes, slab_bytes=small.slab_bytes)
    if alignment_bytes.bit_count() != 1 or alignment_bytes < 1:
        raise InputError(f"alignment {alignment_bytes} is no power of two")
    if capacity_bytes <= 0 or capacity_bytes % alignment_bytes:
        raise InputError(f"capacity {capacity_bytes} is no positive multiple of the alignment {alignment_bytes}")
    if small is None:
        return
    if small.slab_bytes <= 0 or small.slab_bytes % alignment_bytes:
        raise InputError(
            f"slabs of {small.slab_bytes} bytes are no positive multiple of the alignment {alignment_bytes}"
        )
    if not 0 <= small.largest_bytes <= small.slab_bytes:
        raise InputError(
            f"small requests of up to {small.largest_bytes} bytes do not fit slabs of {small.slab_bytes} bytes"
        )
