"""The largest value goes first.

A baseline of Kirisame et al., ICLR 2021 (after GreedyRemat, Kumar et al., NeurIPS 2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from lowtide.ir import Block, Interval
from lowtide.policies.one_by_one import cheapest_block
from lowtide.policies.protocol import BASELINE_RULES, Facts, Method, NativeChoice, Rules, Score

__all__ = ["Size"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The largest value goes first.

    Attributes:
        name: By which users choose it.
        rules: How the engine works around its choices.
    """

    name: str = "size"
    rules: Rules = BASELINE_RULES
    native: ClassVar[NativeChoice] = NativeChoice(Method.ONE_BY_ONE, Score.SIZE)

    def choose(self, blocks: Sequence[Block], *, size_bytes: int, facts: Facts) -> Interval | None:  # noqa: ARG002
        """The largest block."""

        def worth_of(block: Block) -> float:
            return 1.0 / block.size_bytes

        return cheapest_block(blocks, worth_of)
