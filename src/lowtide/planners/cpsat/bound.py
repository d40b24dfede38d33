"""What ``cpsat`` proves of a graph that it closes in seconds, whoever made the plan."""

from __future__ import annotations

from collections.abc import Callable

from lowtide.errors import InputError, MissingDependency
from lowtide.ir import Graph, Scope, Status
from lowtide.planners.bounds import Bound
from lowtide.planners.cpsat.planner import CpsatPlanner
from lowtide.planners.protocol import PlanRequest

__all__ = ["MAX_BOUND_NODES", "small_graph_bound"]

MAX_BOUND_NODES = 128
"""Most nodes of a graph that is worth a try: most layered ones of a hundred close within ten seconds."""


def small_graph_bound(
    graph: Graph,
    budget_bytes: int,
    *,
    time_limit_seconds: float,
    should_stop: Callable[[], bool] | None = None,
) -> Bound | None:
    """The bound on the duration of any plan of a small graph in its given order, exact where time allows.

    Unlike the relaxations of ``bounds`` it accounts for the memory at the moment of every recomputation.

    Args:
        graph: What is planned.
        budget_bytes: Most bytes resident at any step.
        time_limit_seconds: Wall-clock time.
        should_stop: Asked now and then; the best bound so far holds.

    Returns:
        The bound, or None for a graph of more than ``MAX_BOUND_NODES`` nodes, without time, without OR-Tools,
        and of durations so long that their sums leave 64 bits.
    """
    if time_limit_seconds <= 0 or len(graph.nodes) > MAX_BOUND_NODES:
        return None
    request = PlanRequest(
        graph, budget_bytes, scope=Scope(), time_limit_seconds=time_limit_seconds, should_stop=should_stop
    )
    try:
        proposal = CpsatPlanner().propose(request)
    except (MissingDependency, InputError):  # its durations are too long for the model
        return None
    if proposal.status is Status.INFEASIBLE:
        return Bound(graph.baseline_duration, Scope(), "cpsat", is_infeasible=True)
    duration = proposal.lower_bound_duration
    return None if duration is None else Bound(duration, Scope(), "cpsat")
