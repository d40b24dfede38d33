"""The suite that every pool and every policy runs through.

The policies themselves come with the simulator. Until then their laws are held against the simplest right one, written
here. All laws are held against wrong pools and policies, too, which they must catch.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lowtide.errors import InputError
from lowtide.ir import Block, End, Interval
from lowtide.ir.block import Fit
from lowtide.policies.protocol import Policy
from lowtide.pool.native import NativePool
from lowtide.pool.protocol import Pool, SmallRequests
from lowtide.pool.reference import ReferencePool

sys.path.insert(0, str(Path(__file__).parent))
from pool_laws import (
    ALIGNMENT_BYTES,
    check_choice,
    check_hand_over,
    check_pins,
    check_refusals,
    check_slabs,
    check_slide,
    check_take,
    check_tiling,
    drive_pool,
    random_blocks,
)


class CheapestWindow:
    """The simplest right policy: looks at every window."""

    name = "cheapest-window"

    def choose(self, blocks: Sequence[Block], *, size_bytes: int, cost_of: Callable[[str], float]) -> Interval | None:
        best: tuple[float, int, Interval] | None = None
        for start in range(len(blocks)):
            cost, held = 0.0, 0
            for end, block in enumerate(blocks[start:], start=start + 1):
                if block.is_pinned:
                    break
                cost += 0.0 if block.owner is None else cost_of(block.owner)
                held += block.size_bytes
                if held >= size_bytes:
                    candidate = (cost, end - start, Interval(start, end))
                    best = candidate if best is None or candidate[:2] < best[:2] else best
                    break
        return None if best is None else best[2]


POOLS: dict[str, type[NativePool] | type[ReferencePool]] = {"native": NativePool, "reference": ReferencePool}
POLICIES: dict[str, Callable[[], Policy]] = {"cheapest-window": CheapestWindow}
CAPACITY_BYTES = 64 * 100


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", POOLS)
def test_a_pool_answers_as_its_blocks_say(name: str, seed: int) -> None:
    pool = POOLS[name](capacity_bytes=CAPACITY_BYTES)
    assert isinstance(pool, Pool)
    check_tiling(pool)
    drive_pool(pool, seed=seed)


@pytest.mark.parametrize("check", [check_pins, check_take, check_hand_over, check_refusals])
@pytest.mark.parametrize("name", POOLS)
def test_a_pool_obeys_its_protocol(name: str, check: Callable[[Pool], None]) -> None:
    check(POOLS[name](capacity_bytes=CAPACITY_BYTES))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", POOLS)
def test_sliding_all_blocks_leaves_one_hole(name: str, seed: int) -> None:
    check_slide(POOLS[name](capacity_bytes=CAPACITY_BYTES), seed=seed)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", POOLS)
def test_small_requests_lie_in_slabs(name: str, seed: int) -> None:
    small = SmallRequests(largest_bytes=64 * 6, slab_bytes=64 * 10)
    pool = POOLS[name](capacity_bytes=CAPACITY_BYTES, small=small)
    check_slabs(pool, largest_bytes=small.largest_bytes, slab_bytes=small.slab_bytes, seed=seed)


@pytest.mark.parametrize("seed", range(200))
@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_chooses_a_window_that_serves(name: str, seed: int) -> None:
    rng = random.Random(seed)
    policy = POLICIES[name]()
    assert isinstance(policy, Policy)
    costs = {f"v{index}": rng.random() for index in range(12)}
    check_choice(policy, random_blocks(rng), size_bytes=64 * rng.randint(1, 30), cost_of=costs.__getitem__)


class ForgetsToCoalesce(ReferencePool):
    def blocks(self) -> Sequence[Block]:
        return [part for block in super().blocks() for part in halves(block)]


def halves(block: Block) -> Sequence[Block]:
    if block.owner is not None or block.size_bytes == ALIGNMENT_BYTES:
        return [block]
    rest = replace(block, offset=block.offset + ALIGNMENT_BYTES, size_bytes=block.size_bytes - ALIGNMENT_BYTES)
    return [replace(block, size_bytes=ALIGNMENT_BYTES), rest]


class ForgetsPins(ReferencePool):
    def pin(self, owner: str) -> None:
        pass


class IgnoresTheFit(ReferencePool):
    def allocate(self, owner: str, *, size_bytes: int, end: End = End.LOW, fit: Fit = Fit.BEST) -> int | None:
        return super().allocate(owner, size_bytes=size_bytes, end=end)


class TakesEverything:
    name = "takes-everything"

    def choose(self, blocks: Sequence[Block], *, size_bytes: int, cost_of: Callable[[str], float]) -> Interval | None:
        return Interval(0, len(blocks))


def test_the_laws_catch_a_pool_that_does_not_coalesce() -> None:
    with pytest.raises(AssertionError, match="free neighbours"):
        drive_pool(ForgetsToCoalesce(capacity_bytes=CAPACITY_BYTES), seed=0)


def test_the_laws_catch_a_pool_that_forgets_pins() -> None:
    with pytest.raises(InputError, match="is not pinned"):
        check_pins(ForgetsPins(capacity_bytes=CAPACITY_BYTES))


def test_the_laws_catch_a_pool_that_ignores_the_fit() -> None:
    with pytest.raises(AssertionError, match="by first fit from the"):
        drive_pool(IgnoresTheFit(capacity_bytes=CAPACITY_BYTES), seed=0)


def test_the_laws_catch_a_policy_that_takes_too_much() -> None:
    blocks = (Block(0, 64, "v0"), Block(64, 64, "v1"), Block(128, 64, "v2"))
    with pytest.raises(AssertionError, match="not minimal at its low end"):
        check_choice(TakesEverything(), blocks, size_bytes=64, cost_of=lambda owner: 1.0)
