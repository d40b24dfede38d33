"""How the edge benchmarks plan: for the smallest footprint, on one thread, so that plans repeat."""

from __future__ import annotations

from lowtide import api
from lowtide.emit.means import PlanSmallest
from lowtide.ir import Graph, PlanResult
from lowtide.planning.addresses import AUTO_LAYOUT


def smallest_planner(*, seconds: float, seed: int, layout: str | None = AUTO_LAYOUT) -> PlanSmallest:
    """What plans for the smallest footprint, or peak where the runtime takes no addresses.

    Args:
        seconds: Time limit of each plan.
        seed: Of the planner.
        layout: Who gives addresses, or None.
    """

    def plan_smallest(graph: Graph, *, keep_order: bool, max_copies: int | None) -> PlanResult:
        return api.plan(
            graph,
            budget="min",
            layout=layout,
            keep_order=keep_order,
            max_copies=max_copies,
            bound=False,
            threads=1,
            time_limit_seconds=seconds,
            seed=seed,
        )

    return plan_smallest
