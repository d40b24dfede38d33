"""The original DTR: blind to addresses, with the cost of the value's own op alone.

Source: Kirisame et al., "Dynamic Tensor Rematerialization", ICLR 2021, h_DTR^local.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from lowtide.ir import Block, Interval
from lowtide.policies.one_by_one import cheapest_block, owner_of
from lowtide.policies.protocol import IDEAL_RULES, Facts, Method, NativeChoice, Rules, Score

__all__ = ["DtrLocal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DtrLocal:
    """The original DTR: blind to addresses, with the cost of the value's own op alone.

    Attributes:
        name: By which users choose it.
        rules: How the engine works around its choices.
    """

    name: str = "dtr-local"
    rules: Rules = IDEAL_RULES
    native: ClassVar[NativeChoice] = NativeChoice(Method.ONE_BY_ONE, Score.LOCAL)

    def choose(self, blocks: Sequence[Block], *, size_bytes: int, facts: Facts) -> Interval | None:  # noqa: ARG002
        """The block of least c(t) / (s(t) · size)."""

        def worth_of(block: Block) -> float:
            owner = owner_of(block)
            return facts.own_cost(owner) / (facts.staleness(owner) * block.size_bytes)

        return cheapest_block(blocks, worth_of)
