"""The original DTR: blind to addresses, with its exact cost e*.

Source: Kirisame et al., "Dynamic Tensor Rematerialization", ICLR 2021, h_DTR = (c(t) + sum of c over e*(t)) / (s · m),
where e*(t) are the absent ancestors and descendants of t. It counts bytes as if any free bytes could serve any request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from lowtide.ir import Block, Interval
from lowtide.policies.one_by_one import cheapest_block, owner_of
from lowtide.policies.protocol import IDEAL_RULES, Facts, Method, NativeChoice, Rules, Score

__all__ = ["DtrIdeal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DtrIdeal:
    """The original DTR: blind to addresses, with its exact cost e*.

    Attributes:
        name: By which users choose it.
        rules: How the engine works around its choices.
    """

    name: str = "dtr-ideal"
    rules: Rules = IDEAL_RULES
    native: ClassVar[NativeChoice] = NativeChoice(Method.ONE_BY_ONE, Score.DTR_NEIGHBORHOOD)

    def choose(self, blocks: Sequence[Block], *, size_bytes: int, facts: Facts) -> Interval | None:  # noqa: ARG002
        """The block of least (c(t) + c(e*(t))) / (s(t) · size)."""

        def worth_of(block: Block) -> float:
            owner = owner_of(block)
            return facts.neighborhood_cost(owner) / (facts.staleness(owner) * block.size_bytes)

        return cheapest_block(blocks, worth_of)
