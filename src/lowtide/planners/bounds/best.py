"""The best bound that fits the time: what ``lowtide plan`` prints."""

from __future__ import annotations

import logging
import time

from lowtide.ir import Graph, Scope
from lowtide.planners.bounds.absence import absence_bound, mean_absences
from lowtide.planners.bounds.bound import Bound
from lowtide.planners.bounds.families import stages_from_graph
from lowtide.planners.bounds.gap_cover import gap_cover_bound
from lowtide.planners.bounds.working_set import largest_working_set

__all__ = ["best_bound"]

logger = logging.getLogger("lowtide")

_ABSENCES_PER_ROUND = (4_000, 16_000, 64_000, 256_000)
"""Sizes of the programs tried one after another: few stages give a valid bound soon, more a tighter one later."""


_MAX_GAP_COVER_TERMS = 500_000
"""Gap cover of ten thousand nodes would have tens of millions of terms; fewer stages keep it to seconds."""


def best_bound(graph: Graph, budget_bytes: int, *, time_limit_seconds: float) -> Bound | None:
    """The highest bound on the duration of any plan in the given order that is found in time.

    Args:
        graph: What is planned.
        budget_bytes: Most bytes resident at any step.
        time_limit_seconds: Wall-clock time for all attempts together.

    Returns:
        The bound, or None where there was no time for one.
    """
    if time_limit_seconds <= 0:
        return None
    ends = time.monotonic() + time_limit_seconds
    stages = stages_from_graph(graph)
    if max(stages.load_bytes, default=0) <= budget_bytes:
        return Bound(stages.baseline_duration, Scope(), "baseline")
    if largest_working_set(graph).size_bytes > budget_bytes:
        return Bound(stages.baseline_duration, Scope(), "working-set", is_infeasible=True)
    overloaded = stages.overloaded(budget_bytes)
    absences_per_stage = max(1.0, mean_absences(stages, overloaded))
    most_covered = max(1, int(_MAX_GAP_COVER_TERMS / absences_per_stage))
    best = gap_cover_bound(graph, budget_bytes, max_stages=most_covered, time_limit_seconds=time_limit_seconds / 4)
    for num_absences in _ABSENCES_PER_ROUND:
        remaining = ends - time.monotonic()
        if best.is_infeasible or remaining <= 0:
            break
        max_stages = max(1, int(num_absences / absences_per_stage))
        bound = absence_bound(graph, budget_bytes, max_stages=max_stages, time_limit_seconds=remaining)
        logger.debug("bound %s over %d stages: %d", bound.method, min(max_stages, len(overloaded)), bound.duration)
        if bound.is_infeasible or bound.duration > best.duration:
            best = bound
        if max_stages >= len(overloaded):
            break
    return best
