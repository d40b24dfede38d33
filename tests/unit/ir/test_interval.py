"""Half-open intervals."""

from __future__ import annotations

import pytest

from lowtide.ir import Interval


def test_the_end_is_outside() -> None:
    assert list(Interval(1, 4)) == [1, 2, 3]
    assert len(Interval(1, 4)) == 3
    assert 3 in Interval(1, 4)
    assert 4 not in Interval(1, 4)


@pytest.mark.parametrize(
    ("one", "other", "is_overlap"),
    [
        (Interval(1, 4), Interval(4, 6), False),
        (Interval(1, 4), Interval(3, 6), True),
        (Interval(1, 4), Interval(2, 3), True),
        (Interval(2, 2), Interval(1, 4), False),
        (Interval(0, 1), Interval(5, 6), False),
    ],
)
def test_touching_and_empty_intervals_do_not_overlap(one: Interval, other: Interval, is_overlap: bool) -> None:
    assert one.overlaps(other) is is_overlap
    assert other.overlaps(one) is is_overlap


def test_an_end_before_the_start_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^interval ends at step 2 before it starts at step 3$"):
        Interval(3, 2)
