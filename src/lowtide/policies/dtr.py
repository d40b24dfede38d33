"""DTR's heuristic in a pool with addresses: one value at a time, the cheapest per byte and staleness.

Source: Kirisame et al., "Dynamic Tensor Rematerialization", ICLR 2021, with the projected cost that Coop, too, is
given: both then differ in how they evict, not in what they know. The original counts bytes instead: ``dtr-ideal``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from lowtide.ir import Block, Interval
from lowtide.policies.one_by_one import cheapest_block, owner_of
from lowtide.policies.protocol import BASELINE_RULES, Facts, Method, NativeChoice, Rules, Score

__all__ = ["Dtr"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dtr:
    """DTR's heuristic in a pool with addresses: one value at a time, the cheapest per byte and staleness.

    Attributes:
        name: By which users choose it.
        rules: How the engine works around its choices.
    """

    name: str = "dtr"
    rules: Rules = BASELINE_RULES
    native: ClassVar[NativeChoice] = NativeChoice(Method.ONE_BY_ONE, Score.DTR)

    def choose(self, blocks: Sequence[Block], *, size_bytes: int, facts: Facts) -> Interval | None:  # noqa: ARG002
        """The block of least C(t) / (s(t) · size)."""

        def worth_of(block: Block) -> float:
            owner = owner_of(block)
            return facts.projected_cost(owner) / (facts.staleness(owner) * block.size_bytes)

        return cheapest_block(blocks, worth_of)
