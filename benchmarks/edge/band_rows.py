"""What the benchmarks of row bands share: how stretches are written down."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.edge.runs import Row
from lowtide.emit.bands.search import BandChoice

_MOST_NAMED = 4


def stretches_of(choice: BandChoice) -> list[Row]:
    """The first and the last operator of each stretch, and its number of bands."""
    return [
        {"first": stretch.positions.start, "last": stretch.positions.end - 1, "num_bands": num_bands}
        for stretch, num_bands in choice.bands
    ]


def stretches_cell(stretches: Sequence[Row]) -> str:
    """Operators and bands of each, or of many how many there are."""
    if len(stretches) <= _MOST_NAMED:
        return ", ".join(f"{each['first']}–{each['last']}: {each['num_bands']}" for each in stretches)
    numbers = [each["num_bands"] for each in stretches]
    return f"{len(stretches)} stretches: {min(numbers)} to {max(numbers)}"
