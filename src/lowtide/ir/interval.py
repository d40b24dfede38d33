"""Half-open spans of steps.

step      0   1   2   3   4   5
[1, 4)        ■───■───■             holds 1, 2 and 3
[4, 6)                    ■───■     touches [1, 4) and does not overlap it
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Interval"]


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """The steps from ``start`` up to, but not including, ``end``.

    Attributes:
        start: First step, 0-based.
        end: The step after the last one; at least ``start``.
    """

    start: int
    end: int

    def __post_init__(self) -> None:
        if self.end < self.start:
            raise ValueError(f"interval ends at step {self.end} before it starts at step {self.start}")

    def __len__(self) -> int:
        return self.end - self.start

    def __contains__(self, step: int) -> bool:
        return self.start <= step < self.end

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.end))

    def overlaps(self, other: Interval) -> bool:
        """Whether some step lies in both; touching intervals do not overlap, nor do empty ones."""
        return max(self.start, other.start) < min(self.end, other.end)
