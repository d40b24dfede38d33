"""MSPS: blind to addresses, the least recomputation per byte, whenever it was used.

Source: Peng et al., "Capuchin: Tensor-based GPU Memory Management for Deep Learning", ASPLOS 2020 (memory saving per
second), as Kirisame et al., ICLR 2021, run it among their heuristics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from lowtide.ir import Block, Interval
from lowtide.policies.one_by_one import cheapest_block, owner_of
from lowtide.policies.protocol import IDEAL_RULES, Facts, Method, NativeChoice, Rules, Score

__all__ = ["Msps"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Msps:
    """MSPS: blind to addresses, the least recomputation per byte, whenever it was used.

    Attributes:
        name: By which users choose it.
        rules: How the engine works around its choices.
    """

    name: str = "msps"
    rules: Rules = IDEAL_RULES
    native: ClassVar[NativeChoice] = NativeChoice(Method.ONE_BY_ONE, Score.MSPS)

    def choose(self, blocks: Sequence[Block], *, size_bytes: int, facts: Facts) -> Interval | None:  # noqa: ARG002
        """The block of least C(t) / size."""

        def worth_of(block: Block) -> float:
            return facts.projected_cost(owner_of(block)) / block.size_bytes

        return cheapest_block(blocks, worth_of)
