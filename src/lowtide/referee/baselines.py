"""What a graph needs without recomputation, and what it needs in any case."""

from __future__ import annotations

from lowtide.ir import Graph
from lowtide.ir.sequence import baseline_steps
from lowtide.ir.working_set import WorkingSet, largest_working_set
from lowtide.referee.replay import Replay, replay

__all__ = ["WorkingSet", "baseline", "largest_working_set"]


def baseline(graph: Graph) -> Replay:
    """Replay the given order without recomputation, each value evicted right after its last use.

    Raises:
        PlanRejected: The given order cannot be carried out, e.g. because it reads an input after it was overwritten.
    """
    return replay(graph, baseline_steps(graph))
