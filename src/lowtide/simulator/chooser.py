"""Lets a policy written in Python choose in the native engine's stead."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lowtide import _online
from lowtide.errors import InputError
from lowtide.ir import Block, Interval
from lowtide.policies.protocol import Policy

__all__ = ["NativeFacts", "blocks_of", "chooser_of"]


class NativeFacts:
    """What the engine knows about owners; see :class:`~lowtide.policies.protocol.Facts`.

    Args:
        simulation: The engine at work.
    """

    def __init__(self, simulation: _online.Simulation) -> None:
        self._simulation = simulation

    def projected_cost(self, owner: str) -> float:
        """Own cost and that of absent ancestors."""
        return self._simulation.projected_cost(int(owner))

    def neighborhood_cost(self, owner: str) -> float:
        """That, and the cost of absent descendants."""
        return self._simulation.neighborhood_cost(int(owner))

    def component_cost(self, owner: str) -> float:
        """Own cost and that of the evicted components around."""
        return self._simulation.component_cost(int(owner))

    def own_cost(self, owner: str) -> float:
        """Cost of the op that made it."""
        return self._simulation.own_cost(int(owner))

    def staleness(self, owner: str) -> float:
        """Modelled time since the last use."""
        return self._simulation.staleness(int(owner))

    def is_backward(self, owner: str) -> bool:
        """Whether it was made inside backward."""
        return self._simulation.is_backward(int(owner))

    def chance(self, owner: str) -> float:
        """A random number."""
        return self._simulation.chance(int(owner))


def blocks_of(simulation: _online.Simulation, *, may_take_backward: bool = True) -> list[Block]:
    """The arena's blocks in address order; what must not be evicted now is pinned, owners are numbers of cells."""
    rows = simulation.blocks(may_take_backward)
    return [
        Block(offset, size_bytes, None if cell == -1 else str(cell), is_pinned=cell != -1 and not may_evict)
        for offset, size_bytes, cell, may_evict in rows
    ]


def chooser_of(simulation: _online.Simulation, policy: Policy) -> Callable[[int, bool], Sequence[int]]:
    """A function that the engine asks what to evict.

    Raises:
        InputError: From that function: the policy chose what must not go, or nothing that could.
    """
    facts = NativeFacts(simulation)

    def choose(size_bytes: int, may_take_backward: bool) -> Sequence[int]:  # noqa: FBT001 - called from C++
        blocks = blocks_of(simulation, may_take_backward=may_take_backward)
        chosen = policy.choose(blocks, size_bytes=size_bytes, facts=facts)
        return [] if chosen is None else _victims(policy, blocks, chosen)

    return choose


def _victims(policy: Policy, blocks: Sequence[Block], chosen: object) -> list[int]:
    if not isinstance(chosen, Interval) or chosen.end > len(blocks):
        raise InputError(
            f"policy {policy.name!r:.80} chose {chosen!r:.80}: give an Interval within {len(blocks)} blocks"
        )
    window = blocks[chosen.start : chosen.end]
    pinned = [block for block in window if block.is_pinned]
    if pinned:
        raise InputError(f"policy {policy.name!r:.80} chose the block at offset {pinned[0].offset}, which is pinned")
    victims = [int(block.owner) for block in window if block.owner is not None]
    if not victims:
        raise InputError(f"policy {policy.name!r:.80} chose free blocks only: return None where nothing can go")
    return victims
