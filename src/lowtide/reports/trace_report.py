"""The report of a trace: of a simulation, of a run within a budget, or of a recording."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from lowtide.errors import FormatError
from lowtide.ir import Call, Mark, MarkKind, Memory, MemoryKind, Trace
from lowtide.ir.trace_sizes import LEAF_OP, memory_of_trace
from lowtide.referee import TraceFigures, check_trace
from lowtide.reports.report import Fact, Report, ReportStep, Span, percent_change
from lowtide.reports.trace_spans import spans_of_trace
from lowtide.simulator.result import Simulation
from lowtide.units import Bytes, format_bytes

__all__ = ["report_of_simulation", "report_of_trace"]

_DURATION = "duration"
_NO_BLOCKS = "The trace has no blocks (recorded without a budget, or by a policy blind to addresses): no addresses."
_NO_PLAIN = "The trace does not say how large every value is, so there is no plain curve."


def report_of_trace(trace: Trace, *, title: str = "", budget_bytes: Bytes | None = None) -> Report:
    """Make the report of a trace; its steps are the executed ops, leaves left out.

    Args:
        trace: What happened.
        title: What to call one without a name of its own.
        budget_bytes: What was allowed, where that is more than the trace's capacity.

    Raises:
        TraceRejected: The trace breaks a rule.
        FormatError: A trace without blocks that lacks the size of a value.
    """
    figures = check_trace(trace)
    spans = spans_of_trace(trace)
    is_recording = trace.capacity_bytes is None and not figures.num_evictions and not figures.num_recomputes
    plain = () if is_recording else _plain_memory(trace)
    calls = [event for event in trace.events if isinstance(event, Call) and event.op != LEAF_OP]
    held = _held_memory(spans, len(calls))
    notes = [] if any(span.offset is not None for span in spans) else [_NO_BLOCKS]
    report = Report(
        title=_name_of(trace) or title or "trace",
        subtitle=_subtitle(trace, len(calls)),
        steps=tuple(_steps(calls, held, plain)),
        step_name="op",
        held_name="held",
        spans=spans,
        budget_bytes=trace.capacity_bytes if budget_bytes is None else budget_bytes,
        budget_name="capacity" if budget_bytes is None else "budget",
        duration_unit="unit" if trace.meta.get("duration_unit") == "unit" else "ns",
        headlines=(),
        facts=(),
        notes=tuple(notes if plain or is_recording else [*notes, _NO_PLAIN]),
    )
    headlines = _headlines(report, trace, figures, calls)
    return replace(report, headlines=headlines, facts=_facts(report, trace, figures, calls))


def report_of_simulation(simulation: Simulation, *, title: str = "") -> Report:
    """Make the report of a simulation that recorded its trace.

    Args:
        simulation: With a trace; one that did not complete is shown as far as it got.
        title: What to call one whose trace has no name of its own.

    Raises:
        ValueError: It has no trace.
    """
    if simulation.trace is None:
        raise ValueError("the simulation kept no trace: simulate with records_trace=True")
    report = report_of_trace(simulation.trace, title=title, budget_bytes=simulation.budget_bytes)
    completed = Fact("completed", "yes") if simulation.completed else Fact("completed", "no", simulation.reason)
    searches = f"{simulation.num_searches:,}"
    share = f"{100 * simulation.fragmentation:.2f} %"
    facts = (
        completed,
        *report.facts,
        Fact("overhead", f"{simulation.overhead:.4f}", "time by that without eviction, slid bytes included"),
        Fact("searches", searches, f"{simulation.mean_search_us:.1f} µs each"),
        Fact("fragmentation", share, "of the arena free after a search, on average"),
        Fact("moved", format_bytes(simulation.bytes_moved), f"in {simulation.num_compactions:,} compactions"),
        Fact("must stay", format_bytes(simulation.floor_bytes), "bytes that no policy can evict"),
    )
    subtitle = f"simulation of {len(report.steps):,} ops under policy {simulation.policy}"
    notes = report.notes
    if not simulation.completed:
        notes = (f"The run did not complete: {simulation.reason}. Shown is what happened until then.", *notes)
    headlines = tuple(_duration_of(simulation) if fact.name == _DURATION else fact for fact in report.headlines)
    return replace(report, subtitle=subtitle, headlines=headlines, facts=facts, notes=notes)


def _duration_of(simulation: Simulation) -> Fact:
    """What the simulation's overhead is beyond plain; a trace does not say what sliding cost."""
    slid = " and slid bytes" if simulation.bytes_moved else ""
    return Fact(_DURATION, f"+{100 * (simulation.overhead - 1):.2f} %", f"recomputed op time{slid}")


def _name_of(trace: Trace) -> str:
    """Its own name, where it has one that can be read."""
    name = trace.meta.get("name")
    return name if isinstance(name, str) else ""


def _plain_memory(trace: Trace) -> tuple[Bytes, ...]:
    """Bytes that the program itself holds at each op; empty where sizes are missing."""
    try:
        memory = memory_of_trace(_without_outside(trace)).memory_bytes
    except FormatError:
        return ()
    pairs = zip(trace.events, memory, strict=True)
    return tuple(size for event, size in pairs if isinstance(event, Call) and event.op != LEAF_OP)


def _without_outside(trace: Trace) -> Trace:
    """Leaves that are never placed lie outside the arena: in a trace with blocks they count for nothing."""
    placed = {event.id for event in trace.events if isinstance(event, Memory) and event.event is MemoryKind.ALLOC}
    if not placed:
        return trace
    events = []
    for event in trace.events:
        if isinstance(event, Call) and event.op == LEAF_OP and placed.isdisjoint(event.outputs):
            event = replace(event, meta={**event.meta, "size_bytes": dict.fromkeys(event.outputs, 0)})
        events.append(event)
    return replace(trace, events=tuple(events))


def _held_memory(spans: Sequence[Span], num_steps: int) -> tuple[Bytes, ...]:
    changes = [0] * (num_steps + 1)
    for span in spans:
        changes[span.interval.start] += span.size_bytes
        changes[span.interval.end] -= span.size_bytes
    return tuple(accumulate(changes[:num_steps]))


def _steps(calls: Sequence[Call], held: Sequence[Bytes], plain: Sequence[Bytes]) -> Iterator[ReportStep]:
    for index, call in enumerate(calls):
        node = call.meta.get("node")
        yield ReportStep(
            name=node if isinstance(node, str) and node else call.op,
            duration=call.cost,
            held_bytes=held[index],
            plain_bytes=plain[index] if plain else None,
            is_recompute=call.recompute,
        )


def _subtitle(trace: Trace, num_calls: int) -> str:
    if trace.policy is None:
        return f"trace of {num_calls:,} ops, recorded without a budget"
    return f"trace of {num_calls:,} ops under policy {trace.policy}"


def _recomputed_percent(calls: Sequence[Call]) -> float | None:
    plain = sum(call.cost for call in calls if not call.recompute)
    return 100 * sum(call.cost for call in calls if call.recompute) / plain if plain else None


def _has_moves(trace: Trace) -> bool:
    return any(isinstance(event, Mark) and event.event is MarkKind.MOVE for event in trace.events)


def _headlines(report: Report, trace: Trace, figures: TraceFigures, calls: Sequence[Call]) -> tuple[Fact, ...]:
    plain_bytes = report.plain_peak_bytes
    headlines = [] if plain_bytes is None else [Fact("plain peak", format_bytes(plain_bytes))]
    change = percent_change(report.peak_bytes, plain_bytes) if plain_bytes else ""
    headlines.append(Fact("held at the peak", format_bytes(report.peak_bytes), change))
    if report.budget_bytes is not None:
        share = f"{100 * report.budget_bytes / plain_bytes:.1f} % of plain" if plain_bytes else ""
        headlines.append(Fact(report.budget_name, format_bytes(report.budget_bytes), share))
    recomputed = _recomputed_percent(calls)
    if recomputed is not None:
        slid = ", sliding left out" if _has_moves(trace) else ""
        headlines.append(Fact(_DURATION, f"+{recomputed:.2f} %", f"recomputed op time{slid}"))
    headlines.append(Fact("recomputations", f"{figures.num_recomputes:,}", f"{figures.num_evictions:,} evictions"))
    return tuple(headlines)


def _facts(report: Report, trace: Trace, figures: TraceFigures, calls: Sequence[Call]) -> tuple[Fact, ...]:
    facts = [
        Fact("policy", trace.policy or "none", f"seed {trace.seed}"),
        Fact("costs", trace.cost_model or "unknown"),
    ]
    if trace.capacity_bytes is not None:
        facts.append(Fact("capacity", format_bytes(trace.capacity_bytes), f"{trace.capacity_bytes:,} bytes"))
    if report.plain_peak_bytes is not None:
        plain_bytes = report.plain_peak_bytes
        facts.append(Fact("plain peak", format_bytes(plain_bytes), f"{plain_bytes:,} bytes"))
    facts.append(Fact("held at the peak", format_bytes(report.peak_bytes), f"{report.peak_bytes:,} bytes"))
    if report.placed:
        facts.append(Fact("footprint", format_bytes(figures.footprint_bytes), f"{figures.footprint_bytes:,} bytes"))
    recomputed = _recomputed_percent(calls)
    return (
        *facts,
        Fact("recomputed op time", "unknown" if recomputed is None else f"+{recomputed:.3f} %"),
        Fact("ops", f"{len(calls):,}", "recomputations included"),
        Fact("recomputations", f"{figures.num_recomputes:,}"),
        Fact("evictions", f"{figures.num_evictions:,}"),
    )
