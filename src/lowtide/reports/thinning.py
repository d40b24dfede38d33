"""Fewer things to draw, with what matters kept.

A screen has some 2000 columns and a plan of 10,000 nodes some 40,000 steps. A curve is cut into pieces, and of each
piece the steps of the highest and lowest figure are kept: no peak is lost (the idea of M4, Jugel et al. 2014, "M4: a
visualization-oriented time series data aggregation", without its first and last points). Of spans the largest areas,
bytes times steps, are kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from lowtide.reports.report import Report, Span, SpanKind

__all__ = ["kept_steps", "largest_spans", "rows_of"]


def kept_steps(report: Report, *, most: int) -> tuple[int, ...]:
    """The steps to draw the curves through, in order; all of them where they are few enough.

    Args:
        report: Of any size.
        most: How many at most, about.
    """
    number = len(report.steps)
    if number <= most:
        return tuple(range(number))
    num_pieces = max(1, most // 4)
    kept = {0, number - 1}
    for piece in range(num_pieces):
        span = range(piece * number // num_pieces, (piece + 1) * number // num_pieces)
        for figures in (
            [report.steps[step].held_bytes for step in span],
            [report.steps[step].plain_bytes or 0 for step in span],
        ):
            kept.add(span[figures.index(max(figures))])
            kept.add(span[figures.index(min(figures))])
    return tuple(sorted(kept))


def largest_spans(spans: Sequence[Span], *, most: int) -> tuple[Span, ...]:
    """The spans of most bytes times steps, in their given order."""
    if len(spans) <= most:
        return tuple(spans)
    ranked = sorted(range(len(spans)), key=lambda index: -spans[index].size_bytes * len(spans[index].interval))
    return tuple(spans[index] for index in sorted(ranked[:most]))


def rows_of(spans: Sequence[Span], *, most: int) -> dict[str, int]:
    """The values to give a row of bars, numbered by their first span.

    Where there are too many, half of the rows go to the values that hold most bytes for longest, the others to the
    recomputed ones of which the same is true, as far as there are any.

    Args:
        spans: In the order in which they begin.
        most: How many rows at most.
    """
    area_by_name: dict[str, int] = {}
    recomputed: set[str] = set()
    for span in spans:
        area_by_name[span.name] = area_by_name.get(span.name, 0) + span.size_bytes * len(span.interval)
        if span.kind is SpanKind.RECOMPUTED:
            recomputed.add(span.name)
    ranked = sorted(area_by_name, key=lambda name: -area_by_name[name])
    chosen = set(ranked[: most - most // 2])
    for name in (*(name for name in ranked if name in recomputed), *ranked):
        if len(chosen) == min(most, len(ranked)):
            break
        chosen.add(name)
    return {name: row for row, name in enumerate(name for name in area_by_name if name in chosen)}
