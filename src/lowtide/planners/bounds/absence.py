"""The bound of the absence relaxation, and the solution behind it.

What it says: ``relaxation``. How it is solved: ``rounds``. Why it holds: docs/decisions/bounds.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from lowtide.ir import Graph
from lowtide.planners.bounds.bound import Bound
from lowtide.planners.bounds.families import Stages, stages_from_graph, stages_within
from lowtide.planners.bounds.rounds import relax
from lowtide.planners.bounds.solution import AbsenceOptions, AbsenceSolution

__all__ = ["absence_bound", "absence_solution", "mean_absences"]


def absence_bound(
    graph: Graph,
    budget_bytes: int,
    *,
    are_whole: bool = True,
    max_stages: int | None = None,
    time_limit_seconds: float | None = None,
) -> Bound:
    """Bound the duration of any plan of a graph in its given order.

    Args:
        graph: What is planned.
        budget_bytes: Most bytes resident at any step.
        are_whole: Whether to end with whole variables (MIP, tighter) or without (LP, faster).
        max_stages: Use only so many overloaded stages, spread out and the fullest of their neighbourhoods; None: as
            many as it takes (tightest).
        time_limit_seconds: Wall-clock time, or None; the best bound reached by then holds.
    """
    options = AbsenceOptions(are_whole=are_whole, max_stages=max_stages, time_limit_seconds=time_limit_seconds)
    return absence_solution(graph, budget_bytes, options=options).bound


def absence_solution(graph: Graph, budget_bytes: int, *, options: AbsenceOptions | None = None) -> AbsenceSolution:
    """Bound the duration of any plan of a graph in its given order, and tell the solution that comes nearest.

    Args:
        graph: What is planned.
        budget_bytes: Most bytes resident at any step.
        options: How far to go; None: to the end.
    """
    return relax(stages_from_graph(graph), budget_bytes, options=options or AbsenceOptions())


def mean_absences(stages: Stages, overloaded: Sequence[int]) -> float:
    """How many families one overloaded stage could do without on average: a measure of the program's size."""
    total = sum(
        len(stages_within(overloaded, gap))
        for family in stages.families
        if family.can_return and family.size_bytes
        for gap in family.gaps()
    )
    return total / max(1, len(overloaded))
