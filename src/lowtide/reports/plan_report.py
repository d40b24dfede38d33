"""The report of a plan.

Plain memory is drawn at the plan's steps: the k-th node of the given order stands where the plan executes its k-th new
node, and lasts until the next one. So both curves run through the same program, and the plan's recomputations widen
both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from lowtide.errors import PlanRejected
from lowtide.ir import Compute, Graph, Input, Lifespan, Plan, Step
from lowtide.ir.sequence import baseline_steps
from lowtide.planning.words import describe_scope
from lowtide.referee import VerifiedPlan, baseline
from lowtide.reports.report import Fact, Report, ReportStep, Span, SpanKind, percent_change
from lowtide.units import Bytes, format_bytes

__all__ = ["report_of_plan"]

_NO_PLAIN = "The given order cannot be carried out without recomputation, so there is no plain curve."
_IN_BANDS = "Plain memory is that of the model without row bands; durations, TDI and bound are of the model with them."
_NO_LAYOUT = "The plan has no layout: its budget is for live bytes, so there are no addresses to show."


def report_of_plan(graph: Graph, verified: VerifiedPlan) -> Report:
    """Make the report of a plan.

    Args:
        graph: The graph that was asked to be planned; the plain curve is its. The plan may be of it in row bands.
        verified: The plan, as ``lowtide.verify`` returns it.
    """
    plan, replayed = verified.plan, verified.replay
    plain = _plain_memory(graph)
    notes = [] if plain else [_NO_PLAIN]
    notes += [] if plan.layout is not None else [_NO_LAYOUT]
    notes += [_IN_BANDS] if _has_bands(graph, verified) else []
    return Report(
        title=graph.name or "unnamed graph",
        subtitle=f"plan of {_describe_nodes(graph, verified)} by planner {plan.planner}",
        steps=tuple(_steps(verified, plain)),
        step_name="step",
        held_name="plan",
        spans=tuple(_spans(verified)),
        budget_bytes=plan.budget_bytes,
        budget_name="budget",
        duration_unit=graph.duration_unit,
        headlines=_headlines(plan, max(plain, default=None), replayed.num_recomputes),
        facts=_facts(graph, verified, max(plain, default=None)),
        notes=tuple(notes),
    )


def _has_bands(graph: Graph, verified: VerifiedPlan) -> bool:
    return len(verified.graph.nodes) != len(graph.nodes)


def _describe_nodes(graph: Graph, verified: VerifiedPlan) -> str:
    in_bands = f" ({len(verified.graph.nodes):,} in row bands)" if _has_bands(graph, verified) else ""
    return f"{len(graph.nodes):,} nodes{in_bands}"


def _plain_memory(graph: Graph) -> tuple[Bytes, ...]:
    """Bytes at each node of the given order; empty where it cannot be carried out."""
    try:
        replayed = baseline(graph)
    except PlanRejected:
        return ()
    steps = baseline_steps(graph)
    pairs = zip(steps, replayed.memory_bytes, strict=True)
    return tuple(memory_bytes for step, memory_bytes in pairs if isinstance(step, Compute))


def _steps(verified: VerifiedPlan, plain: tuple[Bytes, ...]) -> Iterator[ReportStep]:
    plan, graph = verified.plan, verified.graph
    durations = dict(zip((node.name for node in graph.nodes), plan.durations, strict=True))
    plain_by_step = _plain_by_step(plan.steps, plain)
    seen: set[str] = set()
    for index, (step, held_bytes) in enumerate(zip(plan.steps, verified.replay.memory_bytes, strict=True)):
        if not isinstance(step, Compute):
            yield ReportStep(f"evict {step.value}", 0, held_bytes, plain_by_step.get(index), is_recompute=False)
            continue
        node = graph.node_by_name[step.node]
        is_recompute = step.node in seen and not node.is_view
        seen.add(step.node)
        yield ReportStep(step.node, durations[step.node], held_bytes, plain_by_step.get(index), is_recompute)


def _plain_by_step(steps: tuple[Step, ...], plain: tuple[Bytes, ...]) -> Mapping[int, Bytes]:
    """Plain memory at each step from the first execution on; a rewritten graph's executions share it evenly."""
    seen: set[str] = set()
    firsts = []
    for index, step in enumerate(steps):
        if isinstance(step, Compute) and step.node not in seen:
            seen.add(step.node)
            firsts.append(index)
    if not plain or not firsts:
        return {}
    by_step: dict[int, Bytes] = {}
    for number, (start, end) in enumerate(pairwise([*firsts, len(steps)])):
        first = number * len(plain) // len(firsts)
        last = max(first + 1, (number + 1) * len(plain) // len(firsts))
        by_step.update(dict.fromkeys(range(start, end), max(plain[first:last])))
    return by_step


def _spans(verified: VerifiedPlan) -> Iterator[Span]:
    layout = verified.plan.layout
    placements = () if layout is None else layout.placements
    offsets = {(item.is_workspace, item.name, item.occurrence): item.offset for item in placements}
    for life in verified.replay.lifespans:
        if len(life.interval):
            maker, module = _maker(verified.graph, life)
            yield Span(
                name=life.name,
                occurrence=life.occurrence,
                interval=life.interval,
                size_bytes=life.size_bytes,
                kind=_kind(verified.graph, life),
                maker=maker,
                module=module,
                offset=offsets.get((life.is_workspace, life.name, life.occurrence)),
            )


def _kind(graph: Graph, life: Lifespan) -> SpanKind:
    if life.is_workspace:
        return SpanKind.WORKSPACE
    if life.name in graph.input_by_name:
        return SpanKind.INPUT
    return SpanKind.RECOMPUTED if life.occurrence else SpanKind.FIRST


def _maker(graph: Graph, life: Lifespan) -> tuple[str, str]:
    """The op (or the kind of input) that made a span, and its module's path."""
    if life.is_workspace:
        node = graph.node_by_name[life.name]
        return node.op, _text(node.meta.get("module"))
    value = graph.value_by_name[life.name]
    if isinstance(value, Input):
        return f"{value.kind} input", _text(value.meta.get("module"))
    node = graph.producer_by_value[life.name]
    return node.op, _text(node.meta.get("module"))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _headlines(plan: Plan, plain_peak_bytes: Bytes | None, num_recomputes: int) -> tuple[Fact, ...]:
    change = percent_change(plan.peak_bytes, plain_peak_bytes) if plain_peak_bytes else ""
    plain = Fact("plain peak", "unknown" if plain_peak_bytes is None else format_bytes(plain_peak_bytes))
    bound = plan.lower_bound_tdi_percent
    return (
        plain,
        Fact("planned peak", format_bytes(plan.peak_bytes), change),
        Fact("budget", format_bytes(plan.budget_bytes), _share(plan.budget_bytes, plain_peak_bytes)),
        Fact("duration", f"+{plan.tdi_percent:.2f} %", "TDI" if bound is None else f"at least +{bound:.2f} %"),
        Fact("recomputations", f"{num_recomputes:,}"),
    )


def _share(part: Bytes, whole: Bytes | None) -> str:
    return f"{100 * part / whole:.1f} % of plain" if whole else ""


def _facts(graph: Graph, verified: VerifiedPlan, plain_peak_bytes: Bytes | None) -> tuple[Fact, ...]:
    plan = verified.plan
    bound = plan.lower_bound_tdi_percent
    is_ns = graph.duration_unit == "ns"
    took = (f"{d / 1e6:.3f} ms" if is_ns else f"{d:,} units" for d in (plan.baseline_duration, plan.duration))
    plain_text, planned_text = took
    figures = [
        Fact(
            "graph",
            f"{graph.name or 'unnamed'}, {_describe_nodes(graph, verified)}",
            plan.graph_sha256[:12],
        ),
        Fact("planner", plan.planner, f"seed {plan.seed}, {plan.threads} threads"),
        Fact("status", str(plan.status), describe_scope(plan.scope)),
        Fact("budget", format_bytes(plan.budget_bytes), f"{plan.budget_bytes:,} bytes"),
    ]
    if plain_peak_bytes is not None:
        figures.append(Fact("plain peak", format_bytes(plain_peak_bytes), f"{plain_peak_bytes:,} bytes"))
    figures.append(Fact("planned peak", format_bytes(plan.peak_bytes), f"{plan.peak_bytes:,} bytes"))
    if plan.footprint_bytes is not None:
        lost_bytes = plan.footprint_bytes - plan.peak_bytes
        percent = 100 * lost_bytes / plan.footprint_bytes if plan.footprint_bytes else 0.0
        figures.append(Fact("footprint", format_bytes(plan.footprint_bytes), f"{percent:.2f} % fragmentation"))
    return (
        *figures,
        Fact("plain duration", plain_text, "in row bands" if _has_bands(graph, verified) else ""),
        Fact("planned duration", planned_text),
        Fact("TDI", f"{plan.tdi_percent:.3f} %"),
        Fact("bound on TDI", "none" if bound is None else f"{bound:.3f} %"),
        Fact("gap", "unknown" if bound is None else f"{plan.tdi_percent - bound:.3f} points"),
        Fact("steps", f"{len(plan.steps):,}"),
        Fact("recomputations", f"{verified.replay.num_recomputes:,}"),
    )
