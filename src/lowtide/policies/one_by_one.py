"""One block at a time, wherever it lies: how DTR and its kin evict.

Plain Python twin of ``find_cheapest`` in ``native/include/lowtide/policy.hpp``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lowtide.ir import Block, Interval

__all__ = ["cheapest_block", "owner_of"]


def cheapest_block(blocks: Sequence[Block], worth_of: Callable[[Block], float]) -> Interval | None:
    """Find the owned block of least worth that is not pinned; of equal ones the lowest.

    Args:
        blocks: All blocks in address order.
        worth_of: What is lost by evicting an owned block that is not pinned. Asked once per block.

    Returns:
        Its position in ``blocks``, or None where there is none.
    """
    candidates = [index for index, block in enumerate(blocks) if block.owner is not None and not block.is_pinned]
    if not candidates:
        return None
    worths = {index: worth_of(blocks[index]) for index in candidates}
    best = min(candidates, key=worths.__getitem__)
    return Interval(best, best + 1)


def owner_of(block: Block) -> str:
    """The owner of a block that is not free."""
    assert block.owner is not None
    return block.owner
