"""The report of a plan, compared with a drawing (drawings.py)."""

from __future__ import annotations

from drawings import graph_named, plan_of

from lowtide import api
from lowtide.ir import Graph, Interval
from lowtide.referee import VerifiedPlan
from lowtide.reports.plan_report import report_of_plan
from lowtide.reports.report import Fact, Report, Span, SpanKind, largest_at, percent_change


def test_curves_are_those_of_the_drawing(report: Report) -> None:
    assert [step.held_bytes for step in report.steps] == [9, 17, 9, 17, 9, 17, 16, 17, 9, 1]
    assert [step.plain_bytes for step in report.steps] == [9, 16, 16, 24, 24, 24, 24, 17, 17, 17]
    assert (report.peak_bytes, report.peak_step, report.plain_peak_bytes, report.budget_bytes) == (17, 1, 24, 18)


def test_steps_have_names_and_times(report: Report) -> None:
    names = ["a", "b", "evict va", "c", "evict vb", "a", "evict x", "d", "evict va", "evict vc"]
    assert [step.name for step in report.steps] == names
    assert [index for index, step in enumerate(report.steps) if step.is_recompute] == [5]
    assert report.start_by_step == (0, 1, 2, 2, 3, 3, 4, 4, 5, 5, 5)


def test_spans_are_those_of_the_drawing(report: Report) -> None:
    assert report.spans == (
        Span("x", 0, Interval(0, 6), 1, SpanKind.INPUT, "user input", offset=0),
        Span("va", 0, Interval(0, 2), 8, SpanKind.FIRST, "op", "encoder.a", 1),
        Span("vb", 0, Interval(1, 4), 8, SpanKind.FIRST, "op", offset=9),
        Span("vc", 0, Interval(3, 9), 8, SpanKind.FIRST, "op", offset=1),
        Span("va", 1, Interval(5, 8), 8, SpanKind.RECOMPUTED, "op", "encoder.a", 9),
        Span("vd", 0, Interval(7, 10), 1, SpanKind.FIRST, "op", offset=0),
    )
    assert report.footprint_bytes == 17


def test_spans_of_a_step_add_up_to_what_is_held(report: Report) -> None:
    for index, step in enumerate(report.steps):
        assert sum(span.size_bytes for span in report.spans if index in span.interval) == step.held_bytes


def test_the_largest_come_first(report: Report) -> None:
    assert [span.name for span in largest_at(report.spans, 1)] == ["va", "vb", "x"]
    assert [span.name for span in largest_at(report.spans, 1, number=2)] == ["va", "vb"]
    assert largest_at(report.spans, None) == ()


def test_headlines_say_what_was_won_and_lost(report: Report) -> None:
    assert report.headlines == (
        Fact("plain peak", "24 B"),
        Fact("planned peak", "17 B", "−29.2 %"),
        Fact("budget", "18 B", "75.0 % of plain"),
        Fact("duration", "+25.00 %", "at least +25.00 %"),
        Fact("recomputations", "1"),
    )


def test_facts_hold_bound_and_fragmentation(report: Report) -> None:
    facts = {fact.name: (fact.text, fact.detail) for fact in report.facts}
    assert facts["footprint"] == ("17 B", "0.00 % fragmentation")
    assert facts["gap"] == ("0.000 points", "")
    assert facts["planned duration"] == ("5 units", "")
    assert facts["status"] == ("feasible", "in the given order")


def test_a_plan_without_addresses_says_so() -> None:
    graph = graph_named()
    report = report_of_plan(graph, api.verify(graph, plan_of(graph, has_layout=False)))
    assert report.placed == ()
    assert report.notes == ("The plan has no layout: its budget is for live bytes, so there are no addresses to show.",)


def test_a_graph_without_nodes_has_a_report() -> None:
    graph = Graph(name="", inputs=(), nodes=(), outputs=(), order=())
    result = api.plan(graph, budget=1024)
    report = report_of_plan(graph, api.require_plan(result, graph))
    assert (report.title, report.steps, report.spans, report.peak_step) == ("unnamed graph", (), (), None)


def test_a_percentage_has_a_sign_or_is_empty(verified: tuple[Graph, VerifiedPlan]) -> None:
    assert [percent_change(3, 2), percent_change(1, 2), percent_change(1, 0)] == ["+50.0 %", "−50.0 %", ""]
