"""How small the arena of a model gets, by one means after the other.

offsets alone ──▶ order, too ──▶ recomputation, too            never below the largest operator
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from lowtide.ir import Graph, PlanResult

__all__ = ["Means", "PlanSmallest", "footprint_of", "try_means"]


class PlanSmallest(Protocol):
    """Plans for the smallest footprint."""

    def __call__(self, graph: Graph, *, keep_order: bool, max_copies: int | None) -> PlanResult:
        """Plan a graph; ``max_copies`` is the most executions of one node, None for any number."""
        ...


@dataclass(frozen=True, slots=True)
class Means:
    """The smallest footprint that was found by each means, in bytes; each uses those before it, too.

    Attributes:
        largest_working_set_bytes: No means goes below this.
        bottleneck_node: The node that needs it, or None where the inputs do.
        bottleneck_op: What that computes.
        by_offsets_bytes: With the best offsets in the given order.
        by_order_bytes: With the best order.
        by_recompute_bytes: With recomputation.
        num_recomputes: Nodes that this executes again; 0 where it does not help.
        tdi_percent: Its total duration increase.
    """

    largest_working_set_bytes: int
    bottleneck_node: str | None
    bottleneck_op: str | None
    by_offsets_bytes: int
    by_order_bytes: int
    by_recompute_bytes: int
    num_recomputes: int
    tdi_percent: float


def try_means(graph: Graph, plan_smallest: PlanSmallest) -> Means:
    """Try the means one after the other, as long as there is something to gain.

    Args:
        graph: What is planned.
        plan_smallest: Plans for the smallest footprint.
    """
    by_offsets = plan_smallest(graph, keep_order=True, max_copies=1)
    by_order = by_recompute = by_offsets
    if by_offsets.largest_working_set_bytes < footprint_of(by_offsets):
        by_order = plan_smallest(graph, keep_order=False, max_copies=1)
    if by_order.largest_working_set_bytes < footprint_of(by_order):
        by_recompute = plan_smallest(graph, keep_order=False, max_copies=None)
    is_recomputed = footprint_of(by_recompute) < footprint_of(by_order)
    bottleneck = by_offsets.bottleneck_node
    return Means(
        largest_working_set_bytes=by_offsets.largest_working_set_bytes,
        bottleneck_node=bottleneck,
        bottleneck_op=None if bottleneck is None else graph.node_by_name[bottleneck].op,
        by_offsets_bytes=footprint_of(by_offsets),
        by_order_bytes=min(footprint_of(by_order), footprint_of(by_offsets)),
        by_recompute_bytes=min(footprint_of(result) for result in (by_recompute, by_order, by_offsets)),
        num_recomputes=by_recompute.num_recomputes if is_recomputed else 0,
        tdi_percent=by_recompute.plan.tdi_percent if is_recomputed and by_recompute.plan is not None else 0.0,
    )


def footprint_of(result: PlanResult) -> int:
    """The footprint of a result's plan; its peak where it has no addresses, the smallest peak met without a plan."""
    plan = result.plan
    if plan is None:
        return result.smallest_known_peak_bytes
    return plan.peak_bytes if plan.footprint_bytes is None else plan.footprint_bytes
