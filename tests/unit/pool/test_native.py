"""The native core itself: ids, errors and numbers near the edge of 64 bits."""

from __future__ import annotations

import random

import pytest

from lowtide import _pool

LARGEST = 2**63 - 64
"""The largest capacity with an alignment of 64."""


def sizes(pool: _pool.Pool) -> list[tuple[int, int]]:
    return [(size, owner) for _, size, owner, _ in pool.blocks()]


def test_a_block_keeps_its_id_while_others_come_and_go() -> None:
    pool = _pool.Pool(640, 64)
    first, kept, last = (pool.allocate(64, owner) for owner in (1, 2, 3))
    pool.free(first)
    pool.free(last)
    assert pool.offset_of(kept) == 64
    pool.slide(kept)
    assert pool.offset_of(kept) == 0
    assert sizes(pool) == [(64, 2), (576, -1)]


def test_freeing_names_the_hole_that_results() -> None:
    pool = _pool.Pool(256, 64)
    low, middle, high = (pool.allocate(64, owner) for owner in (1, 2, 3))
    assert pool.offset_of(pool.free(low)) == 0
    assert pool.offset_of(pool.free(high)) == 128
    hole = pool.free(middle)
    assert (pool.offset_of(hole), pool.num_blocks, pool.largest_hole) == (0, 1, 256)


@pytest.mark.parametrize("merges", [False, True])
def test_a_block_cannot_be_freed_twice(merges: bool) -> None:
    pool = _pool.Pool(256, 64)
    neighbour, block, _ = (pool.allocate(64, owner) for owner in (1, 2, 3))
    if merges:
        pool.free(neighbour)
    pool.free(block)
    text = (
        f"there is no block {block}: it was freed" if merges else "the block of 64 bytes at offset 64 is free already"
    )
    with pytest.raises(_pool.PoolError, match=text):
        pool.free(block)


@pytest.mark.parametrize("block", [-1, 5, 2**31 - 1])
def test_an_unknown_block_is_refused(block: int) -> None:
    pool = _pool.Pool(256, 64)
    for call in (pool.free, pool.pin, pool.unpin, pool.slide, lambda block: pool.take(block, 1, 0)):
        with pytest.raises(_pool.PoolError, match=f"there is no block {block}: it was freed, or never given out"):
            call(block)


def test_what_is_owned_is_no_hole_and_a_hole_is_not_owned() -> None:
    pool = _pool.Pool(128, 64)
    block = pool.allocate(64, 7)
    hole = pool.hole_at(64)
    with pytest.raises(_pool.PoolError, match="the block of 64 bytes at offset 0 is no hole: it has an owner"):
        pool.take(block, 64, 8)
    for call in (pool.pin, pool.unpin, pool.slide, pool.free, lambda block: pool.set_owner(block, 1)):
        with pytest.raises(_pool.PoolError, match="the block of 64 bytes at offset 64 is free already"):
            call(hole)
    with pytest.raises(_pool.PoolError, match="owner -1 is reserved for holes"):
        pool.allocate(64, -1)
    with pytest.raises(_pool.PoolError, match="owner -1 is reserved for holes"):
        pool.set_owner(block, -1)
    assert pool.blocks() == [(0, 64, 7, 0), (64, 64, -1, 0)]


def test_a_refused_request_leaves_no_slab_behind() -> None:
    pool = _pool.Pool(1024, 64)
    region = _pool.SmallRegion(pool, small_bytes=128, slab_bytes=512)
    with pytest.raises(_pool.PoolError, match="a block of -1 bytes is asked for: below 0"):
        region.allocate(-1, 0)
    with pytest.raises(_pool.PoolError, match="owner -1 is reserved for holes"):
        region.allocate(64, -1)
    assert region.num_slabs == 0
    assert pool.blocks() == [(0, 1024, -1, 0)]


@pytest.mark.parametrize("offset", [-64, 0, 63, 128, 192, 512, 4096])
def test_a_small_block_is_found_only_where_it_begins(offset: int) -> None:
    pool = _pool.Pool(4096, 64)
    region = _pool.SmallRegion(pool, small_bytes=128, slab_bytes=512)
    assert [region.allocate(64, 0), region.allocate(128, 1)] == [0, 64]
    region.free(0)
    for call in (region.free, region.pin, region.unpin, lambda offset: region.set_owner(offset, 3)):
        with pytest.raises(_pool.PoolError, match=f"no small block begins at offset {offset}: it was freed"):
            call(offset)
    assert region.used_bytes == 128


def test_sizes_near_the_edge_of_64_bits_do_not_wrap() -> None:
    pool = _pool.Pool(LARGEST, 64)
    for size in (LARGEST + 1, 2**63 - 1):
        assert pool.allocate(size, 0) == -1
        with pytest.raises(_pool.PoolError, match=f"cannot hold {size} bytes"):
            pool.take(pool.hole_at(0), size, 0)
    low = pool.allocate(LARGEST - 127, 0)  # rounded up to LARGEST - 64
    high = pool.allocate(64, 1, is_high=True)
    assert (pool.offset_of(low), pool.offset_of(high)) == (0, LARGEST - 64)
    assert (pool.free_bytes, pool.allocate(1, 2)) == (0, -1)
    assert pool.high_water == LARGEST
    pool.free(low)
    pool.free(high)


@pytest.mark.parametrize(
    ("capacity", "alignment", "text"),
    [
        (64, 48, "alignment 48 is no power of two"),
        (64, 0, "alignment 0 is no power of two"),
        (64, -64, "alignment -64 is no power of two"),
        (0, 64, "capacity 0 is no positive multiple of the alignment 64"),
        (-64, 64, "capacity -64 is no positive multiple of the alignment 64"),
        (2**63 - 1, 64, f"capacity {2**63 - 1} is no positive multiple of the alignment 64"),
    ],
)
def test_a_pool_that_cannot_be(capacity: int, alignment: int, text: str) -> None:
    with pytest.raises(_pool.PoolError, match=text):
        _pool.Pool(capacity, alignment)


def test_both_searches_agree_with_a_scan_of_many_holes() -> None:
    rng = random.Random(5)
    pool = _pool.Pool(64 * 40_000, 64)
    blocks = [pool.allocate(64 * rng.randint(1, 9), owner) for owner in range(7000)]
    for block in rng.sample(blocks, 3000):
        pool.free(block)
    for owner in range(7000, 7100):
        size = 64 * rng.randint(1, 30)
        holes = [(offset, free) for offset, free, owner, _ in pool.blocks() if owner == -1 and free >= size]
        is_high, is_first = rng.random() < 0.5, rng.random() < 0.5
        offset, free = holes[-1 if is_high else 0] if is_first else min(holes, key=lambda hole: hole[::-1])
        block = pool.allocate(size, owner, is_high=is_high, is_first=is_first)
        assert pool.offset_of(block) == (offset + free - size if is_high else offset)
