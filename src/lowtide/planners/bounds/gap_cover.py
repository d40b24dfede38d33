"""Gap cover: what overloads a stage must be evicted across it, and what is evicted must come back.

For every stage whose load exceeds the budget, the sizes of the families evicted across it cover the excess; one 0/1
variable for each execution of a node between two of its points, at the cost of the node. It is the absence relaxation
without the rows that tell what comes back needs: a tenth of its work, but loose at tight budgets, where a cheap node
counts as cheap even though its inputs are long dead.
"""

from __future__ import annotations

from lowtide.ir import Graph
from lowtide.planners.bounds.bound import Bound
from lowtide.planners.bounds.families import stages_from_graph
from lowtide.planners.bounds.rounds import relax
from lowtide.planners.bounds.solution import AbsenceOptions

__all__ = ["gap_cover_bound"]


def gap_cover_bound(
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
    options = AbsenceOptions(
        are_whole=are_whole,
        max_stages=max_stages,
        time_limit_seconds=time_limit_seconds,
        are_returns_checked=False,
    )
    return relax(stages_from_graph(graph), budget_bytes, options=options, name="gap-cover").bound
