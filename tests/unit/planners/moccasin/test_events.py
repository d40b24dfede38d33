"""Numbers of staged events."""

import pytest

from lowtide.planners.moccasin.events import event_at, num_events, stage_and_column_of


def test_events_count_row_by_row() -> None:
    assert [event_at(stage, column) for stage in range(4) for column in range(stage + 1)] == list(range(10))
    assert num_events(4) == 10


@pytest.mark.parametrize("event", [0, 1, 2, 5, 6, 49_994_999, 49_995_000])
def test_stage_and_column_are_the_inverse(event: int) -> None:
    stage, column = stage_and_column_of(event)
    assert 0 <= column <= stage
    assert event_at(stage, column) == event
