"""The least recently used value goes first.

A baseline of Kirisame et al., "Dynamic Tensor Rematerialization", ICLR 2021.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from lowtide.ir import Block, Interval
from lowtide.policies.one_by_one import cheapest_block, owner_of
from lowtide.policies.protocol import BASELINE_RULES, Facts, Method, NativeChoice, Rules, Score

__all__ = ["Lru"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lru:
    """The least recently used value goes first.

    Attributes:
        name: By which users choose it.
        rules: How the engine works around its choices.
    """

    name: str = "lru"
    rules: Rules = BASELINE_RULES
    native: ClassVar[NativeChoice] = NativeChoice(Method.ONE_BY_ONE, Score.LRU)

    def choose(self, blocks: Sequence[Block], *, size_bytes: int, facts: Facts) -> Interval | None:  # noqa: ARG002
        """The stalest block."""

        def worth_of(block: Block) -> float:
            return 1.0 / facts.staleness(owner_of(block))

        return cheapest_block(blocks, worth_of)
