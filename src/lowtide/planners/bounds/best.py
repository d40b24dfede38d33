"""The best bound that fits the time: what ``lowtide plan`` prints."""

from __future__ import annotations

import time

from lowtide.ir import Graph, Scope
from lowtide.planners.bounds.bound import Bound
from lowtide.planners.bounds.families import stages_from_graph
from lowtide.planners.bounds.rounds import relax
from lowtide.planners.bounds.solution import AbsenceOptions
from lowtide.planners.bounds.working_set import largest_working_set

__all__ = ["best_bound"]


def best_bound(graph: Graph, budget_bytes: int, *, time_limit_seconds: float) -> Bound | None:
    """The highest bound on the duration of any plan in the given order that is found in time.

    Args:
        graph: What is planned.
        budget_bytes: Most bytes resident at any step.
        time_limit_seconds: Wall-clock time.

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
    seconds = max(0.0, ends - time.monotonic())
    return relax(stages, budget_bytes, options=AbsenceOptions(time_limit_seconds=seconds)).bound
