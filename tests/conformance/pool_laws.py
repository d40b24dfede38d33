"""What every pool and every policy must obey; a new one is added to the lists in ``test_pools_and_policies.py``."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from lowtide.ir import Block, End, Interval
from lowtide.policies.protocol import Policy
from lowtide.pool.protocol import Pool

ALIGNMENT_BYTES = 64


def check_tiling(pool: Pool) -> None:
    """Blocks tile the arena in address order, aligned, and no two free ones are neighbours."""
    end = 0
    previous_owner: str | None = "none before the first"
    for block in pool.blocks():
        assert block.offset == end, f"block at {block.offset} does not begin where the last one ended, at {end}"
        assert block.size_bytes > 0
        assert block.size_bytes % ALIGNMENT_BYTES == 0
        assert previous_owner is not None or block.owner is not None, f"free neighbours at {block.offset}"
        end, previous_owner = block.offset + block.size_bytes, block.owner
    assert end == pool.capacity_bytes
    assert pool.free_bytes == sum(block.size_bytes for block in pool.blocks() if block.owner is None)


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
            holes = [b for b in pool.blocks() if b.owner is None and b.size_bytes >= size_bytes]
            offset = pool.allocate(owner, size_bytes=size_bytes, end=rng.choice(list(End)))
            assert (offset is None) == (not holes), "refused although a hole is large enough, or served without one"
            if offset is not None:
                smallest = min(hole.size_bytes for hole in holes)
                fits = [h for h in holes if h.size_bytes == smallest and h.offset <= offset < h.offset + h.size_bytes]
                assert fits, f"{size_bytes} bytes at {offset} are not in a smallest hole that holds them"
                live[owner] = size_bytes
        check_tiling(pool)
        assert {b.owner: b.size_bytes for b in pool.blocks() if b.owner is not None} == live


def check_pins(pool: Pool) -> None:
    """An owner stays pinned until it is unpinned as often as it was pinned."""
    pool.allocate("pinned", size_bytes=ALIGNMENT_BYTES)
    pool.pin("pinned")
    pool.pin("pinned")
    pool.unpin("pinned")
    assert [b.is_pinned for b in pool.blocks() if b.owner == "pinned"] == [True]
    pool.unpin("pinned")
    assert [b.is_pinned for b in pool.blocks() if b.owner == "pinned"] == [False]


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


def check_choice(policy: Policy, blocks: Sequence[Block], *, size_bytes: int, cost_of: Callable[[str], float]) -> None:
    """A window has no pinned block, holds the request, is minimal at both ends; None only where none does."""
    chosen = policy.choose(blocks, size_bytes=size_bytes, cost_of=cost_of)
    if chosen is None:
        assert not any(
            _holds(blocks, Interval(start, end), size_bytes)
            for start in range(len(blocks))
            for end in range(start + 1, len(blocks) + 1)
        ), "gave up although some window holds the request"
        return
    assert _holds(blocks, chosen, size_bytes)
    if len(chosen) > 1:
        assert not _holds(blocks, Interval(chosen.start + 1, chosen.end), size_bytes), "not minimal at its low end"
        assert not _holds(blocks, Interval(chosen.start, chosen.end - 1), size_bytes), "not minimal at its high end"


def _holds(blocks: Sequence[Block], window: Interval, size_bytes: int) -> bool:
    inside = blocks[window.start : window.end]
    return not any(b.is_pinned for b in inside) and sum(b.size_bytes for b in inside) >= size_bytes
