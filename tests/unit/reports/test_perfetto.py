"""The report for Perfetto: slices, counters, instants."""

from __future__ import annotations

import json
from typing import Any

from lowtide.ir import Trace
from lowtide.reports.perfetto import perfetto_document
from lowtide.reports.report import Report
from lowtide.reports.trace_report import report_of_trace


def events_of(report: Report, phase: str) -> list[dict[str, Any]]:
    return [event for event in perfetto_document(report)["traceEvents"] if event["ph"] == phase]


def test_executions_are_slices(report: Report) -> None:
    slices = [(event["name"], event["cat"], event["ts"], event["dur"]) for event in events_of(report, "X")]
    assert slices == [
        ("a", "op", 0.0, 1.0),
        ("b", "op", 1.0, 1.0),
        ("c", "op", 2.0, 1.0),
        ("a (recomputed)", "recompute", 3.0, 1.0),
        ("d", "op", 4.0, 1.0),
    ]


def test_evictions_and_the_peak_are_instants(report: Report) -> None:
    instants = events_of(report, "i")
    assert [event["name"] for event in instants if event["cat"] == "evict"] == [
        "evict va",
        "evict vb",
        "evict x",
        "evict va",
        "evict vc",
    ]
    peak = next(event for event in instants if event["cat"] == "peak")
    assert (peak["ts"], peak["args"]) == (1.0, {"held_bytes": 17, "largest": {"va": 8, "vb": 8, "x": 1}})


def test_counters_are_the_curves_and_the_budget(report: Report) -> None:
    counters: dict[str, list[int]] = {}
    for event in events_of(report, "C"):
        counters.setdefault(event["name"], []).append(event["args"]["bytes"])
    assert counters == {
        "memory plan": [9, 17, 9, 17, 9, 17, 16, 17, 9, 1],
        "memory plain": [9, 16, 16, 24, 24, 24, 24, 17, 17, 17],
        "memory budget": [18, 18],
    }


def test_nanoseconds_become_microseconds(trace: Trace) -> None:
    meta = {**trace.meta, "duration_unit": "ns"}
    report = report_of_trace(Trace(**{**{f: getattr(trace, f) for f in trace.__slots__}, "meta": meta}))
    assert [event["dur"] for event in events_of(report, "X")] == [0.01] * 5


def test_it_is_json_whatever_the_names(hostile_report: Report) -> None:
    document = perfetto_document(hostile_report)
    assert json.loads(json.dumps(document, allow_nan=False)) == document
