"""The original DTR: blind to addresses, its e* kept by union-find.

Source: Kirisame et al., "Dynamic Tensor Rematerialization", ICLR 2021, section 4.1, h_DTR^eq: absent values form
components that are joined on eviction, and do not fall apart when a value comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from lowtide.ir import Block, Interval
from lowtide.policies.one_by_one import cheapest_block, owner_of
from lowtide.policies.protocol import IDEAL_RULES, Facts, Method, NativeChoice, Rules, Score

__all__ = ["DtrEq"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DtrEq:
    """The original DTR: blind to addresses, its e* kept by union-find.

    Attributes:
        name: By which users choose it.
        rules: How the engine works around its choices.
    """

    name: str = "dtr-eq"
    rules: Rules = IDEAL_RULES
    native: ClassVar[NativeChoice] = NativeChoice(Method.ONE_BY_ONE, Score.DTR_EQ)

    def choose(self, blocks: Sequence[Block], *, size_bytes: int, facts: Facts) -> Interval | None:  # noqa: ARG002
        """The block of least component cost / (s(t) · size)."""

        def worth_of(block: Block) -> float:
            owner = owner_of(block)
            return facts.component_cost(owner) / (facts.staleness(owner) * block.size_bytes)

        return cheapest_block(blocks, worth_of)
