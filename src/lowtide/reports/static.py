"""The report as a picture for papers: PNG or SVG, drawn by matplotlib, black on white."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO

from lowtide.reports.optional import require
from lowtide.reports.palette import BUDGET, COLOR_BY_KIND, HELD, PLAIN, RECOMPUTED
from lowtide.reports.report import Report, Span, SpanKind
from lowtide.reports.scale import Unit, byte_unit
from lowtide.reports.thinning import kept_steps, largest_spans, rows_of
from lowtide.units import format_bytes

__all__ = ["draw_report"]

_NEEDED_FOR = "a report as PNG or SVG"
_MOST_POINTS = 4000
_MOST_ROWS = 400
_MOST_VECTORS = 2500
_DOTS_PER_INCH = 200
_WIDTH_INCHES = 7.0


def draw_report(report: Report, file: BinaryIO, *, file_format: str) -> None:
    """Draw memory, retention intervals and, where there are any, addresses, one below the other.

    The same report gives the same bytes. Where there are many bars, an SVG holds them as an image, its text and axes
    as vectors.

    Args:
        report: What to draw.
        file: Where to write.
        file_format: ``"png"`` or ``"svg"``.

    Raises:
        MissingDependency: matplotlib is not installed.
    """
    matplotlib = require("matplotlib", needed_for=_NEEDED_FOR)
    figures = require("matplotlib.figure", needed_for=_NEEDED_FOR)
    with matplotlib.rc_context({"svg.hashsalt": "lowtide", "font.size": 8, "axes.linewidth": 0.6}):
        heights = [2.0, 2.2, 2.4] if report.placed else [2.0, 2.2]
        figure = figures.Figure(
            figsize=(_WIDTH_INCHES, sum(heights) + 0.7), dpi=_DOTS_PER_INCH, layout="constrained", facecolor="white"
        )
        panels = figure.subplots(len(heights), 1, sharex=True, gridspec_kw={"height_ratios": heights})
        figure.suptitle(f"{report.title}: {report.subtitle}", fontsize=9, x=0.01, ha="left", parse_math=False)
        largest = max(report.peak_bytes, report.plain_peak_bytes or 0, report.budget_bytes or 0)
        unit = byte_unit(largest)
        _draw_memory(panels[0], report, unit)
        _draw_intervals(panels[1], report)
        if report.placed:
            _draw_addresses(panels[2], report, unit)
        panels[-1].set_xlabel(report.step_name)
        panels[-1].set_xlim(0, max(1, len(report.steps)))
        metadata = {"Software": None} if file_format == "png" else {"Date": None, "Creator": None}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from")  # a box stands for it in the title
            figure.savefig(file, format=file_format, metadata=metadata)


def _draw_memory(axes: Any, report: Report, unit: Unit) -> None:
    steps = kept_steps(report, most=_MOST_POINTS)
    edges = [*steps, len(report.steps)] if steps else [0, 1]
    held = [report.steps[step].held_bytes / unit.size for step in steps] or [0.0]
    if report.plain_peak_bytes is not None:
        plain = [(report.steps[step].plain_bytes or 0) / unit.size for step in steps]
        axes.stairs(plain, edges, fill=True, color=PLAIN, alpha=0.2, linewidth=0)
        axes.stairs(plain, edges, color=PLAIN, linewidth=0.9, label=f"plain, {_peak(report.plain_peak_bytes)}")
    axes.stairs(held, edges, fill=True, color=HELD, alpha=0.5, linewidth=0)
    axes.stairs(held, edges, color=HELD, linewidth=0.9, label=f"{report.held_name}, {_peak(report.peak_bytes)}")
    if report.budget_bytes is not None:
        _draw_budget(axes, report, unit)
    marks = [index for index, step in enumerate(report.steps) if step.is_recompute]
    top = max(axes.get_ylim()[1], 1e-9)
    if marks:
        axes.vlines(
            marks, -0.06 * top, -0.015 * top, color=RECOMPUTED, linewidth=0.6, label=f"{len(marks):,} recomputations"
        )
    axes.set_ylim(-0.075 * top, top)
    axes.set_ylabel(f"held, {unit.name}")
    _draw_legend(axes)


def _peak(size_bytes: int) -> str:
    return f"peak {format_bytes(size_bytes)}"


def _draw_budget(axes: Any, report: Report, unit: Unit) -> None:
    axes.axhline(
        (report.budget_bytes or 0) / unit.size,
        color=BUDGET,
        linewidth=1.1,
        linestyle=(0, (5, 2.5)),
        label=f"{report.budget_name} {format_bytes(report.budget_bytes or 0)}",
    )


def _draw_intervals(axes: Any, report: Report) -> None:
    row_by_name = rows_of(report.spans, most=_MOST_ROWS)
    spans = [span for span in report.spans if span.name in row_by_name]
    _draw_boxes(axes, spans, [(row_by_name[span.name], row_by_name[span.name] + 0.9) for span in spans])
    axes.set_ylim(max(1, len(row_by_name)), 0)
    axes.set_yticks([])
    num_values = len({span.name for span in report.spans})
    shown = f"{len(row_by_name):,} of {num_values:,} values" if len(row_by_name) < num_values else "values"
    axes.set_ylabel(f"{shown}, first made on top")
    _draw_legend(axes, place="lower left")  # where no value can be: the last ones are made last


def _draw_addresses(axes: Any, report: Report, unit: Unit) -> None:
    spans = largest_spans(report.placed, most=10 * _MOST_VECTORS)
    sides = []
    for span in spans:
        offset = span.offset or 0
        sides.append((offset / unit.size, (offset + span.size_bytes) / unit.size))
    axes.set_facecolor("#eef1f4")
    _draw_boxes(axes, spans, sides, has_edges=len(spans) <= _MOST_VECTORS // 4)
    top = max(report.footprint_bytes, report.budget_bytes or 0, 1) / unit.size
    if report.budget_bytes is not None:
        _draw_budget(axes, report, unit)
    axes.set_ylim(0, top * 1.04)
    axes.set_ylabel(f"address, {unit.name}")


def _draw_boxes(
    axes: Any, spans: Sequence[Span], sides: Sequence[tuple[float, float]], *, has_edges: bool = False
) -> None:
    """One collection per kind, recomputed copies last, so that they lie on top."""
    collections = require("matplotlib.collections", needed_for=_NEEDED_FOR)
    for kind in _in_drawing_order(spans):
        boxes = [
            [
                (span.interval.start, low),
                (span.interval.end, low),
                (span.interval.end, high),
                (span.interval.start, high),
            ]
            for span, (low, high) in zip(spans, sides, strict=True)
            if span.kind is kind
        ]
        axes.add_collection(
            collections.PolyCollection(
                boxes,
                facecolor=COLOR_BY_KIND[kind],
                edgecolor="white" if has_edges else "none",
                linewidth=0.25 if has_edges else 0,
                rasterized=len(spans) > _MOST_VECTORS,
                label=str(kind),
            )
        )


def _in_drawing_order(spans: Iterable[Span]) -> list[SpanKind]:
    present = {span.kind for span in spans}
    return [kind for kind in (*_UNDER, SpanKind.RECOMPUTED) if kind in present]


_UNDER = (SpanKind.INPUT, SpanKind.FIRST, SpanKind.WORKSPACE)


def _draw_legend(axes: Any, *, place: str = "upper right") -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc=place, frameon=True, framealpha=0.85, edgecolor="none", fontsize=7)
