"""What to execute and what to drop, decided ahead.

A plan is a sequence of steps: compute a node (again, if wanted) or evict a value. What it means, exactly, is what
``lowtide.referee.replay`` does with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from lowtide.ir.graph import Graph
from lowtide.ir.layout import Layout

__all__ = ["Compute", "Evict", "Incumbent", "Plan", "PlanResult", "Scope", "Status", "Step"]


@dataclass(frozen=True, slots=True)
class Compute:
    """Execute a node: its outputs become resident."""

    node: str


@dataclass(frozen=True, slots=True)
class Evict:
    """Drop a value: it stops being resident."""

    value: str


Step: TypeAlias = Compute | Evict


class Status(StrEnum):
    """What a planner claims of its answer."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    TIMEOUT = "timeout"

    @property
    def has_plan(self) -> bool:
        """Whether it claims a plan within the budget."""
        return self in (Status.OPTIMAL, Status.FEASIBLE)


@dataclass(frozen=True, slots=True)
class Scope:
    """The set of plans within which an optimum or a bound is meant. Figures of two scopes are never compared.

    ``staged`` plans are ``fixed`` plans, and these are ``free`` plans: a bound of a wider scope holds in a narrower
    one, never the other way round.

    Attributes:
        order: ``"fixed"``: first executions in the graph's given order; ``"free"``: in any legal order; ``"staged"``:
            as fixed, and between two first executions each node runs again at most once, in the given order, too.
        max_copies: Most executions of one node, or None for any number.
    """

    order: str = "fixed"
    max_copies: int | None = None


@dataclass(frozen=True, slots=True)
class Incumbent:
    """The best plan and bound known at some moment of the search.

    Attributes:
        seconds: Since the planner started.
        duration: Of the best plan so far, or None.
        lower_bound_duration: Proven so far within the scope, or None.
    """

    seconds: float
    duration: int | None
    lower_bound_duration: int | None


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan with the figures claimed for it; the referee recomputes every one of them.

    Attributes:
        graph_sha256: Which graph it is for (see ``serde.graph_sha256``).
        planner: Name of the planner.
        seed: Seed of the planner.
        threads: Threads it was allowed.
        status: ``FEASIBLE`` or ``OPTIMAL`` (within the scope).
        scope: The set of plans that ``status`` and ``lower_bound_duration`` speak of.
        budget_bytes: Bytes allowed.
        peak_bytes: Most bytes resident at any step.
        footprint_bytes: Highest address used by the layout, or None without one.
        duration: Of all compute steps.
        baseline_duration: Every node once.
        lower_bound_duration: Proven least duration within the scope, or None.
        durations: Of the graph's nodes, in their order, as planned with.
        steps: What to do.
        layout: Addresses, or None.
        incumbents: The course of the search, or empty.
        graph: The rewritten graph (bands) that the steps are for, or None where they are for the original.
        meta: Annotations.
    """

    graph_sha256: str
    planner: str
    seed: int
    threads: int
    status: Status
    scope: Scope
    budget_bytes: int
    peak_bytes: int
    duration: int
    baseline_duration: int
    durations: tuple[int, ...]
    steps: tuple[Step, ...]
    footprint_bytes: int | None = None
    lower_bound_duration: int | None = None
    layout: Layout | None = None
    incumbents: tuple[Incumbent, ...] = ()
    graph: Graph | None = None
    meta: Mapping[str, Any] | None = None

    @property
    def tdi_percent(self) -> float:
        """Total duration increase over the baseline, in percent (0 where the baseline takes no time)."""
        return increase_percent(self.duration, self.baseline_duration)

    @property
    def lower_bound_tdi_percent(self) -> float | None:
        """The bound as a total duration increase in percent, or None without a bound."""
        if self.lower_bound_duration is None:
            return None
        return increase_percent(self.lower_bound_duration, self.baseline_duration)


def increase_percent(duration: int, baseline_duration: int) -> float:
    """Increase of a duration over the baseline, in percent; 0 where the baseline takes no time."""
    return 100.0 * (duration - baseline_duration) / baseline_duration if baseline_duration else 0.0


@dataclass(frozen=True, slots=True)
class PlanResult:
    """The answer of ``lowtide.plan``: data, never an exception and never None.

    Attributes:
        status: OPTIMAL or FEASIBLE with a plan; INFEASIBLE: proven, no plan; TIMEOUT: none found, none disproved.
        plan: The best plan found, verified, or None.
        scope: The set of plans searched.
        planner: Name of the planner.
        budget_bytes: Bytes allowed.
        baseline_peak_bytes: Peak of the given order without recomputation.
        largest_working_set_bytes: No plan can be below this.
        bottleneck_node: The node with the largest working set.
        smallest_known_peak_bytes: Smallest peak of any plan seen for this graph.
        baseline_duration: Every node once.
        num_recomputes: Executions beyond the first, views left out; 0 without a plan.
        lower_bound_duration: Proven within the scope, or None.
        solve_seconds: Wall-clock time of planning.
        unplaced_footprint_bytes: Where the plan has no addresses because none within the budget were found: the
            smallest footprint met, which is above it. Else None.
    """

    status: Status
    plan: Plan | None
    scope: Scope
    planner: str
    budget_bytes: int
    baseline_peak_bytes: int
    largest_working_set_bytes: int
    bottleneck_node: str | None
    smallest_known_peak_bytes: int
    baseline_duration: int
    num_recomputes: int
    lower_bound_duration: int | None
    solve_seconds: float
    unplaced_footprint_bytes: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """The figures under the keys that ``lowtide plan --json`` prints."""
        plan = self.plan
        bound = self.lower_bound_duration
        return {
            "status": str(self.status),
            "scope": {"order": self.scope.order, "max_copies": self.scope.max_copies},
            "planner": self.planner,
            "budget_bytes": self.budget_bytes,
            "peak_bytes": None if plan is None else plan.peak_bytes,
            "footprint_bytes": None if plan is None else plan.footprint_bytes,
            "baseline_peak_bytes": self.baseline_peak_bytes,
            "largest_working_set_bytes": self.largest_working_set_bytes,
            "bottleneck_node": self.bottleneck_node,
            "smallest_known_peak_bytes": self.smallest_known_peak_bytes,
            "duration": None if plan is None else plan.duration,
            "baseline_duration": self.baseline_duration,
            "tdi_percent": None if plan is None else plan.tdi_percent,
            "lower_bound_tdi_percent": None if bound is None else increase_percent(bound, self.baseline_duration),
            "num_recomputes": self.num_recomputes,
            "solve_seconds": self.solve_seconds,
        }
