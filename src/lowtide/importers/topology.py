"""An order for graphs that come without one."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

__all__ = ["topological_order"]


def topological_order(inputs_by_name: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Order names so that each follows its inputs; at every position the earliest in the mapping that can go.

    Args:
        inputs_by_name: For each name, the names that must come before it; each of them is a key.

    Returns:
        All names, or, where there is a cycle, only those that do not wait for it.
    """
    names = list(inputs_by_name)
    rank_by_name = {name: rank for rank, name in enumerate(names)}
    readers: list[list[int]] = [[] for _ in names]
    num_waiting = [0] * len(names)
    for rank, name in enumerate(names):
        for source in set(inputs_by_name[name]):
            readers[rank_by_name[source]].append(rank)
            num_waiting[rank] += 1
    ready = [rank for rank, num in enumerate(num_waiting) if num == 0]
    order: list[str] = []
    while ready:
        rank = heapq.heappop(ready)
        order.append(names[rank])
        for reader in readers[rank]:
            num_waiting[reader] -= 1
            if num_waiting[reader] == 0:
                heapq.heappush(ready, reader)
    return tuple(order)
