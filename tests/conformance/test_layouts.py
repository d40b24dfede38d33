"""One suite for all layouters: what they place is disjoint, aligned, no lower than the peak; proofs are true.

A layouter that is added to ``lowtide.layouts.table`` is tested here without further ado.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.errors import InputError
from lowtide.ir import Interval, Layout, Lifespan
from lowtide.ir.sequence import steps_from_sequence
from lowtide.layouts.protocol import Layouter, LayoutProposal, LayoutRequest
from lowtide.layouts.table import LAYOUTERS, layouter_named
from lowtide.referee import check_layout, replay
from lowtide.testing import random_graph, random_sequence


@pytest.fixture(params=sorted(LAYOUTERS), scope="module")
def layouter(request: pytest.FixtureRequest) -> Layouter:
    return layouter_named(request.param)


def spans_of(*rows: tuple[int, int, int]) -> tuple[Lifespan, ...]:
    """Rows of start, end, size_bytes."""
    return tuple(Lifespan(f"v{i}", 0, Interval(start, end), size) for i, (start, end, size) in enumerate(rows))


def random_spans(rng: Random, *, num_spans: int, num_steps: int, largest: int) -> tuple[Lifespan, ...]:
    rows = []
    for _ in range(num_spans):
        start = rng.randrange(num_steps)
        rows.append((start, rng.randint(start + 1, num_steps), rng.randint(1, largest)))
    return spans_of(*rows)


def guillotine_spans(rng: Random, *, num_spans: int, num_steps: int, capacity: int) -> tuple[Lifespan, ...]:
    """Cut a rectangle of steps x bytes into pieces: its height is their load at every step."""
    pieces = [(0, num_steps, capacity)]
    while len(pieces) < num_spans:
        start, end, size = pieces.pop(rng.choices(range(len(pieces)), [(e - s) * b for s, e, b in pieces])[0])
        if size == 1 or (end - start > 1 and rng.random() < 0.5):
            middle = rng.randint(start + 1, end - 1)
            pieces += [(start, middle, size), (middle, end, size)]
        else:
            part = rng.randint(1, size - 1)
            pieces += [(start, end, part), (start, end, size - part)]
    rng.shuffle(pieces)
    return spans_of(*pieces)


def peak_of(spans: Sequence[Lifespan]) -> int:
    return max((sum(s.size_bytes for s in spans if t.interval.start in s.interval) for t in spans), default=0)


def assert_valid(spans: Sequence[Lifespan], layout: Layout, *, alignment: int = 1) -> None:
    """Every pair, one by one: slow, and independent of the referee."""
    assert [(p.name, p.occurrence, p.size_bytes, p.is_workspace) for p in layout.placements] == [
        (s.name, s.occurrence, s.size_bytes, s.is_workspace) for s in spans
    ]
    for i, (span, place) in enumerate(zip(spans, layout.placements, strict=True)):
        assert place.offset >= 0
        assert place.offset % alignment == 0
        for other_span, other in zip(spans[:i], layout.placements[:i], strict=True):
            share_bytes = max(place.offset, other.offset) < min(
                place.offset + place.size_bytes, other.offset + other.size_bytes
            )
            assert not (share_bytes and span.interval.overlaps(other_span.interval)), (span, other_span)


def least_footprint(spans: Sequence[Lifespan]) -> int:
    """Some optimal layout is the lowest fit of some order: try them all."""
    best = sum(span.size_bytes for span in spans)
    for order in permutations(spans):
        placed: list[tuple[int, Lifespan]] = []
        for span in order:
            offset = 0
            for other_offset, other in sorted(placed, key=lambda item: item[0]):
                if other.interval.overlaps(span.interval) and other_offset < offset + span.size_bytes:
                    offset = max(offset, other_offset + other.size_bytes)
            placed.append((offset, span))
        best = min(best, max(offset + span.size_bytes for offset, span in placed))
    return best


def place(layouter: Layouter, spans: tuple[Lifespan, ...], *, seconds: float = 2.0) -> LayoutProposal:
    return layouter.place(LayoutRequest(spans, time_limit_seconds=seconds))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), alignment=st.sampled_from([1, 16, 64]))
def test_placements_are_disjoint_aligned_and_no_lower_than_the_peak(
    layouter: Layouter, seed: int, alignment: int
) -> None:
    spans = random_spans(Random(seed), num_spans=Random(seed).randint(1, 25), num_steps=12, largest=9)
    spans = tuple(replace(span, size_bytes=span.size_bytes * alignment) for span in spans)
    proposal = layouter.place(LayoutRequest(spans, alignment=alignment, time_limit_seconds=0.2))
    assert_valid(spans, proposal.layout, alignment=alignment)
    assert peak_of(spans) <= proposal.lower_bound_bytes <= proposal.layout.footprint_bytes


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), alignment=st.sampled_from([1, 16]))
def test_the_referee_accepts_layouts_of_graphs_with_every_feature(
    layouter: Layouter, seed: int, alignment: int
) -> None:
    graph = random_graph(Random(seed), num_nodes=10, alignment=alignment)
    steps = steps_from_sequence(graph, random_sequence(Random(seed), graph))
    request = LayoutRequest(replay(graph, steps).lifespans, alignment=alignment, time_limit_seconds=0.2)
    proposal = layouter.place(request)
    assert check_layout(graph, steps, proposal.layout).footprint_bytes >= replay(graph, steps).peak_bytes


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), factor=st.sampled_from([2, 7, 64]))
def test_scaled_sizes_and_alignment_scale_the_offsets(layouter: Layouter, seed: int, factor: int) -> None:
    spans = random_spans(Random(seed), num_spans=8, num_steps=9, largest=9)
    scaled = tuple(replace(span, size_bytes=span.size_bytes * factor) for span in spans)
    plain = layouter.place(LayoutRequest(spans, capacity_bytes=peak_of(spans) + 2))
    large = layouter.place(
        LayoutRequest(scaled, alignment=factor, capacity_bytes=factor * (peak_of(spans) + 2) + factor - 1)
    )
    assert [p.offset * factor for p in plain.layout.placements] == [p.offset for p in large.layout.placements]


def test_same_seed_same_layout(layouter: Layouter) -> None:
    spans = random_spans(Random(5), num_spans=25, num_steps=20, largest=50)
    request = LayoutRequest(spans, seed=3)
    assert layouter.place(request) == layouter.place(request)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_no_layout_is_better_than_the_best_and_no_bound_is_above_it(layouter: Layouter, seed: int) -> None:
    rng = Random(seed)
    spans = random_spans(rng, num_spans=rng.randint(1, 6), num_steps=6, largest=5)
    proposal = layouter.place(LayoutRequest(spans))
    least_bytes = least_footprint(spans)
    assert proposal.lower_bound_bytes <= least_bytes <= proposal.layout.footprint_bytes
    if layouter.name == "exact":
        assert proposal.lower_bound_bytes == least_bytes == proposal.layout.footprint_bytes
    for capacity_bytes in (least_bytes - 1, least_bytes):
        within = layouter.place(LayoutRequest(spans, capacity_bytes=capacity_bytes))
        assert within.lower_bound_bytes <= least_bytes <= within.layout.footprint_bytes
        if layouter.name == "exact":
            assert (within.layout.footprint_bytes <= capacity_bytes) == (least_bytes <= capacity_bytes)


def test_an_instance_whose_optimum_is_above_its_peak(layouter: Layouter) -> None:
    spans = spans_of((4, 6, 1), (2, 4, 2), (3, 6, 1), (3, 5, 2), (2, 3, 3), (5, 7, 3), (6, 7, 2))
    assert (peak_of(spans), least_footprint(spans)) == (5, 6)
    proposal = layouter.place(LayoutRequest(spans))
    assert proposal.layout.footprint_bytes == 6
    assert proposal.lower_bound_bytes == (6 if layouter.name == "exact" else 5)


@pytest.mark.parametrize(
    "spans",
    [
        (),
        spans_of((0, 3, 8)),
        spans_of((0, 2, 8), (2, 4, 8)),
        spans_of((0, 0, 8), (0, 2, 4)),
        spans_of((0, 2, 0), (0, 2, 4)),
    ],
    ids=["nothing", "one", "touching", "without steps", "without bytes"],
)
def test_the_smallest_cases_are_optimal(layouter: Layouter, spans: tuple[Lifespan, ...]) -> None:
    proposal = layouter.place(LayoutRequest(spans))
    assert_valid(spans, proposal.layout)
    assert proposal.layout.footprint_bytes == max((span.size_bytes for span in spans), default=0)
    assert proposal.is_optimal


def test_sizes_off_the_alignment_are_refused(layouter: Layouter) -> None:
    with pytest.raises(InputError, match="'v0' #0: size 9 is no multiple of the alignment 8: round it up"):
        layouter.place(LayoutRequest(spans_of((0, 1, 9)), alignment=8))
    with pytest.raises(InputError, match="alignment 0 must be at least 1 byte"):
        layouter.place(LayoutRequest(spans_of((0, 1, 9)), alignment=0))


def test_an_end_that_is_asked_for_still_gives_a_layout(layouter: Layouter) -> None:
    spans = random_spans(Random(1), num_spans=300, num_steps=100, largest=1000)
    proposal = layouter.place(LayoutRequest(spans, should_stop=lambda: True))
    assert_valid(spans, proposal.layout)


def test_errors_of_a_callback_pass(layouter: Layouter) -> None:
    def fail() -> bool:
        raise ZeroDivisionError("mine")

    spans = random_spans(Random(1), num_spans=300, num_steps=100, largest=1000)
    with pytest.raises(ZeroDivisionError, match="mine"):
        layouter.place(LayoutRequest(spans, should_stop=fail))


@pytest.mark.parametrize("seed", range(6))
def test_rectangles_cut_into_pieces(layouter: Layouter, seed: int) -> None:
    spans = guillotine_spans(Random(seed), num_spans=40, num_steps=200, capacity=1000)
    assert peak_of(spans) == 1000
    proposal = place(layouter, spans, seconds=20.0)
    assert_valid(spans, proposal.layout)
    assert proposal.lower_bound_bytes == 1000
    assert proposal.layout.footprint_bytes <= (1000 if layouter.name == "exact" else 1350)


def test_layouters_are_found_by_name() -> None:
    assert {layouter_named(name).name for name in LAYOUTERS} == set(LAYOUTERS)
    with pytest.raises(InputError, match="layout 'tight' is not known: choose one of best_fit, exact"):
        layouter_named("tight")
