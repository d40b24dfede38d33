"""Where the memory of a graph goes, and how far recomputation lowers it at which cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from lowtide.ir import Compute, Graph, Input, Lifespan, Status, Step
from lowtide.ir.plan import increase_percent
from lowtide.ir.sequence import baseline_steps
from lowtide.planning.facts import read_budget
from lowtide.planning.search import Attempt, Search
from lowtide.referee import Replay

__all__ = ["Analysis", "AnalysisPoint", "Holding", "analyze_graph", "holdings_at_peak"]

_PERCENTS = (90, 80, 70, 60, 50, 40, 30, 20, 10)
_NUM_HOLDINGS = 8
_SECOND_SHARE = 0.5  # of the time that is left, for a budget to which its first share was not enough


@dataclass(frozen=True, slots=True)
class Holding:
    """Bytes that something holds at the peak of the given order.

    Attributes:
        name: A value, or the node whose workspace it is.
        node: The node that made it, or None for a graph input.
        op: That node's op, or the kind of the graph input.
        size_bytes: Bytes.
        is_workspace: Whether it is a node's workspace.
        module: Path of the module that the node comes from, where the graph knows it; else empty.
    """

    name: str
    node: str | None
    op: str
    size_bytes: int
    is_workspace: bool
    module: str = ""


@dataclass(frozen=True, slots=True)
class AnalysisPoint:
    """What one budget costs.

    Attributes:
        budget_percent: Of the baseline peak.
        budget_bytes: The same in bytes.
        status: OPTIMAL or FEASIBLE with a plan; INFEASIBLE: proven, none; TIMEOUT: none found.
        peak_bytes: Peak of the plan, or None.
        tdi_percent: Its total duration increase, or None.
    """

    budget_percent: int
    budget_bytes: int
    status: Status
    peak_bytes: int | None
    tdi_percent: float | None


@dataclass(frozen=True, slots=True)
class Analysis:
    """Where the memory of a graph goes, and how far recomputation can lower it.

    Attributes:
        graph: Name of the graph.
        planner: Which planner tried the budgets.
        num_nodes: Nodes of the graph.
        baseline_duration: Every node once.
        duration_unit: ``"ns"`` or ``"unit"``.
        baseline_peak_bytes: Peak of the given order without recomputation.
        peak_node: The node during which that peak occurs first.
        largest_working_set_bytes: No plan can be below this.
        bottleneck_node: The node that needs it.
        smallest_known_peak_bytes: The smallest budget that was asked for and got a plan.
        holdings: What is resident at the baseline peak, largest first, at most eight.
        points: Budgets tried, falling, down to the first that failed; a plan for less is one for more, too.
    """

    graph: str
    planner: str
    num_nodes: int
    baseline_duration: int
    duration_unit: str
    baseline_peak_bytes: int
    peak_node: str | None
    largest_working_set_bytes: int
    bottleneck_node: str | None
    smallest_known_peak_bytes: int
    holdings: tuple[Holding, ...]
    points: tuple[AnalysisPoint, ...]

    @property
    def is_node_bound(self) -> bool:
        """Whether one node alone needs the whole peak, so that neither order nor recomputation can lower it."""
        return self.largest_working_set_bytes >= self.baseline_peak_bytes

    def as_dict(self) -> dict[str, Any]:
        """The figures as JSON values, under the names of the attributes."""
        document = asdict(self)
        document["points"] = [{**point, "status": str(point["status"])} for point in document["points"]]
        return {**document, "is_node_bound": self.is_node_bound}


def analyze_graph(search: Search, *, on_point: Callable[[AnalysisPoint], None] | None = None) -> Analysis:
    """Try falling budgets until one fails, each with an equal share of the time that is left, then how low it goes.

    Args:
        search: The graph and the planner; its time limit is that of all budgets together.
        on_point: Told of every budget once it has been tried.
    """
    facts = search.facts
    graph, plain = facts.graph, facts.baseline
    attempts: dict[int, Attempt] = {}
    for index, percent in enumerate(_PERCENTS):
        if search.is_over or facts.largest_working_set_bytes >= plain.peak_bytes:
            break
        budget_bytes = read_budget(facts, f"{percent}%")
        attempt = search.with_share(1 / (len(_PERCENTS) + 1 - index)).attempt(budget_bytes)  # the last: how low it goes
        if attempt.status is Status.TIMEOUT and search.request.time_limit_seconds is not None and not search.is_over:
            attempt = search.with_share(_SECOND_SHARE).attempt(budget_bytes)
        attempts[percent] = attempt
        if on_point is not None:
            on_point(_point_of(percent, attempt, plain.duration))
        if not attempt.fits:
            break
    smallest_bytes, smallest = _smallest_budget(search, list(attempts.values()))
    return Analysis(
        graph=graph.name,
        planner=search.planner.name,
        num_nodes=len(graph.nodes),
        baseline_duration=plain.duration,
        duration_unit=graph.duration_unit,
        baseline_peak_bytes=plain.peak_bytes,
        peak_node=_peak_node(baseline_steps(graph), plain),
        largest_working_set_bytes=facts.largest_working_set_bytes,
        bottleneck_node=facts.bottleneck_node,
        smallest_known_peak_bytes=smallest_bytes,
        holdings=holdings_at_peak(graph, plain)[:_NUM_HOLDINGS],
        points=_points_of(attempts, smallest, plain.duration),
    )


def _smallest_budget(search: Search, attempts: Sequence[Attempt]) -> tuple[int, Attempt | None]:
    """The smallest budget that got a plan, or the plain peak; and the plan, where none of the attempts is it."""
    plain_bytes = search.facts.baseline.peak_bytes
    if not attempts:
        return plain_bytes, None
    met_bytes = min([plain_bytes, *(attempt.needed_bytes for attempt in attempts)])
    known_bytes = min([plain_bytes, *(attempt.needed_bytes for attempt in attempts if attempt.fits)])
    return search.smallest_budget(met_bytes, known_bytes=known_bytes)


def _points_of(
    attempts: Mapping[int, Attempt], smallest: Attempt | None, baseline_duration: int
) -> tuple[AnalysisPoint, ...]:
    """By budget, falling; where a plan for less takes less time, or is the only one, that one."""
    points: list[AnalysisPoint] = []
    best = smallest  # of the budgets below
    for percent, attempt in reversed(list(attempts.items())):
        if best is not None and best.needed_bytes <= attempt.budget_bytes:
            is_shorter = best.replayed.duration < attempt.replayed.duration
            if not attempt.fits or is_shorter:
                attempt = replace(best, budget_bytes=attempt.budget_bytes, status=Status.FEASIBLE)
        points.append(_point_of(percent, attempt, baseline_duration))
        best = attempt if attempt.fits else best
    return tuple(reversed(points))


def holdings_at_peak(graph: Graph, replayed: Replay) -> tuple[Holding, ...]:
    """What is resident at the peak of a plan, largest first.

    Args:
        graph: What is executed.
        replayed: The plan as the referee replayed it, e.g. ``VerifiedPlan.replay``.
    """
    if replayed.peak_step is None:
        return ()
    held = [span for span in replayed.lifespans if replayed.peak_step in span.interval]
    held.sort(key=lambda span: (-span.size_bytes, span.name, span.occurrence))
    return tuple(_holding_of(graph, span) for span in held)


def _peak_node(steps: Sequence[Step], replayed: Replay) -> str | None:
    step = None if replayed.peak_step is None else steps[replayed.peak_step]
    return step.node if isinstance(step, Compute) else None


def _holding_of(graph: Graph, span: Lifespan) -> Holding:
    value = None if span.is_workspace else graph.value_by_name[span.name]
    if isinstance(value, Input):
        return Holding(span.name, None, str(value.kind), span.size_bytes, is_workspace=False)
    node = graph.node_by_name[span.name] if value is None else graph.producer_by_value[span.name]
    module = node.meta.get("module")
    return Holding(
        span.name,
        node.name,
        node.op,
        span.size_bytes,
        is_workspace=span.is_workspace,
        module=module if isinstance(module, str) else "",
    )


def _point_of(percent: int, attempt: Attempt, baseline_duration: int) -> AnalysisPoint:
    replayed = attempt.replayed
    return AnalysisPoint(
        budget_percent=percent,
        budget_bytes=attempt.budget_bytes,
        status=attempt.status,
        peak_bytes=replayed.peak_bytes if attempt.fits else None,
        tdi_percent=increase_percent(replayed.duration, baseline_duration) if attempt.fits else None,
    )
