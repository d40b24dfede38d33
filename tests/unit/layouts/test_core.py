"""The native core of the layouters: columns, contention, what it refuses."""

from __future__ import annotations

from random import Random

import pytest

from lowtide import _layout


def test_columns_are_the_steps_where_live_sets_are_largest() -> None:
    # a: 0-4, b: 1-2, c: 3-6, d: 4-5: the live sets that no other contains are {a, b}, {a, c}, {c, d}
    spans = _layout.Spans(start=[0, 1, 3, 4], end=[4, 2, 6, 5], size=[5, 1, 2, 9])
    assert (spans.num_columns, spans.peak) == (3, 11)
    assert spans.contention == [7, 6, 11, 11]


def test_contention_is_the_largest_load_during_a_span() -> None:
    rng = Random(3)
    rows = [(start := rng.randrange(30), rng.randint(start + 1, 31), rng.randint(1, 9)) for _ in range(60)]
    spans = _layout.Spans(start=[r[0] for r in rows], end=[r[1] for r in rows], size=[r[2] for r in rows])
    load = [sum(size for start, end, size in rows if start <= step < end) for step in range(31)]
    assert spans.contention == [max(load[start:end]) for start, end, _ in rows]
    assert spans.peak == max(load)


@pytest.mark.parametrize(
    ("start", "end", "size", "text"),
    [
        ([0], [0], [1], "span 0 is empty"),
        ([0], [1], [0], "span 0 has no size"),
        ([0, 1], [1], [1], "starts, ends and sizes differ in length"),
    ],
)
def test_rubbish_is_refused(start: list[int], end: list[int], size: list[int], text: str) -> None:
    with pytest.raises(_layout.LayoutError, match=text):
        _layout.Spans(start=start, end=end, size=size)


def test_packing_below_the_peak_is_impossible_at_once() -> None:
    spans = _layout.Spans(start=[0, 0], end=[2, 2], size=[3, 4])
    outcome = _layout.pack(spans, capacity=6, max_nodes=10, seed=0)
    assert (outcome.is_packed, outcome.is_impossible, outcome.num_nodes) == (False, True, 0)
    outcome = _layout.pack(spans, capacity=7, max_nodes=10, seed=0)
    assert (outcome.is_packed, sorted(outcome.offsets)) in [(True, [0, 3]), (True, [0, 4])]


def test_packing_gives_up_when_its_nodes_are_used_up() -> None:
    rng = Random(4)
    rows = [(start := rng.randrange(50), rng.randint(start + 1, 51), rng.randint(50, 99)) for _ in range(120)]
    spans = _layout.Spans(start=[r[0] for r in rows], end=[r[1] for r in rows], size=[r[2] for r in rows])
    outcome = _layout.pack(spans, capacity=spans.peak, max_nodes=100, seed=0)
    assert not outcome.is_packed
    assert not outcome.is_impossible
    assert 100 <= outcome.num_nodes <= 101


def test_local_search_lowers_what_the_orders_leave() -> None:
    rng = Random(5)
    rows = [(start := rng.randrange(40), min(40, start + rng.randint(1, 15)), rng.randint(20, 50)) for _ in range(120)]
    spans = _layout.Spans(start=[r[0] for r in rows], end=[r[1] for r in rows], size=[r[2] for r in rows])
    plain = _layout.fit(spans, enough=0, max_work=0, seed=0)
    improved = _layout.fit(spans, enough=0, max_work=10_000_000, seed=0)
    assert (plain.num_rounds, plain.footprint > spans.peak) == (0, True)
    assert improved.footprint == spans.peak
