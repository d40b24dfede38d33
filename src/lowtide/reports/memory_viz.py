"""The report as a snapshot for PyTorch's memory viewer (https://pytorch.org/memory_viz, ``torch.cuda._memory_viz``).

The shape is that of ``torch.cuda.memory._snapshot()``: one segment, which is the arena, with the blocks that are left
at the end, and one device's history of allocations and frees. Who allocated is told by frames: the value, what made it,
its module. Without addresses, each storage instance gets one of its own that nothing else ever has: sizes and times are
true then, places are not.

The pickle holds plain dicts, lists, texts and numbers only.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from lowtide.reports.report import Report, Span

__all__ = ["memory_viz_pickle", "memory_viz_snapshot"]

_BASE_ADDRESS = 0x7F0000000000
_PICKLE_PROTOCOL = 4


def memory_viz_pickle(report: Report) -> bytes:
    """The snapshot as the bytes of a file.

    Args:
        report: What to show.
    """
    return pickle.dumps(memory_viz_snapshot(report), protocol=_PICKLE_PROTOCOL)


def memory_viz_snapshot(report: Report) -> dict[str, Any]:
    """The snapshot as ``torch.cuda.memory._snapshot()`` would return it.

    Args:
        report: What to show.
    """
    spans = _with_addresses(report.spans)
    end_bytes = max((_end(span) for span in spans), default=0)
    total_bytes = max(end_bytes, report.budget_bytes or 0) if report.placed else end_bytes
    num_steps = len(report.steps)
    left = sorted((span for span in spans if span.interval.end == num_steps), key=lambda span: span.offset or 0)
    held_bytes = sum(span.size_bytes for span in left)
    segment = {
        "device": 0,
        "address": _BASE_ADDRESS,
        "total_size": total_bytes,
        "allocated_size": held_bytes,
        "active_size": held_bytes,
        "requested_size": held_bytes,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": list(_blocks(left, total_bytes)),
    }
    history = [_entry("segment_alloc", 0, total_bytes, 0, [])] if total_bytes else []
    history += _history(report, spans)
    return {
        "segments": [segment] if total_bytes else [],
        "device_traces": [history],
        "allocator_settings": {},
        "external_annotations": [],
    }


def _with_addresses(spans: Sequence[Span]) -> tuple[Span, ...]:
    if any(span.offset is not None for span in spans):
        return tuple(span for span in spans if span.offset is not None)
    placed, offset = [], 0
    for span in spans:
        placed.append(replace(span, offset=offset))
        offset += span.size_bytes
    return tuple(placed)


def _blocks(left: Sequence[Span], total_bytes: int) -> Iterator[dict[str, Any]]:
    """Blocks from the first byte to the last: what is held at the end, and the holes between."""
    position = 0
    for span in left:
        offset = span.offset or 0
        if offset > position:
            yield _block("inactive", position, offset - position, [])
        yield _block("active_allocated", offset, span.size_bytes, _frames(span))
        position = offset + span.size_bytes
    if position < total_bytes:
        yield _block("inactive", position, total_bytes - position, [])


def _block(state: str, offset: int, size_bytes: int, frames: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "address": _BASE_ADDRESS + offset,
        "size": size_bytes,
        "requested_size": size_bytes if frames else 0,
        "state": state,
        "frames": frames,
    }


def _history(report: Report, spans: Sequence[Span]) -> Iterator[dict[str, Any]]:
    """At each step what ends is freed before what begins is allocated; what is left at the end stays."""
    changes = []
    for index, span in enumerate(spans):
        changes.append((span.interval.start, True, index))
        if span.interval.end < len(report.steps):
            changes.append((span.interval.end, False, index))
    nanoseconds_by_unit = 1 if report.duration_unit == "ns" else 1000
    for step, begins, index in sorted(changes):
        span = spans[index]
        time_us = report.start_by_step[step] * nanoseconds_by_unit // 1000
        for action in ("alloc",) if begins else ("free_requested", "free_completed"):
            yield _entry(action, span.offset or 0, span.size_bytes, time_us, _frames(span))


def _entry(action: str, offset: int, size_bytes: int, time_us: int, frames: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "action": action,
        "addr": _BASE_ADDRESS + offset,
        "size": size_bytes,
        "stream": 0,
        "time_us": time_us,
        "frames": frames,
    }


def _frames(span: Span) -> list[dict[str, Any]]:
    """What allocated, innermost first, as the viewer prints stacks."""
    copy = f" #{span.occurrence}" if span.occurrence else ""
    frames = [
        {"name": f"{span.name}{copy} ({span.kind})", "filename": "value", "line": span.occurrence},
        {"name": span.maker, "filename": "op", "line": 0},
    ]
    if span.module:
        frames.append({"name": span.module, "filename": "module", "line": 0})
    return frames


def _end(span: Span) -> int:
    return (span.offset or 0) + span.size_bytes
