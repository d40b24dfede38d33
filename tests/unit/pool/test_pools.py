"""Both pools on small cases that are worked out by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lowtide.errors import InputError
from lowtide.ir import Block, End
from lowtide.ir.block import SLAB, Fit
from lowtide.pool.native import NativePool
from lowtide.pool.protocol import Pool, SmallRequests
from lowtide.pool.reference import ReferencePool

both = pytest.mark.parametrize("make", [NativePool, ReferencePool])
Make = type[NativePool] | type[ReferencePool]


def drawn(pool: Pool) -> str:
    """One letter per 64 bytes, a dot where they are free."""
    return "".join((block.owner or ".")[0] * (block.size_bytes // 64) for block in pool.blocks())


@both
def test_best_fit_takes_the_smallest_hole_first_fit_the_nearest(make: Make) -> None:
    pool = make(capacity_bytes=64 * 12)
    for owner, units in (("a", 3), ("b", 1), ("c", 2), ("d", 1), ("e", 3), ("f", 2)):
        pool.allocate(owner, size_bytes=64 * units)
    for owner in "ace":
        pool.free(owner)
    assert drawn(pool) == "...b..d...ff"
    pool.allocate("w", size_bytes=64, end=End.LOW, fit=Fit.FIRST)
    pool.allocate("x", size_bytes=64, end=End.HIGH, fit=Fit.FIRST)
    assert drawn(pool) == "w..b..d..xff"
    pool.allocate("y", size_bytes=65, end=End.HIGH, fit=Fit.BEST)
    assert drawn(pool) == "wyyb..d..xff"
    assert pool.allocate("z", size_bytes=64 * 3) is None
    assert (pool.free_bytes, pool.largest_hole_bytes, pool.high_water_bytes) == (64 * 4, 64 * 2, 64 * 12)


@both
def test_a_block_slides_over_the_hole_beside_it_and_no_further(make: Make) -> None:
    pool = make(capacity_bytes=64 * 8)
    for owner, units in (("a", 1), ("b", 1), ("c", 2), ("d", 1), ("e", 1)):
        pool.allocate(owner, size_bytes=64 * units)
    pool.free("b")
    pool.free("d")
    assert drawn(pool) == "a.cc.e.."
    assert pool.slide("c", end=End.LOW) == 64
    assert drawn(pool) == "acc..e.."
    assert pool.slide("a", end=End.HIGH) == 0
    assert pool.slide("c", end=End.HIGH) == 64 * 3
    assert drawn(pool) == "a..cce.."
    assert pool.high_water_bytes == 64 * 6
    assert pool.slide("e", end=End.HIGH) == 64 * 7
    assert drawn(pool) == "a..cc..e"
    assert pool.high_water_bytes == 64 * 8


@both
def test_slabs_gather_at_the_low_end_and_the_fuller_one_serves(make: Make) -> None:
    pool = make(capacity_bytes=64 * 12, small=SmallRequests(largest_bytes=128, slab_bytes=256))
    assert pool.allocate("large", size_bytes=129) == 0
    assert [pool.allocate(name, size_bytes=128) for name in ("a", "b", "c")] == [192, 320, 448]
    assert drawn(pool) == "lll<<<<<<<<."
    assert pool.allocate("d", size_bytes=0) == 576
    pool.free("a")
    assert [(b.offset, b.size_bytes, b.owner) for b in pool.small_blocks()] == [
        (192, 128, None),
        (320, 128, "b"),
        (448, 128, "c"),
        (576, 64, "d"),
        (640, 64, None),
    ]
    assert pool.allocate("e", size_bytes=64) == 640, "the slab with less room"
    assert all(block.is_pinned for block in pool.blocks() if block.owner == SLAB)
    pool.free("b")
    assert drawn(pool) == "lll....<<<<."
    with pytest.raises(InputError, match="owner 'c' lies in a slab, at offset 448, and cannot move"):
        pool.slide("c", end=End.LOW)


@both
def test_a_small_request_goes_elsewhere_where_no_slab_can_be_had(make: Make) -> None:
    pool = make(capacity_bytes=256, small=SmallRequests(largest_bytes=128, slab_bytes=256))
    pool.allocate("large", size_bytes=192)
    assert pool.allocate("small", size_bytes=64) == 192
    assert pool.small_blocks() == ()
    assert drawn(pool) == "llls"


@both
def test_small_blocks_can_be_pinned_and_handed_over(make: Make) -> None:
    pool = make(capacity_bytes=1024, small=SmallRequests(largest_bytes=128, slab_bytes=256))
    pool.allocate("a", size_bytes=100)
    pool.pin("a")
    pool.hand_over("a", new_owner="b")
    assert pool.small_blocks() == (Block(0, 128, "b", is_pinned=True), Block(128, 128, None))
    pool.unpin("b")
    with pytest.raises(InputError, match="the block of 128 bytes at offset 0 is not pinned"):
        pool.unpin("b")
    pool.free("b")
    assert pool.blocks() == (Block(0, 1024, None),)


@both
@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda make: make(capacity_bytes=100), "capacity 100 is no positive multiple of the alignment 64"),
        (lambda make: make(capacity_bytes=96, alignment_bytes=48), "alignment 48 is no power of two"),
        (lambda make: make(capacity_bytes=2**63), "capacity_bytes 9223372036854775808 does not fit into 64 bits"),
        (lambda make: make(capacity_bytes=64, alignment_bytes=2**64), "alignment_bytes 18446744073709551616 does not"),
        (
            lambda make: make(capacity_bytes=640, small=SmallRequests(64, 100)),
            "slabs of 100 bytes are no positive multiple of the alignment 64",
        ),
        (
            lambda make: make(capacity_bytes=640, small=SmallRequests(129, 128)),
            "small requests of up to 129 bytes do not fit slabs of 128 bytes",
        ),
        (
            lambda make: make(capacity_bytes=640, small=SmallRequests(-1, 128)),
            "small requests of up to -1 bytes do not fit slabs of 128 bytes",
        ),
    ],
)
def test_a_pool_that_cannot_be(make: Make, build: Callable[[Make], Pool], text: str) -> None:
    with pytest.raises(InputError, match=text):
        build(make)
