"""The columns that the page's plots draw, thinned to what a screen can show.

Every column of positions exists twice, over steps (``*_step``) and over time (``*_time``); the page shows one of them
under the plain name (``left``, ``right``, ``x``) and swaps them at a click.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowtide.reports.palette import COLOR_BY_KIND
from lowtide.reports.report import Report, Span, SpanKind
from lowtide.reports.scale import Unit, byte_unit, time_unit
from lowtide.reports.thinning import kept_steps, largest_spans, rows_of
from lowtide.units import format_bytes

__all__ = ["Columns", "PageColumns", "page_columns"]

Columns = Mapping[str, Any]

_MOST_POINTS = 3000
_MOST_MARKS = 3000
_MOST_ROWS = 250
_MOST_BARS = 5000
_MOST_BLOCKS = 9000


@dataclass(frozen=True, slots=True)
class PageColumns:
    """What is drawn.

    Attributes:
        curve: One row per drawn step.
        marks: One row per recomputation.
        bars: One row per retention interval.
        blocks: One row per span with an address.
        num_rows: How many values have bars.
        unit: Of all byte columns.
        clock: Of all time columns.
        notes: What was left out.
    """

    curve: Columns
    marks: Columns
    bars: Columns
    blocks: Columns
    num_rows: int
    unit: Unit
    clock: Unit
    notes: tuple[str, ...]


def page_columns(report: Report) -> PageColumns:
    """Thin a report and put it into columns."""
    largest = max(report.peak_bytes, report.plain_peak_bytes or 0, report.budget_bytes or 0)
    unit = byte_unit(largest)
    clock = time_unit(report.start_by_step[-1], report.duration_unit)
    steps = kept_steps(report, most=_MOST_POINTS)
    row_by_name = rows_of(report.spans, most=_MOST_ROWS)
    in_rows = [span for span in report.spans if span.name in row_by_name]
    bars = sorted(largest_spans(in_rows, most=_MOST_BARS), key=lambda span: span.kind is SpanKind.RECOMPUTED)
    blocks = largest_spans(report.placed, most=_MOST_BLOCKS)
    rows = [row_by_name[span.name] for span in bars]
    return PageColumns(
        curve=_curve(report, steps, unit, clock),
        marks=_marks(report, unit, clock),
        bars={**_spans(report, bars, clock), "top": _floats(rows), "bottom": _floats([row + 0.9 for row in rows])},
        blocks=_blocks(report, blocks, unit, clock),
        num_rows=len(row_by_name),
        unit=unit,
        clock=clock,
        notes=tuple(_notes(report, len(steps), len(row_by_name), len(blocks))),
    )


def _notes(report: Report, num_points: int, num_rows: int, num_blocks: int) -> Sequence[str]:
    notes = []
    if num_points < len(report.steps):
        notes.append(
            f"The curves go through {num_points:,} of {len(report.steps):,} {report.step_name}s: of each stretch the "
            "highest and the lowest, so that every peak stands."
        )
    num_values = len({span.name for span in report.spans})
    if num_rows < num_values:
        notes.append(
            f"Bars are shown for {num_rows:,} of {num_values:,} values: those that hold most bytes for longest, and "
            "recomputed ones."
        )
    if num_blocks < len(report.placed):
        notes.append(f"The address map shows the {num_blocks:,} largest of {len(report.placed):,} blocks.")
    return notes


def _curve(report: Report, steps: Sequence[int], unit: Unit, clock: Unit) -> Columns:
    ends = [*steps[1:], len(report.steps)][: len(steps)]
    chosen = [report.steps[step] for step in steps]
    plain = [np.nan if step.plain_bytes is None else step.plain_bytes / unit.size for step in chosen]
    return {
        **_positions(report, steps, ends, clock),
        "step": np.array(steps, dtype=np.int32),
        "held": _floats([step.held_bytes / unit.size for step in chosen]),
        "plain": _floats(plain),
        "name": [_short(step.name) for step in chosen],
        "held_text": [format_bytes(step.held_bytes) for step in chosen],
        "plain_text": ["unknown" if step.plain_bytes is None else format_bytes(step.plain_bytes) for step in chosen],
        "what": ["recomputed" if step.is_recompute else "" for step in chosen],
    }


def _marks(report: Report, unit: Unit, clock: Unit) -> Columns:
    steps = [index for index, step in enumerate(report.steps) if step.is_recompute]
    stride = -(-len(steps) // _MOST_MARKS) or 1
    steps = steps[::stride]
    return {
        **_positions(report, steps, [step + 1 for step in steps], clock),
        "held": _floats([report.steps[step].held_bytes / unit.size for step in steps]),
    }


def _spans(report: Report, spans: Sequence[Span], clock: Unit) -> dict[str, Any]:
    starts = [span.interval.start for span in spans]
    ends = [span.interval.end for span in spans]
    return {
        **_positions(report, starts, ends, clock),
        "color": [COLOR_BY_KIND[span.kind] for span in spans],
        "name": [_short(span.name) for span in spans],
        "maker": [_short(span.module or span.maker) for span in spans],
        "kind": [str(span.kind) for span in spans],
        "size": [format_bytes(span.size_bytes) for span in spans],
        "first": np.array(starts, dtype=np.int32),
        "last": np.array([end - 1 for end in ends], dtype=np.int32),
    }


def _blocks(report: Report, spans: Sequence[Span], unit: Unit, clock: Unit) -> Columns:
    offsets = [span.offset or 0 for span in spans]
    ends = [offset + span.size_bytes for offset, span in zip(offsets, spans, strict=True)]
    return {
        **_spans(report, spans, clock),
        "bottom": _floats([offset / unit.size for offset in offsets]),
        "top": _floats([end / unit.size for end in ends]),
        "place": [f"{offset:,} to {end:,}" for offset, end in zip(offsets, ends, strict=True)],
        # Neighbours on the map are told apart by shade, which costs no pixel as an outline would.
        "shade": np.array([(0.95, 0.78, 0.62)[index % 3] for index in range(len(spans))], dtype=np.float32),
    }


def _positions(report: Report, starts: Sequence[int], ends: Sequence[int], clock: Unit) -> dict[str, Any]:
    times = np.array(report.start_by_step, dtype=np.float64) / clock.size
    left, right = np.array(starts, dtype=np.int32), np.array(ends, dtype=np.int32)
    return {
        "left": left,
        "right": right,
        "left_step": left,
        "right_step": right,
        "left_time": times[left].astype(np.float32),
        "right_time": times[right].astype(np.float32),
    }


def _floats(numbers: Sequence[float]) -> Any:
    return np.array(numbers, dtype=np.float64)


def _short(name: str, most: int = 80) -> str:
    """Long names keep their beginning and end."""
    return name if len(name) <= most else f"{name[: most // 2]}…{name[-(most // 2 - 1) :]}"
