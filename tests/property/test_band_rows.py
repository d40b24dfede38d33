"""Rows of windows, against numpy: a band computed from what the arithmetic says it reads is a part of the whole."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import assume, given
from hypothesis import strategies as st

from lowtide.emit.bands.rows import Window, Zoom, hull, same_padding, split_rows
from lowtide.ir import Interval

Column = npt.NDArray[np.int64]


def convolve(column: Column, weights: Column, *, stride: int, dilation: int) -> Column:
    """Without padding, straight from the definition."""
    extent = (len(weights) - 1) * dilation + 1
    return np.array(
        [
            sum(int(column[start + tap * dilation]) * int(weight) for tap, weight in enumerate(weights))
            for start in range(0, len(column) - extent + 1, stride)
        ],
        np.int64,
    )


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[Column, Column, int, int, tuple[int, int]]:
    """A column of rows, weights, stride, dilation, and padding: SAME or any."""
    column = np.arange(1, draw(st.integers(1, 24)) + 1, dtype=np.int64) ** 2
    weights = np.array(draw(st.lists(st.integers(1, 99), min_size=1, max_size=5)), np.int64)
    stride, dilation = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    extent = (len(weights) - 1) * dilation + 1
    padding = draw(st.tuples(st.integers(0, 3), st.integers(0, 3)))
    if draw(st.booleans()):
        padding = same_padding(len(column), extent=extent, stride=stride)
    assume(len(column) + sum(padding) >= extent)
    return column, weights, stride, dilation, padding


@given(convolutions(), st.data())
def test_a_band_is_part_of_the_whole(
    case: tuple[Column, Column, int, int, tuple[int, int]], data: st.DataObject
) -> None:
    column, weights, stride, dilation, padding = case
    whole = convolve(np.pad(column, padding), weights, stride=stride, dilation=dilation)
    start = data.draw(st.integers(0, len(whole) - 1))
    end = data.draw(st.integers(start + 1, len(whole)))
    window = Window(len(column), (len(weights) - 1) * dilation + 1, stride, padding[0])
    read = window.read(Interval(start, end))
    assume(len(read.rows) > 0)
    part = np.pad(column[read.rows.start : read.rows.end], (read.pad_before, read.pad_after))
    assert convolve(part, weights, stride=stride, dilation=dilation).tolist() == whole[start:end].tolist()
    assert min(read.pad_before, read.pad_after) >= 0


@given(st.integers(1, 200), st.integers(1, 9), st.integers(1, 5))
def test_same_padding_makes_one_row_per_stride(num_in: int, extent: int, stride: int) -> None:
    before, after = same_padding(num_in, extent=extent, stride=stride)
    assert 0 <= after - before <= 1
    assert (num_in + before + after - extent) // stride + 1 == -(-num_in // stride)


@given(st.integers(1, 12), st.integers(1, 5), st.data())
def test_a_zoomed_band_is_part_of_the_whole(num_rows: int, factor: int, data: st.DataObject) -> None:
    whole = np.repeat(np.arange(num_rows), factor)
    start = data.draw(st.integers(0, len(whole) - 1))
    end = data.draw(st.integers(start + 1, len(whole)))
    zoom = Zoom(factor)
    computed = zoom.computed(Interval(start, end))
    assert computed.start <= start < end <= computed.end
    rows = zoom.read(computed).rows
    assert np.repeat(np.arange(rows.start, rows.end), factor).tolist() == whole[computed.start : computed.end].tolist()
    assert rows == zoom.read(Interval(start, end)).rows


@given(st.integers(1, 100), st.data())
def test_bands_are_all_rows_in_order_and_nearly_of_one_height(num_rows: int, data: st.DataObject) -> None:
    bands = split_rows(num_rows, data.draw(st.integers(1, num_rows)))
    assert [row for band in bands for row in band] == list(range(num_rows))
    heights = {len(band) for band in bands}
    assert min(heights) >= 1
    assert max(heights) - min(heights) <= 1


def test_hull_holds_what_lies_between() -> None:
    assert hull(Interval(2, 3), Interval(6, 8)) == Interval(2, 8)
    assert hull(Interval(2, 8), Interval(4, 5)) == Interval(2, 8)


def test_rows_of_the_drawing() -> None:
    window = Window(8, extent=3, stride=2, pad_before=1)
    assert window.read(Interval(1, 3)).rows == Interval(1, 6)
    assert (window.read(Interval(0, 1)).rows, window.read(Interval(0, 1)).pad_before) == (Interval(0, 2), 1)
