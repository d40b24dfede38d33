"""Fewer things to draw: every peak stays, the largest spans stay, recomputed values get rows."""

from __future__ import annotations

import random

import pytest

from lowtide.ir import Interval
from lowtide.reports.report import Report, ReportStep, Span, SpanKind
from lowtide.reports.thinning import kept_steps, largest_spans, rows_of


def report_of(held: list[int], plain: list[int]) -> Report:
    steps = [ReportStep("n", 1, h, p, is_recompute=False) for h, p in zip(held, plain, strict=True)]
    return Report("t", "s", tuple(steps), "step", "plan", (), None, "budget", "unit", (), ())


def span(name: str, start: int, end: int, size_bytes: int, kind: SpanKind = SpanKind.FIRST) -> Span:
    return Span(name, 0, Interval(start, end), size_bytes, kind, "op")


@pytest.mark.parametrize("seed", range(5))
def test_extremes_of_both_curves_stay(seed: int) -> None:
    draw = random.Random(seed)
    held, plain = ([draw.randrange(10**6) for _ in range(5000)] for _ in range(2))
    kept = kept_steps(report_of(held, plain), most=400)
    assert len(kept) <= 402
    assert list(kept) == sorted(set(kept))
    assert kept[0] == 0
    for curve in (held, plain):
        assert max(curve) == max(curve[step] for step in kept)
        assert min(curve) == min(curve[step] for step in kept)


def test_few_steps_all_stay() -> None:
    assert kept_steps(report_of([1, 2, 3], [1, 2, 3]), most=3) == (0, 1, 2)
    assert kept_steps(report_of([], []), most=3) == ()


def test_the_largest_areas_stay_in_their_order() -> None:
    spans = [span("a", 0, 2, 10), span("b", 0, 100, 1), span("c", 1, 2, 5), span("d", 2, 12, 3)]
    assert [kept.name for kept in largest_spans(spans, most=2)] == ["b", "d"]
    assert largest_spans(spans, most=4) == tuple(spans)


def test_half_of_the_rows_are_for_recomputed_values() -> None:
    spans = [span(f"v{index}", index, index + 10, 100 - index) for index in range(10)]
    spans.append(span("small", 20, 21, 1, SpanKind.RECOMPUTED))
    assert rows_of(spans, most=4) == {"v0": 0, "v1": 1, "v2": 2, "small": 3}
    assert rows_of(spans, most=100) == {span.name: row for row, span in enumerate(spans)}
    assert rows_of([], most=4) == {}
