"""DTE's heuristic: as DTR's, but the free bytes beside a value count as its own.

Source: Hu et al., "MegTaiChi: Dynamic Tensor-based Memory Management Optimization for DNN Training", ICS 2022.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from lowtide.ir import Block, Interval
from lowtide.policies.one_by_one import cheapest_block, owner_of
from lowtide.policies.protocol import BASELINE_RULES, Facts, Method, NativeChoice, Rules, Score

__all__ = ["Dte"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dte:
    """DTE's heuristic: as DTR's, but the free bytes beside a value count as its own.

    Attributes:
        name: By which users choose it.
        rules: How the engine works around its choices.
    """

    name: str = "dte"
    rules: Rules = BASELINE_RULES
    native: ClassVar[NativeChoice] = NativeChoice(Method.ONE_BY_ONE, Score.DTE)

    def choose(self, blocks: Sequence[Block], *, size_bytes: int, facts: Facts) -> Interval | None:  # noqa: ARG002
        """The block of least C(t) / (s(t) · (size + free bytes beside it))."""
        bytes_by_owner = {
            block.owner: block.size_bytes + _free_bytes(blocks[max(index - 1, 0) : index + 2])
            for index, block in enumerate(blocks)
        }

        def worth_of(block: Block) -> float:
            owner = owner_of(block)
            return facts.projected_cost(owner) / (facts.staleness(owner) * bytes_by_owner[owner])

        return cheapest_block(blocks, worth_of)


def _free_bytes(blocks: Sequence[Block]) -> int:
    return sum(block.size_bytes for block in blocks if block.owner is None)
