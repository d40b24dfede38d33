"""The report as a trace for https://ui.perfetto.dev and chrome://tracing: ops as slices, memory as counters.

The format is Chrome's "Trace Event Format" (JSON object form). One unit of an abstract duration is shown as one
microsecond. Evictions are instants; ops that take no time have no width, and are there all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lowtide.reports.report import Report, largest_at

__all__ = ["perfetto_document"]

_PROCESS, _THREAD = 1, 1
_EVICT = "evict "


def perfetto_document(report: Report) -> dict[str, Any]:
    """The trace as a JSON document.

    Args:
        report: What to show.
    """
    return {
        "displayTimeUnit": "ns",
        "otherData": {fact.name: f"{fact.text} {fact.detail}".strip() for fact in report.facts},
        "traceEvents": list(_events(report)),
    }


def _events(report: Report) -> Iterator[dict[str, Any]]:
    yield _name("process_name", f"{report.title}: {report.subtitle}")
    yield _name("thread_name", f"{report.step_name}s")
    microseconds = 1000.0 if report.duration_unit == "ns" else 1.0
    for index, step in enumerate(report.steps):
        start = report.start_by_step[index] / microseconds
        place = {"ts": start, "pid": _PROCESS, "tid": _THREAD}
        if report.step_name == "step" and step.name.startswith(_EVICT) and not step.duration:
            yield {"ph": "i", "name": step.name, "cat": "evict", "s": "t", **place}
        else:
            category = "recompute" if step.is_recompute else "op"
            arguments = {report.step_name: index, "held_bytes": step.held_bytes}
            name = f"{step.name} (recomputed)" if step.is_recompute else step.name
            duration = {"dur": step.duration / microseconds}
            yield {"ph": "X", "name": name, "cat": category, **place, **duration, "args": arguments}
        yield _counter(report.held_name, step.held_bytes, start)
        if step.plain_bytes is not None:
            yield _counter("plain", step.plain_bytes, start)
    if report.budget_bytes is not None:
        for start in (0.0, report.start_by_step[-1] / microseconds):
            yield _counter(report.budget_name, report.budget_bytes, start)
    if report.peak_step is not None:
        largest = {span.name: span.size_bytes for span in largest_at(report.spans, report.peak_step)}
        start = report.start_by_step[report.peak_step] / microseconds
        yield {"ph": "i", "name": "peak", "cat": "peak", "s": "g", "ts": start, "pid": _PROCESS, "tid": _THREAD} | {
            "args": {"held_bytes": report.peak_bytes, "largest": largest}
        }


def _counter(name: str, size_bytes: int, start: float) -> dict[str, Any]:
    return {"ph": "C", "name": f"memory {name}", "ts": start, "pid": _PROCESS, "args": {"bytes": size_bytes}}


def _name(kind: str, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": _PROCESS, "tid": _THREAD, "args": {"name": name}}
