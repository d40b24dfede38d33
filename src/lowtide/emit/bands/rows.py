"""Which rows of its input an operator reads to compute some rows of its output. An ``Interval`` of rows is half-open.

rows of the input       0 1 2 3 4 5 6 7        a window of 3, stride 2, padding 1 before
output row 0         [. 0 1]
output row 1              [1 2 3]
output row 2                  [3 4 5]          rows [1, 3) of the output read rows [1, 6) of the input
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from lowtide.ir import Interval

__all__ = ["Read", "RowRule", "Window", "Zoom", "cut_inputs", "hull", "same_padding", "split_rows", "window_of"]

_RANK = 4


@dataclass(frozen=True, slots=True)
class Read:
    """What an operator reads for some rows of its output.

    Attributes:
        rows: Rows of its input; none where all it would read is padding.
        pad_before: Rows of padding before them.
        pad_after: Rows of padding after them.
    """

    rows: Interval
    pad_before: int = 0
    pad_after: int = 0


class RowRule(Protocol):
    """How rows of an operator's output depend on rows of its input."""

    def computed(self, wanted: Interval) -> Interval:
        """The rows that are computed where some are wanted: at least those."""
        ...

    def read(self, computed: Interval) -> Read:
        """What is read to compute rows; not none of them."""
        ...


@dataclass(frozen=True, slots=True)
class Window:
    """Every output row reads a window of input rows: convolutions, pools, padding, and with the defaults elementwise.

    Attributes:
        num_rows: Rows of the input.
        extent: Rows from the first to the last of a window, dilation included.
        stride: Rows between the windows of neighbouring output rows.
        pad_before: Rows of padding before the first row of the input.
    """

    num_rows: int
    extent: int = 1
    stride: int = 1
    pad_before: int = 0

    def computed(self, wanted: Interval) -> Interval:
        """Exactly the rows that are wanted."""
        return wanted

    def read(self, computed: Interval) -> Read:
        """The union of the rows' windows, cut at both ends of the input."""
        first = computed.start * self.stride - self.pad_before
        end = (computed.end - 1) * self.stride - self.pad_before + self.extent
        start_inside, end_inside = (min(max(row, 0), self.num_rows) for row in (first, end))
        return Read(Interval(start_inside, end_inside), start_inside - first, end - end_inside)


@dataclass(frozen=True, slots=True)
class Zoom:
    """Every input row is repeated: resizing to the nearest neighbour by a whole factor.

    Attributes:
        factor: How often.
    """

    factor: int

    def computed(self, wanted: Interval) -> Interval:
        """All repetitions of the input rows that are read."""
        read = self.read(wanted).rows
        return Interval(read.start * self.factor, read.end * self.factor)

    def read(self, computed: Interval) -> Read:
        """The rows of which some repetition is computed."""
        return Read(Interval(computed.start // self.factor, -(-computed.end // self.factor)))


def same_padding(num_in: int, *, extent: int, stride: int) -> tuple[int, int]:
    """Padding before and after, as TensorFlow's SAME has it: what is missing, the odd one after.

    Args:
        num_in: Rows (or columns) of the input.
        extent: Of the window, dilation included.
        stride: Of the window.
    """
    num_out = -(-num_in // stride)
    missing = max(0, (num_out - 1) * stride + extent - num_in)
    return missing // 2, missing - missing // 2


def window_of(num_in: int, num_out: int, *, extent: int, stride: int, around: tuple[int, int]) -> Window | None:
    """A window that makes ``num_out`` rows (or columns) of ``num_in``; None where it makes another number.

    Args:
        num_in: Rows of the input.
        num_out: Rows of the output, as the file has it.
        extent: Of the window, dilation included.
        stride: Of the window.
        around: Padding before and after.
    """
    if num_out != (num_in + sum(around) - extent) // stride + 1:
        return None
    return Window(num_in, extent, stride, around[0])


def cut_inputs(shape_by_input: Mapping[int, Sequence[int]], num_rows: int, *, row_axis: int) -> tuple[int, ...] | None:
    """Inputs of an elementwise operator that have all rows, as numpy broadcasts them: these are cut.

    Those that have one row, or no dimension of rows, go to every band whole; None where one is of another kind.

    Args:
        shape_by_input: Of four dimensions at most.
        num_rows: Of the output.
        row_axis: Which of four dimensions rows are.
    """
    cut = []
    for index, shape in shape_by_input.items():
        own_rows = shape[row_axis - _RANK] if len(shape) >= _RANK - row_axis else 1
        if len(shape) == _RANK and own_rows == num_rows > 1:
            cut.append(index)
        elif len(shape) > _RANK or own_rows != 1:
            return None
    return tuple(cut)


def hull(first: Interval, second: Interval) -> Interval:
    """The smallest interval that holds both."""
    return Interval(min(first.start, second.start), max(first.end, second.end))


def split_rows(num_rows: int, num_bands: int) -> tuple[Interval, ...]:
    """Cut rows into bands whose heights differ by at most one.

    Args:
        num_rows: At least ``num_bands``.
        num_bands: At least one.
    """
    cuts = [number * num_rows // num_bands for number in range(num_bands + 1)]
    return tuple(Interval(start, end) for start, end in pairwise(cuts))
