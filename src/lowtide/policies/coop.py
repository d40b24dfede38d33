"""Coop: evict one window of adjacent blocks, so that all that goes is used for the request at hand.

Source: Zhang et al., "Coop: Memory is not a Commodity", NeurIPS 2023; their h(t) = C(t) / s(t) is projected cost by
staleness. There is no size term: the window handles size.

``coop`` is lowtide's: it also evicts values made inside backward last, without regard to their staleness, counts what
a window holds beyond the request, keeps what a recomputation that goes in circles awaits, and slides blocks together
where that is cheaper than recomputing. ``coop-paper`` leaves this out. Both drop a value that the program has released
at once, and while something is recomputed keep what more than one op still to come reads
(docs/decisions/online-engine.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lowtide.ir import Block, Interval
from lowtide.policies.one_by_one import cheapest_block, owner_of
from lowtide.policies.protocol import LOWTIDE_RULES, PAPER_RULES, Facts, Method, NativeChoice, Rules, Score
from lowtide.policies.window import cheapest_window, surplus_for

__all__ = ["Coop", "CoopPaper"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coop:
    """The cheapest window.

    Attributes:
        name: By which users choose it.
        rules: How the engine works around its choices.
        is_windowed: False: one block after another of least C(t) / s(t), for an ablation.
        surplus: A window's worth is divided by the requests that its bytes would serve, up to this many; only for
            requests of at most a 64th of the arena. 1: it is not.
    """

    name: str = "coop"
    rules: Rules = LOWTIDE_RULES
    is_windowed: bool = True
    surplus: float = 2.5

    @property
    def native(self) -> NativeChoice:
        """The same in C++."""
        return NativeChoice(Method.WINDOW if self.is_windowed else Method.ONE_BY_ONE, Score.COOP, self.surplus)

    def choose(self, blocks: Sequence[Block], *, size_bytes: int, facts: Facts) -> Interval | None:
        """The window of the least sum of C(t) / s(t); with two tiers, of C(t) for what was made inside backward."""

        def worth_of(block: Block) -> float:
            owner = owner_of(block)
            if self.rules.is_two_tiered and facts.is_backward(owner):
                return facts.projected_cost(owner)
            return facts.projected_cost(owner) / facts.staleness(owner)

        if self.is_windowed:
            surplus = surplus_for(blocks, size_bytes, self.surplus)
            return cheapest_window(blocks, size_bytes=size_bytes, worth_of=worth_of, surplus=surplus)
        return cheapest_block(blocks, worth_of)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoopPaper(Coop):
    """The cheapest window, as the paper has it: nothing moves, one tier."""

    name: str = "coop-paper"
    rules: Rules = PAPER_RULES
    surplus: float = 1.0
