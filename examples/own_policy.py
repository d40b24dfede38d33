"""Write an eviction policy of your own, and see how it does beside lowtide's.

python examples/own_policy.py

It is a class with a name and ``choose``; nobody has to fork. From a shell, in this folder:
lowtide simulate "generate:transformer?layers=2" --budget r=0.5 --policy own_policy:LargestStale
"""

from __future__ import annotations

from collections.abc import Sequence

import lowtide
from lowtide.importers.generate import graph_from_spec
from lowtide.ir import Block, Interval
from lowtide.policies.protocol import Facts


class LargestStale:
    """Evict the block with the most bytes times time since its last use, whatever it costs to recompute."""

    name = "largest-stale"

    def choose(self, blocks: Sequence[Block], *, size_bytes: int, facts: Facts) -> Interval | None:  # noqa: ARG002
        """Called when no hole of the arena holds ``size_bytes``; called again while that is so."""
        best, most = None, 0.0
        for index, block in enumerate(blocks):  # in the order of their addresses
            if block.owner is None or block.is_pinned:
                continue  # a hole, or in use, or impossible to recompute
            worth = block.size_bytes * facts.staleness(block.owner)
            if worth > most:
                best, most = index, worth
        return None if best is None else Interval(best, best + 1)  # None: nothing can go, out of memory


def main() -> None:
    graph = graph_from_spec("generate:transformer?layers=2")
    for policy in ("own_policy:LargestStale", "lru", "coop"):  # a name, pkg.mod:Class, or an object
        done = lowtide.simulate(graph, budget="r=0.5", policy=policy)
        print(
            f"{done.policy:14} slow-down {done.overhead:.3f}, {done.num_recomputes} recomputations, "
            f"{done.num_evictions} evictions, {'completed' if done.completed else done.reason}"
        )


if __name__ == "__main__":
    main()
