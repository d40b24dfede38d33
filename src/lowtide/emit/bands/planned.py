"""Plans for a model in bands: the order and recomputation that lower it further, within the time that bands leave."""

from __future__ import annotations

import math

from lowtide.emit.bands.search import BandChoice, BandOptions
from lowtide.emit.means import PlanSmallest, footprint_of
from lowtide.ir import Graph, PlanResult

__all__ = ["plan_bands"]

_PERSISTENT_BYTES_PER_OPERATOR = 256


def plan_bands(
    graph: Graph,
    choice: BandChoice,
    plan_smallest: PlanSmallest,
    *,
    most_added_time_percent: float = BandOptions().most_added_time_percent,
) -> PlanResult:
    """Plan a model with bands: addresses alone, with another order, with recomputation; the least memory wins.

    Recomputed operators count with the room that further operators take, and only where bands and they together stay
    within the allowed time.

    Args:
        graph: Of the model with bands.
        choice: Which bands it has.
        plan_smallest: Plans for the smallest footprint.
        most_added_time_percent: Estimated, of the time without bands.
    """
    results = [plan_smallest(graph, keep_order=keep_order, max_copies=1) for keep_order in (True, False)]
    again = plan_smallest(graph, keep_order=False, max_copies=None)
    if again.plan is not None:
        factor = (1 + choice.added_time_percent / 100) * (1 + again.plan.tdi_percent / 100)
        if factor <= 1 + most_added_time_percent / 100:
            results.append(again)
    return min(results, key=_needed_bytes)


def _needed_bytes(result: PlanResult) -> float:
    if result.plan is None:
        return math.inf
    return footprint_of(result) + _PERSISTENT_BYTES_PER_OPERATOR * result.num_recomputes
