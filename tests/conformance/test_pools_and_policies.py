"""The suite that every pool and every policy runs through.

The pools and policies themselves come with the simulator. Until then the laws are held against the simplest right ones,
written here, and against wrong ones that they must catch.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lowtide.ir import Block, End, Interval
from lowtide.policies.protocol import Policy
from lowtide.pool.protocol import Pool

sys.path.insert(0, str(Path(__file__).parent))
from pool_laws import check_choice, check_pins, check_tiling, drive_pool, random_blocks


class ListPool:
    """The simplest right pool: a list of blocks."""

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self._blocks = [Block(0, capacity_bytes, None)]
        self._pins: dict[str, int] = {}

    @property
    def free_bytes(self) -> int:
        return sum(block.size_bytes for block in self._blocks if block.owner is None)

    def allocate(self, owner: str, *, size_bytes: int, end: End = End.LOW) -> int | None:
        holes = [block for block in self._blocks if block.owner is None and block.size_bytes >= size_bytes]
        if not holes:
            return None
        hole = min(holes, key=lambda block: (block.size_bytes, block.offset))
        rest = hole.size_bytes - size_bytes
        low, high = (size_bytes, rest) if end is End.LOW else (rest, size_bytes)
        owners = (owner, None) if end is End.LOW else (None, owner)
        parts = [Block(hole.offset, low, owners[0]), Block(hole.offset + low, high, owners[1])]
        index = self._blocks.index(hole)
        self._blocks[index : index + 1] = [part for part in parts if part.size_bytes]
        return hole.offset if end is End.LOW else hole.offset + rest

    def free(self, owner: str) -> None:
        self._blocks = [replace(b, owner=None) if b.owner == owner else b for b in self._blocks]
        merged: list[Block] = []
        for block in self._blocks:
            if merged and merged[-1].owner is None and block.owner is None:
                merged[-1] = replace(merged[-1], size_bytes=merged[-1].size_bytes + block.size_bytes)
            else:
                merged.append(block)
        self._blocks = merged

    def pin(self, owner: str) -> None:
        self._pins[owner] = self._pins.get(owner, 0) + 1

    def unpin(self, owner: str) -> None:
        self._pins[owner] -= 1

    def blocks(self) -> Sequence[Block]:
        return [replace(b, is_pinned=b.owner is not None and self._pins.get(b.owner, 0) > 0) for b in self._blocks]


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


POOLS: dict[str, Callable[[int], Pool]] = {"list": ListPool}
POLICIES: dict[str, Callable[[], Policy]] = {"cheapest-window": CheapestWindow}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", POOLS)
def test_a_pool_answers_as_its_blocks_say(name: str, seed: int) -> None:
    pool = POOLS[name](64 * 100)
    assert isinstance(pool, Pool)
    check_tiling(pool)
    drive_pool(pool, seed=seed)


@pytest.mark.parametrize("name", POOLS)
def test_a_pool_counts_pins(name: str) -> None:
    check_pins(POOLS[name](64 * 100))


@pytest.mark.parametrize("seed", range(200))
@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_chooses_a_window_that_serves(name: str, seed: int) -> None:
    rng = random.Random(seed)
    policy = POLICIES[name]()
    assert isinstance(policy, Policy)
    costs = {f"v{index}": rng.random() for index in range(12)}
    check_choice(policy, random_blocks(rng), size_bytes=64 * rng.randint(1, 30), cost_of=costs.__getitem__)


class ForgetsToCoalesce(ListPool):
    def free(self, owner: str) -> None:
        self._blocks = [replace(b, owner=None) if b.owner == owner else b for b in self._blocks]


class ForgetsPins(ListPool):
    def blocks(self) -> Sequence[Block]:
        return list(self._blocks)


class TakesEverything:
    name = "takes-everything"

    def choose(self, blocks: Sequence[Block], *, size_bytes: int, cost_of: Callable[[str], float]) -> Interval | None:
        return Interval(0, len(blocks))


def test_the_laws_catch_a_pool_that_does_not_coalesce() -> None:
    with pytest.raises(AssertionError, match="free neighbours"):
        drive_pool(ForgetsToCoalesce(64 * 100), seed=0)


def test_the_laws_catch_a_pool_that_forgets_pins() -> None:
    with pytest.raises(AssertionError):
        check_pins(ForgetsPins(64 * 100))


def test_the_laws_catch_a_policy_that_takes_too_much() -> None:
    blocks = (Block(0, 64, "v0"), Block(64, 64, "v1"), Block(128, 64, "v2"))
    with pytest.raises(AssertionError, match="not minimal at its low end"):
        check_choice(TakesEverything(), blocks, size_bytes=64, cost_of=lambda owner: 1.0)
