"""How the edge benchmarks plan: for the smallest footprint, on one thread, so that plans repeat."""

from __future__ import annotations

from lowtide.cli.tflite import plan_smallest_within
from lowtide.emit.means import PlanSmallest
from lowtide.planning.addresses import AUTO_LAYOUT


def smallest_planner(*, seconds: float, seed: int, layout: str | None = AUTO_LAYOUT) -> PlanSmallest:
    """What plans for the smallest footprint, or peak where the runtime takes no addresses.

    Args:
        seconds: Time limit of each plan.
        seed: Of the planner.
        layout: Who gives addresses, or None.
    """
    return plan_smallest_within(seconds, seed=seed, threads=1, layout=layout)
