"""Windows: what to clear so that adjacent blocks hold a request, for the least sum of worths.

    │ pinned │ a  2 │ free │ b  1 │ c  3 │ free │ pinned │        free blocks add bytes at no cost,
             └── window 1 ──┘      └─ window 2 ─┘                pinned ones end a run

Plain Python twin of ``find_window`` in ``native/include/lowtide/policy.hpp``, which slides two pointers instead of
looking at every window. Source: Zhang et al., "Coop: Memory is not a Commodity", NeurIPS 2023.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lowtide.ir import Block, Interval

__all__ = ["cheapest_window", "surplus_for"]

_SURPLUS_SHARE = 64


def surplus_for(blocks: Sequence[Block], size_bytes: int, surplus: float) -> float:
    """The surplus of a request: none where it is larger than a 64th of the arena."""
    capacity_bytes = sum(block.size_bytes for block in blocks)
    return 1.0 if size_bytes > capacity_bytes // _SURPLUS_SHARE else surplus


def cheapest_window(
    blocks: Sequence[Block], *, size_bytes: int, worth_of: Callable[[Block], float], surplus: float = 1.0
) -> Interval | None:
    """Find the window of least worth, minimal at both ends; of equal ones the lowest.

    Windows often hold more than the request, as blocks are as large as they are. What is left over serves requests to
    come, so a window's worth is divided by the requests that its bytes count for, up to ``surplus``.

    Args:
        blocks: All blocks in address order.
        size_bytes: Bytes that the window must hold.
        worth_of: What is lost by evicting an owned block that is not pinned; at least 0. Asked once per block.
        surplus: How many requests' worth of bytes count; 1: those of the request itself, as in the paper.

    Returns:
        Positions in ``blocks``, or None where no run of blocks that are not pinned holds the bytes.
    """
    worths = [0.0 if block.owner is None or block.is_pinned else worth_of(block) for block in blocks]
    best: Interval | None = None
    least = float("inf")
    for last in range(len(blocks)):
        window = _shortest_ending_at(blocks, last, size_bytes)
        if window is None:
            continue
        held_bytes = sum(block.size_bytes for block in blocks[window.start : window.end])
        num_requests = max(min(held_bytes, surplus * size_bytes) / size_bytes, 1.0)
        worth = sum(worths[window.start : window.end], start=0.0) / num_requests
        if worth < least:
            best, least = window, worth
    return best


def _shortest_ending_at(blocks: Sequence[Block], last: int, size_bytes: int) -> Interval | None:
    held_bytes = 0
    for first in range(last, -1, -1):
        if blocks[first].is_pinned:
            return None
        held_bytes += blocks[first].size_bytes
        if held_bytes >= size_bytes:
            return Interval(first, last + 1)
    return None
