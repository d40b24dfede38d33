"""A result's plan, or the error that says why it has none."""

from __future__ import annotations

from lowtide.errors import InfeasibleBudget, NoPlanFound
from lowtide.ir import Graph, PlanResult, Status
from lowtide.planning.words import explain_missing_plan
from lowtide.referee import VerifiedPlan, check_plan

__all__ = ["require_plan"]


def require_plan(result: PlanResult, graph: Graph) -> VerifiedPlan:
    """Take the plan of a result, or raise why there is none.

    Args:
        result: What ``plan`` returned.
        graph: The graph it was planned for.

    Returns:
        The plan, checked once more.

    Raises:
        InfeasibleBudget: No plan within the scope fits, proven.
        NoPlanFound: None was found.
        PlanRejected: The result is not one for this graph.
    """
    if result.plan is not None:
        return check_plan(graph, result.plan)
    kind = InfeasibleBudget if result.status is Status.INFEASIBLE else NoPlanFound
    raise kind(
        explain_missing_plan(result),
        budget_bytes=result.budget_bytes,
        bottleneck_node=result.bottleneck_node,
        largest_working_set_bytes=result.largest_working_set_bytes,
        smallest_known_peak_bytes=result.smallest_known_peak_bytes,
    )
