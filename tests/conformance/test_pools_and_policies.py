"""The suite that every pool and every policy runs through.

All laws are held against wrong pools and policies, too, which they must catch. Whoever adds a policy to
``lowtide.policies.table`` has it run through this suite.
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
from lowtide.policies.protocol import Facts, Policy
from lowtide.policies.table import POLICIES, policy_named
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
    random_facts,
)

POOLS: dict[str, type[NativePool] | type[ReferencePool]] = {"native": NativePool, "reference": ReferencePool}
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


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_chooses_what_may_go_and_serves(name: str) -> None:
    policy = policy_named(name)
    assert isinstance(policy, Policy)
    assert policy.name == name
    for seed in range(200):
        rng = random.Random(seed)
        blocks = random_blocks(rng)
        check_choice(policy, blocks, size_bytes=64 * rng.randint(1, 30), facts=random_facts(blocks, rng))


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_asked_again_until_a_hole_serves_frees_enough(name: str) -> None:
    policy = policy_named(name)
    for seed in range(100):
        rng = random.Random(seed)
        blocks = list(random_blocks(rng))
        facts = random_facts(blocks, rng)
        size_bytes = 64 * rng.randint(1, 30)
        while (chosen := check_choice(policy, blocks, size_bytes=size_bytes, facts=facts)) is not None:
            blocks = coalesced(
                [replace(b, owner=None) if chosen.start <= k < chosen.end else b for k, b in enumerate(blocks)]
            )
            if max((b.size_bytes for b in blocks if b.owner is None), default=0) >= size_bytes:
                break


def coalesced(blocks: Sequence[Block]) -> list[Block]:
    joined: list[Block] = []
    for block in blocks:
        if joined and block.owner is None and joined[-1].owner is None:
            joined[-1] = replace(joined[-1], size_bytes=joined[-1].size_bytes + block.size_bytes)
        else:
            joined.append(block)
    return joined


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

    def choose(self, blocks: Sequence[Block], *, size_bytes: int, facts: Facts) -> Interval | None:
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
        check_choice(TakesEverything(), blocks, size_bytes=64, facts=random_facts(blocks, random.Random(0)))


class GivesUp:
    name = "gives-up"

    def choose(self, blocks: Sequence[Block], *, size_bytes: int, facts: Facts) -> Interval | None:
        return None


class TakesPinned:
    name = "takes-pinned"

    def choose(self, blocks: Sequence[Block], *, size_bytes: int, facts: Facts) -> Interval | None:
        return Interval(0, 1)


@pytest.mark.parametrize(
    ("policy", "text"),
    [(GivesUp(), "gave up although some window holds the request"), (TakesPinned(), "chose a pinned block")],
)
def test_the_laws_catch_a_policy_that_gives_up_or_takes_what_is_pinned(policy: Policy, text: str) -> None:
    blocks = (Block(0, 64, "v0", is_pinned=True), Block(64, 64, "v1"))
    with pytest.raises(AssertionError, match=text):
        check_choice(policy, blocks, size_bytes=64, facts=random_facts(blocks, random.Random(0)))
