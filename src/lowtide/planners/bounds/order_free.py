"""A bound for every order of first executions, along a chain of nodes that all orders have in common."""

from __future__ import annotations

from lowtide.ir import Graph, Scope
from lowtide.planners.bounds.bound import Bound
from lowtide.planners.bounds.chain import chain_stages
from lowtide.planners.bounds.rounds import relax
from lowtide.planners.bounds.solution import AbsenceOptions
from lowtide.planners.bounds.working_set import largest_working_set

__all__ = ["order_free_bound"]


def order_free_bound(
    graph: Graph, budget_bytes: int, *, are_whole: bool = True, time_limit_seconds: float | None = None
) -> Bound:
    """Bound the duration of any plan of a graph, whatever the order of its first executions.

    Its scope is ``Scope(order="free")``. It is at most the bound for the given order, and where the graph has no long
    chain of full stages, as in random layered graphs, often no more than the baseline's duration.

    Args:
        graph: What is planned.
        budget_bytes: Most bytes resident at any step.
        are_whole: Whether to end with whole variables (MIP, tighter) or without (LP, faster).
        time_limit_seconds: Wall-clock time, or None; the best bound reached by then holds.
    """
    scope = Scope(order="free")
    if largest_working_set(graph).size_bytes > budget_bytes:
        return Bound(graph.baseline_duration, scope, "working-set", is_infeasible=True)
    options = AbsenceOptions(are_whole=are_whole, time_limit_seconds=time_limit_seconds)
    stages = chain_stages(graph, budget_bytes)
    return relax(stages, budget_bytes, options=options, name="order-free", scope=scope).bound
