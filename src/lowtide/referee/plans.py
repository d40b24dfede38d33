"""Checks a plan: every figure in it is a claim, recomputed here and compared."""

from __future__ import annotations

from dataclasses import InitVar, dataclass

from lowtide.errors import PlanRejected
from lowtide.ir import Compute, Graph, Plan, Status
from lowtide.ir.serde import graph_sha256
from lowtide.referee.layouts import check_layout
from lowtide.referee.replay import Replay, replay

__all__ = ["VerifiedPlan", "check_plan"]

_TOKEN = object()


@dataclass(frozen=True)
class VerifiedPlan:
    """A plan that the referee accepted; only :func:`check_plan` makes one.

    Attributes:
        graph: The graph that the steps are for: the plan's own, rewritten one if it has one, else the original.
        plan: The plan.
        replay: Its figures, recomputed.
    """

    graph: Graph
    plan: Plan
    replay: Replay
    token: InitVar[object] = None

    def __post_init__(self, token: object) -> None:
        if token is not _TOKEN:
            raise TypeError("a VerifiedPlan comes from lowtide.referee.check_plan only")


def check_plan(graph: Graph, plan: Plan, *, budget_bytes: int | None = None, keep_order: bool = False) -> VerifiedPlan:
    """Check a plan against its graph from scratch.

    Args:
        graph: The graph that was planned. Where the plan holds a rewritten graph, steps, durations and layout are
            checked against that one; that both compute the same is not checked here.
        plan: The plan with its claims.
        budget_bytes: Bytes allowed, instead of the plan's own budget. Applies to the footprint where the plan has a
            layout, else to the peak.
        keep_order: Whether first executions must come in the graph's given order even if the plan's scope is free.

    Returns:
        The plan, verified.

    Raises:
        PlanRejected: The first rule that is broken, with the step where there is one.
        LayoutRejected: The first rule of layouts that is broken.
    """
    found = graph_sha256(graph)
    if plan.graph_sha256 != found:
        raise PlanRejected(
            "graph", f"the plan is for graph {plan.graph_sha256[:12]!r}, this one is {found[:12]!r}: plan this one"
        )
    planned = graph if plan.graph is None else plan.graph
    figures = replay(planned, plan.steps, durations=plan.durations)
    _check_figures(plan, figures)
    _check_scope(planned, plan, figures, keep_order=keep_order)
    _check_claims(plan)
    _check_budget(planned, plan, plan.budget_bytes if budget_bytes is None else budget_bytes)
    return VerifiedPlan(planned, plan, figures, token=_TOKEN)


def _check_figures(plan: Plan, figures: Replay) -> None:
    _compare("peak_bytes", plan.peak_bytes, figures.peak_bytes)
    _compare("duration", plan.duration, figures.duration)
    _compare("baseline_duration", plan.baseline_duration, sum(plan.durations))


def _compare(figure: str, claimed: int | None, found: int | None) -> None:
    if claimed != found:
        raise PlanRejected(figure.replace("_", "-"), f"the plan says {figure} {claimed}, but it is {found}")


def _check_scope(graph: Graph, plan: Plan, figures: Replay, *, keep_order: bool) -> None:
    if plan.scope.order not in ("fixed", "free", "staged"):
        raise PlanRejected("scope", f"scope.order {plan.scope.order!r:.40} must be 'fixed', 'free' or 'staged'")
    if keep_order or plan.scope.order != "free":
        for given, found in zip(graph.order, figures.first_executions, strict=True):
            if given != found:
                raise PlanRejected("order", f"node {found!r} is first executed where the given order has {given!r}")
    if plan.scope.order == "staged":
        _check_stages(graph, plan)
    most = plan.scope.max_copies
    for name, count in figures.num_copies_by_node.items():
        if most is not None and count > most:
            raise PlanRejected("max-copies", f"node {name!r} is executed {count} times, the scope allows {most}")


def _check_stages(graph: Graph, plan: Plan) -> None:
    """Between two first executions nodes run again once each, in the given order."""
    position_by_node = {name: position for position, name in enumerate(graph.order)}
    executed: set[str] = set()
    before: str | None = None  # the node executed again just before, in this stage
    for index, step in enumerate(plan.steps):
        if not isinstance(step, Compute):
            continue
        if step.node not in executed:
            executed.add(step.node)
            before = None
            continue
        if before is not None and position_by_node[step.node] <= position_by_node[before]:
            raise PlanRejected(
                "stages",
                f"node {step.node!r} runs again after {before!r} in one stage: in the scope 'staged' each does once, "
                "in the given order",
                step=index,
            )
        before = step.node


def _check_claims(plan: Plan) -> None:
    bound = plan.lower_bound_duration
    if bound is not None and bound > plan.duration:
        raise PlanRejected("lower-bound", f"lower bound {bound} is above the plan's own duration {plan.duration}")
    if plan.status not in (Status.FEASIBLE, Status.OPTIMAL):
        raise PlanRejected("status", f"status {str(plan.status)!r:.40} of a plan must be 'feasible' or 'optimal'")
    if plan.status is Status.OPTIMAL and bound != plan.duration:
        raise PlanRejected(
            "status", f"an optimal plan of duration {plan.duration} needs that lower bound, but it has {bound}"
        )
    for incumbent in plan.incumbents:
        if incumbent.lower_bound_duration is not None and incumbent.lower_bound_duration > plan.duration:
            raise PlanRejected(
                "incumbents",
                f"an incumbent's bound {incumbent.lower_bound_duration} is above the plan's duration {plan.duration}",
            )
        if bound is not None and incumbent.duration is not None and incumbent.duration < bound:
            raise PlanRejected("incumbents", f"an incumbent's duration {incumbent.duration} is below the bound {bound}")


def _check_budget(graph: Graph, plan: Plan, budget_bytes: int) -> None:
    footprint_bytes = None
    if plan.layout is not None:
        footprint_bytes = check_layout(graph, plan.steps, plan.layout).footprint_bytes
    _compare("footprint_bytes", plan.footprint_bytes, footprint_bytes)
    name, needed_bytes = ("peak", plan.peak_bytes) if footprint_bytes is None else ("footprint", footprint_bytes)
    if needed_bytes > budget_bytes:
        raise PlanRejected("budget", f"{name} {needed_bytes} bytes exceeds the budget {budget_bytes} bytes")
