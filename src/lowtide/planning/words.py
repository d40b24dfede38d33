"""What came of planning, in one line for people."""

from __future__ import annotations

import logging

from lowtide.ir import PlanResult, Scope, Status
from lowtide.units import format_bytes

__all__ = ["describe_scope", "explain_missing_plan", "log_result"]

_logger = logging.getLogger("lowtide")


def explain_missing_plan(result: PlanResult) -> str:
    """Say in one line why a result has no plan and what to do; with numbers."""
    budget, smallest_known = format_bytes(result.budget_bytes), format_bytes(result.smallest_known_peak_bytes)
    known = f"The smallest budget known to work is {smallest_known} ({result.smallest_known_peak_bytes} bytes)."
    if result.budget_bytes < result.largest_working_set_bytes:
        below = f"budget {budget} is below the smallest possible peak {format_bytes(result.largest_working_set_bytes)}"
        if result.bottleneck_node is None:
            return f"{below}: the graph's inputs need that before anything is computed. Raise the budget. {known}"
        return (
            f"{below}: node {result.bottleneck_node!r} needs that for its inputs and outputs together. "
            f"Raise the budget or split that node. {known}"
        )
    if result.status is Status.INFEASIBLE:
        return (
            f"budget {budget}: it is proven that no plan {describe_scope(result.scope)} fits. Raise the budget. {known}"
        )
    return (
        f"no plan found within budget {budget} by planner {result.planner!r} in {result.solve_seconds:.1f} s, "
        f"which proves nothing. Raise the budget, or give it more time or another planner. {known}"
    )


def describe_scope(scope: Scope) -> str:
    """Say which plans a scope holds, as a continuation of "no plan" or "optimal"."""
    order = {"fixed": "in the given order", "staged": "staged in the given order"}.get(scope.order, "in any order")
    return order if scope.max_copies is None else f"{order} with at most {scope.max_copies} copies of a node"


def log_result(result: PlanResult) -> None:
    """Say in one INFO line what was planned."""
    if result.plan is None:
        _logger.info("%s: %s", result.status, explain_missing_plan(result))
        return
    lower_bound = result.plan.lower_bound_tdi_percent
    _logger.info(
        "plan %s (%s, %s): budget %s, peak %s -> %s, footprint %s, TDI %.3f %%, bound %s, %d recomputations, %.2f s",
        result.status,
        result.planner,
        describe_scope(result.scope),
        format_bytes(result.budget_bytes),
        format_bytes(result.baseline_peak_bytes),
        format_bytes(result.plan.peak_bytes),
        "none" if result.plan.footprint_bytes is None else format_bytes(result.plan.footprint_bytes),
        result.plan.tdi_percent,
        "none" if lower_bound is None else f"{lower_bound:.3f} %",
        result.num_recomputes,
        result.solve_seconds,
    )
