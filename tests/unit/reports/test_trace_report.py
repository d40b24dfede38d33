"""The report of a trace, compared with a drawing (drawings.py), and laws on simulated ones."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from drawings import block

from lowtide import api
from lowtide.errors import TraceRejected
from lowtide.importers.generate import graph_from_spec
from lowtide.ir import Interval, Mark, MarkKind, Memory, MemoryKind, Trace
from lowtide.referee import check_trace
from lowtide.reports.report import Fact, Span, SpanKind
from lowtide.reports.trace_report import report_of_simulation, report_of_trace


def spans_of_drawing(*, has_blocks: bool) -> set[Span]:
    rows = (
        ("x", 0, Interval(0, 5), SpanKind.INPUT, "user input", 0),
        ("a", 0, Interval(0, 2), SpanKind.FIRST, "f", 4),
        ("b", 0, Interval(1, 3), SpanKind.FIRST, "g", 8),
        ("c", 0, Interval(2, 5), SpanKind.FIRST, "h", 4),
        ("a", 1, Interval(3, 5), SpanKind.RECOMPUTED, "f", 8),
        ("d", 0, Interval(4, 5), SpanKind.FIRST, "k", 12),
    )
    return {
        Span(name, occurrence, interval, 4, kind, maker, offset=offset if has_blocks else None)
        for name, occurrence, interval, kind, maker, offset in rows
    }


def without_blocks(trace: Trace) -> Trace:
    events = tuple(event for event in trace.events if not isinstance(event, Memory))
    return replace(trace, capacity_bytes=None, events=events)


def test_spans_are_those_of_the_drawing(trace: Trace) -> None:
    assert set(report_of_trace(trace).spans) == spans_of_drawing(has_blocks=True)


def test_without_blocks_spans_come_from_calls_and_marks(trace: Trace) -> None:
    report = report_of_trace(without_blocks(trace))
    assert set(report.spans) == spans_of_drawing(has_blocks=False)
    assert report.notes[0].startswith("The trace has no blocks")


def test_curves_are_those_of_the_drawing(trace: Trace) -> None:
    report = report_of_trace(trace)
    assert [step.held_bytes for step in report.steps] == [8, 12, 12, 12, 16]
    assert [step.plain_bytes for step in report.steps] == [8, 12, 16, 12, 16]
    assert [step.is_recompute for step in report.steps] == [False, False, False, True, False]
    assert (report.title, report.budget_name, report.budget_bytes) == ("drawing", "capacity", 16)


def test_headlines_count_what_happened(trace: Trace) -> None:
    assert report_of_trace(trace).headlines == (
        Fact("plain peak", "16 B"),
        Fact("held at the peak", "16 B", "+0.0 %"),
        Fact("capacity", "16 B", "100.0 % of plain"),
        Fact("duration", "+25.00 %", "recomputed op time"),
        Fact("recomputations", "1", "1 evictions"),
    )


def test_a_title_is_for_a_trace_without_a_name(trace: Trace) -> None:
    assert report_of_trace(trace, title="file").title == "drawing"
    assert report_of_trace(replace(trace, meta={}), title="file").title == "file"
    assert report_of_trace(replace(trace, meta={"name": 3})).title == "trace"


def test_a_simulation_has_the_name_and_the_unit_of_its_graph() -> None:
    graph = graph_from_spec("generate:transformer?layers=3")
    simulation = api.simulate(graph, budget="80%", records_trace=True)
    report = report_of_simulation(simulation, title="file")
    assert report.title == graph.name
    assert simulation.trace is not None
    assert simulation.trace.meta["duration_unit"] == graph.duration_unit


def test_a_recording_has_no_second_curve(trace: Trace) -> None:
    kept = tuple(event for event in trace.events if not isinstance(event, Memory | Mark))
    recording = replace(trace, capacity_bytes=None, policy=None, events=(*kept[:4], kept[5]))
    report = report_of_trace(recording)
    assert report.plain_peak_bytes is None
    assert report.subtitle == "trace of 4 ops, recorded without a budget"


def test_a_moved_block_stays_the_same_copy(trace: Trace) -> None:
    moved = (
        Mark(MarkKind.MOVE, "b"),
        block(MemoryKind.FREE, "b", 8),
        block(MemoryKind.ALLOC, "b", 12),
    )
    events = list(trace.events)
    place = events.index(Mark(MarkKind.EVICT, "a"))
    events[place:place] = moved
    events[events.index(block(MemoryKind.FREE, "b", 8), place + 3)] = block(MemoryKind.FREE, "b", 12)
    report = report_of_trace(replace(trace, events=tuple(events)))
    pieces = [(span.interval, span.occurrence, span.offset) for span in report.spans if span.name == "b"]
    assert pieces == [(Interval(1, 2), 0, 8), (Interval(2, 3), 0, 12)]
    assert Fact("duration", "+25.00 %", "recomputed op time, sliding left out") in report.headlines


def test_blocks_taken_after_their_call_belong_to_it(trace: Trace) -> None:
    events = list(trace.events)
    events[-2:] = [events[-1], events[-2]]
    assert set(report_of_trace(replace(trace, events=tuple(events))).spans) == spans_of_drawing(has_blocks=True)


def test_leaves_outside_the_arena_are_in_no_curve(trace: Trace) -> None:
    events = tuple(event for event in trace.events if event != block(MemoryKind.ALLOC, "x", 0))
    report = report_of_trace(replace(trace, events=events))
    assert [step.plain_bytes for step in report.steps] == [4, 8, 12, 8, 12]
    assert [step.held_bytes for step in report.steps] == [4, 8, 8, 8, 12]


def test_a_broken_trace_is_refused(trace: Trace) -> None:
    with pytest.raises(TraceRejected, match="alloc-once"):
        report_of_trace(replace(trace, events=(trace.events[0], *trace.events)))


@pytest.mark.parametrize("policy", ["coop", "dtr", "lru"])
@pytest.mark.parametrize("budget", ["80%", "50%"])
def test_no_two_blocks_of_a_simulation_share_a_byte(policy: str, budget: str) -> None:
    graph = graph_from_spec("generate:transformer?layers=3")
    result = api.simulate(graph, budget=budget, policy=policy, records_trace=True)
    assert result.trace is not None
    report = report_of_simulation(result)
    assert report.placed
    for one, other in combinations(report.placed, 2):
        if one.interval.overlaps(other.interval):
            low, high = sorted((one, other), key=lambda span: span.offset or 0)
            assert (low.offset or 0) + low.size_bytes <= (high.offset or 0)
    assert max(step.held_bytes for step in report.steps) <= check_trace(result.trace).peak_bytes
    assert report.footprint_bytes <= result.budget_bytes
    assert report.plain_peak_bytes == result.plain_peak_bytes


@pytest.mark.parametrize(
    ("policy", "budget", "has_slid", "about"),
    [
        ("coop", "40%", True, "recomputed op time and slid bytes"),
        ("dtr", "40%", False, "recomputed op time"),
        ("lru", "30%", False, "recomputed op time"),  # gives up
    ],
)
def test_the_duration_of_a_simulation_is_its_overhead(policy: str, budget: str, about: str, *, has_slid: bool) -> None:
    graph = graph_from_spec("generate:transformer?layers=3")
    result = api.simulate(graph, budget=budget, policy=policy, records_trace=True)
    report = report_of_simulation(result)
    (duration,) = [fact for fact in report.headlines if fact.name == "duration"]
    assert duration == Fact("duration", f"+{100 * (result.overhead - 1):.2f} %", about)
    (recomputed,) = [fact.text for fact in report.facts if fact.name == "recomputed op time"]
    recomputed_ratio = sum(step.duration for step in report.steps if step.is_recompute) / sum(
        step.duration for step in report.steps if not step.is_recompute
    )
    assert recomputed == f"+{100 * recomputed_ratio:.3f} %"
    assert (result.overhead - 1 > recomputed_ratio + 0.01) is has_slid


def test_a_simulation_that_did_not_complete_says_so() -> None:
    graph = graph_from_spec("generate:transformer?layers=3")
    result = api.simulate(graph, budget="3%", records_trace=True)
    assert not result.completed
    report = report_of_simulation(result)
    assert report.notes[0].startswith(f"The run did not complete: {result.reason}. ")
    assert report.facts[0] == Fact("completed", "no", result.reason)


def test_a_simulation_without_a_trace_is_our_mistake() -> None:
    result = api.simulate(graph_from_spec("generate:transformer?layers=1"), budget="100%")
    with pytest.raises(ValueError, match="kept no trace"):
        report_of_simulation(result)
