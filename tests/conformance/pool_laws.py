"""What every pool and every policy must obey; a new one is added to the lists in ``test_pools_and_policies.py``."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from lowtide.errors import InputError
from lowtide.ir import Block, End, Interval
from lowtide.ir.block import SLAB, Fit
from lowtide.policies.facts import GivenFacts, ValueFacts
from lowtide.policies.protocol import Facts, Policy
from lowtide.pool.protocol import Pool

ALIGNMENT_BYTES = 64


def check_tiling(pool: Pool) -> None:
    """Blocks tile the arena in address order, aligned, and no two free ones are neighbours; the figures agree."""
    end = 0
    previous_owner: str | None = "none before the first"
    for block in pool.blocks():
        assert block.offset == end, f"block at {block.offset} does not begin where the last one ended, at {end}"
        assert block.size_bytes > 0
        assert block.size_bytes % ALIGNMENT_BYTES == 0
        assert previous_owner is not None or block.owner is not None, f"free neighbours at {block.offset}"
        end, previous_owner = block.offset + block.size_bytes, block.owner
    assert end == pool.capacity_bytes
    holes = [block.size_bytes for block in pool.blocks() if block.owner is None]
    assert pool.free_bytes == sum(holes)
    assert pool.largest_hole_bytes == max(holes, default=0)
    owned_ends = [block.offset + block.size_bytes for block in pool.blocks() if block.owner is not None]
    assert max(owned_ends, default=0) <= pool.high_water_bytes <= pool.capacity_bytes


def sizes_by_owner(pool: Pool) -> dict[str, int]:
    """What is held outside of slabs."""
    return {block.owner: block.size_bytes for block in pool.blocks() if block.owner is not None}


def offset_of(pool: Pool, owner: str) -> int:
    """Where an owner's block begins."""
    (offset,) = (b.offset for b in (*pool.blocks(), *pool.small_blocks()) if b.owner == owner)
    return offset


def right_offset(holes: Sequence[Block], size_bytes: int, *, end: End, fit: Fit) -> int | None:
    """Where a request has to be placed, by the definition of both fits."""
    fitting = [hole for hole in holes if hole.size_bytes >= size_bytes]
    if not fitting:
        return None
    if fit is Fit.BEST:
        smallest = min(hole.size_bytes for hole in fitting)
        fitting = [hole for hole in fitting if hole.size_bytes == smallest][:1]
    hole = fitting[0] if end is End.LOW else fitting[-1]
    return hole.offset if end is End.LOW else hole.offset + hole.size_bytes - size_bytes


def drive_pool(pool: Pool, *, seed: int, num_calls: int = 300) -> None:
    """Make random calls and check every answer against the blocks as they were before."""
    rng = random.Random(seed)
    live: dict[str, int] = {}
    for call in range(num_calls):
        if live and rng.random() < 0.45:
            owner = rng.choice(sorted(live))
            pool.free(owner)
            del live[owner]
        else:
            owner, size_bytes = f"v{call}", ALIGNMENT_BYTES * rng.randint(1, 12)
            end, fit = rng.choice(list(End)), rng.choice(list(Fit))
            holes = [block for block in pool.blocks() if block.owner is None]
            offset = pool.allocate(owner, size_bytes=size_bytes - rng.randrange(ALIGNMENT_BYTES), end=end, fit=fit)
            right = right_offset(holes, size_bytes, end=end, fit=fit)
            assert offset == right, f"{size_bytes} bytes at {offset}, not at {right}, by {fit} fit from the {end} end"
            if offset is not None:
                live[owner] = size_bytes
        check_tiling(pool)
        assert sizes_by_owner(pool) == live


def check_pins(pool: Pool) -> None:
    """An owner stays pinned until it is unpinned as often as it was pinned; it does not move, but can be freed."""
    pool.allocate("pinned", size_bytes=ALIGNMENT_BYTES)
    pool.pin("pinned")
    pool.pin("pinned")
    pool.unpin("pinned")
    assert [b.is_pinned for b in pool.blocks() if b.owner == "pinned"] == [True]
    with pytest.raises(InputError, match="the block of 64 bytes at offset 0 is pinned and cannot move"):
        pool.slide("pinned", end=End.HIGH)
    pool.unpin("pinned")
    assert [b.is_pinned for b in pool.blocks() if b.owner == "pinned"] == [False]
    with pytest.raises(InputError, match="the block of 64 bytes at offset 0 is not pinned"):
        pool.unpin("pinned")
    pool.pin("pinned")
    pool.free("pinned")
    pool.allocate("next", size_bytes=ALIGNMENT_BYTES)
    assert not any(block.is_pinned for block in pool.blocks()), "a pin outlived its block"


def check_take(pool: Pool) -> None:
    """A request can name its hole, which need not be the best one."""
    for owner, units in (("a", 3), ("b", 1), ("c", 2), ("d", 1)):
        pool.allocate(owner, size_bytes=ALIGNMENT_BYTES * units)
    pool.free("a")
    pool.free("c")
    assert pool.take("low", hole_offset=0, size_bytes=ALIGNMENT_BYTES) == 0
    assert pool.take("high", hole_offset=ALIGNMENT_BYTES, size_bytes=1, end=End.HIGH) == 2 * ALIGNMENT_BYTES
    with pytest.raises(InputError, match="no free block begins at offset 0"):
        pool.take("more", hole_offset=0, size_bytes=1)
    with pytest.raises(InputError, match="the hole of 64 bytes at offset 64 cannot hold 65 bytes"):
        pool.take("more", hole_offset=ALIGNMENT_BYTES, size_bytes=65)
    check_tiling(pool)


def check_slide(pool: Pool, *, seed: int) -> None:
    """Sliding every block towards one end, nearest first, leaves one hole and the order as it was."""
    rng = random.Random(seed)
    for index in range(20):
        pool.allocate(f"v{index}", size_bytes=ALIGNMENT_BYTES * rng.randint(1, 5))
    for index in rng.sample(range(20), 10):
        pool.free(f"v{index}")
    for end in (End.LOW, End.HIGH):
        before = sizes_by_owner(pool)
        owners = list(before) if end is End.LOW else list(reversed(before))
        for owner in owners:
            assert pool.slide(owner, end=end) == offset_of(pool, owner)
            check_tiling(pool)
        assert list(sizes_by_owner(pool).items()) == list(before.items())
        assert pool.largest_hole_bytes == pool.free_bytes == pool.capacity_bytes - sum(before.values())
    assert pool.high_water_bytes == pool.capacity_bytes


def check_hand_over(pool: Pool) -> None:
    """A block keeps its place, its size and its pins when another owner gets it."""
    pool.allocate("old", size_bytes=100)
    pool.pin("old")
    before = pool.blocks()
    pool.hand_over("old", new_owner="new")
    assert list(pool.blocks()) == [replace(b, owner="new") if b.owner == "old" else b for b in before]
    with pytest.raises(InputError, match="owner 'old' holds nothing: it was freed, or never allocated"):
        pool.free("old")


def check_refusals(pool: Pool) -> None:
    """What makes no sense is refused with a text, and changes nothing."""
    pool.allocate("a", size_bytes=ALIGNMENT_BYTES)
    pool.allocate("gone", size_bytes=ALIGNMENT_BYTES)
    pool.free("gone")
    before = pool.blocks()
    nothing = "holds nothing: it was freed, or never allocated"
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: pool.free("gone"), f"owner 'gone' {nothing}"),
        (lambda: pool.pin("stranger"), f"owner 'stranger' {nothing}"),
        (lambda: pool.slide("stranger", end=End.LOW), f"owner 'stranger' {nothing}"),
        (lambda: pool.allocate("b", size_bytes=-1), "a block of -1 bytes is asked for: below 0"),
        (lambda: pool.allocate("a", size_bytes=1), "owner 'a' already holds a block: free that first, or"),
        (lambda: pool.hand_over("a", new_owner="a"), "owner 'a' already holds a block: free that first, or"),
        (lambda: pool.allocate(SLAB, size_bytes=1), f"owner '{SLAB}' is reserved for slabs of small requests"),
    ]
    for call, text in refused:
        with pytest.raises(InputError, match=text):
            call()
    for size_bytes in (2**63 - 65, 2**63 - 1, 2**63, 2**80):
        assert pool.allocate("huge", size_bytes=size_bytes) is None
    assert pool.blocks() == before
    check_tiling(pool)


def check_slabs(pool: Pool, *, largest_bytes: int, slab_bytes: int, seed: int) -> None:
    """Small requests lie in pinned slabs as long as one can be had, others never; an empty slab is given back."""
    rng = random.Random(seed)
    live: dict[str, int] = {}
    for call in range(400):
        if live and rng.random() < (0.3 if call % 200 < 150 else 0.8):
            owner = rng.choice(sorted(live))
            pool.free(owner)
            del live[owner]
        else:
            owner, size_bytes = f"v{call}", ALIGNMENT_BYTES * rng.randint(1, 2 * largest_bytes // ALIGNMENT_BYTES)
            room = max((b.size_bytes for b in pool.small_blocks() if b.owner is None), default=0)
            has_room = room >= size_bytes or pool.largest_hole_bytes >= slab_bytes
            can_be_small = size_bytes <= largest_bytes and has_room
            if pool.allocate(owner, size_bytes=size_bytes, end=End.HIGH) is not None:
                live[owner] = size_bytes
                assert (owner in {b.owner for b in pool.small_blocks()}) == can_be_small
            else:
                assert not can_be_small
        check_tiling(pool)
        _check_tiles(pool, slab_bytes)
        held = {b.owner: b.size_bytes for b in pool.small_blocks() if b.owner is not None}
        assert {**sizes_by_owner(pool), **held, SLAB: 0} == {**live, SLAB: 0}
    for owner in live:
        pool.free(owner)
    assert list(pool.blocks()) == [Block(0, pool.capacity_bytes, None)]


def _check_tiles(pool: Pool, slab_bytes: int) -> None:
    slabs = [block for block in pool.blocks() if block.owner == SLAB]
    tiles = list(pool.small_blocks())
    for slab in slabs:
        assert slab.size_bytes == slab_bytes
        assert slab.is_pinned
        inside = [tile for tile in tiles if slab.offset <= tile.offset < slab.offset + slab_bytes]
        end = slab.offset
        for tile in inside:
            assert tile.offset == end
            end += tile.size_bytes
        assert end == slab.offset + slab_bytes
        assert any(tile.owner is not None for tile in inside), "an empty slab was kept"
    assert sum(tile.size_bytes for tile in tiles) == slab_bytes * len(slabs)


def random_blocks(rng: random.Random) -> tuple[Block, ...]:
    """Blocks of a pool in use: owned, free and pinned ones."""
    blocks: list[Block] = []
    offset = 0
    for index in range(rng.randint(1, 12)):
        size_bytes = ALIGNMENT_BYTES * rng.randint(1, 8)
        is_free = rng.random() < 0.3 and (not blocks or blocks[-1].owner is not None)
        is_pinned = not is_free and rng.random() < 0.2
        blocks.append(Block(offset, size_bytes, None if is_free else f"v{index}", is_pinned))
        offset += size_bytes
    return tuple(blocks)


def random_facts(blocks: Sequence[Block], rng: random.Random) -> GivenFacts:
    """Facts about all owners of blocks that are not pinned."""
    draw = rng.random
    return GivenFacts(
        {
            block.owner: ValueFacts(
                projected_cost=draw(),
                staleness=0.1 + draw(),
                neighborhood_cost=draw(),
                component_cost=draw(),
                own_cost=draw(),
                chance=draw(),
            )
            for block in blocks
            if block.owner is not None and not block.is_pinned
        }
    )


def check_choice(policy: Policy, blocks: Sequence[Block], *, size_bytes: int, facts: Facts) -> Interval | None:
    """A choice has no pinned block, and is a single owned one or a window that holds the request, minimal at both ends.

    None only where nothing can go.
    """
    chosen = policy.choose(blocks, size_bytes=size_bytes, facts=facts)
    if chosen is None:
        assert not _can_serve(blocks, size_bytes), "gave up although some window holds the request"
        return None
    inside = blocks[chosen.start : chosen.end]
    assert 0 <= chosen.start < chosen.end <= len(blocks)
    assert not any(block.is_pinned for block in inside), "chose a pinned block"
    assert any(block.owner is not None for block in inside) or _holds(blocks, chosen, size_bytes), "chose nothing"
    if len(chosen) > 1:
        assert _holds(blocks, chosen, size_bytes), "the window does not hold the request"
        assert not _holds(blocks, Interval(chosen.start + 1, chosen.end), size_bytes), "not minimal at its low end"
        assert not _holds(blocks, Interval(chosen.start, chosen.end - 1), size_bytes), "not minimal at its high end"
    return chosen


def _can_serve(blocks: Sequence[Block], size_bytes: int) -> bool:
    return any(
        _holds(blocks, Interval(start, end), size_bytes)
        for start in range(len(blocks))
        for end in range(start + 1, len(blocks) + 1)
        if any(block.owner is not None for block in blocks[start:end])
    )


def _holds(blocks: Sequence[Block], window: Interval, size_bytes: int) -> bool:
    inside = blocks[window.start : window.end]
    return not any(b.is_pinned for b in inside) and sum(b.size_bytes for b in inside) >= size_bytes
