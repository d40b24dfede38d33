"""What a planner is: a request in, a proposal out.

A planner proposes steps and claims a status and a bound; it never grades itself. ``lowtide.api.plan`` has the referee
replay the steps, fills in every figure, and refuses what breaks a rule. A planner of your own is a class with a
``name`` and a ``propose`` method, found by entry point (group ``lowtide.planners``) or as ``pkg.mod:Class``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from lowtide.ir import Graph, Incumbent, Scope, Status, Step

__all__ = ["PlanRequest", "Planner", "Proposal"]


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What to plan.

    Attributes:
        graph: The graph, checked.
        budget_bytes: Most bytes resident at any step (referee's rules: graph inputs of kind USER count).
        scope: Which plans count: fixed, free or staged order, most copies of a node.
        seed: Same graph, budget, seed and threads give the same plan.
        threads: Threads it may use, at least 1.
        time_limit_seconds: Wall-clock cap, or None; the best found so far is then the answer.
        on_progress: Called with every better plan or bound, or None.
        should_stop: Asked now and then; true ends the search with the best found so far (Ctrl-C), or None.
        start: A plan of the graph to begin with, which need not fit; a planner may pass it over. None: there is none.
    """

    graph: Graph
    budget_bytes: int
    scope: Scope = Scope()  # noqa: RUF009 - frozen, so safe to share
    seed: int = 0
    threads: int = 1
    time_limit_seconds: float | None = None
    on_progress: Callable[[Incumbent], None] | None = None
    should_stop: Callable[[], bool] | None = None
    start: tuple[Step, ...] | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a planner answers.

    Attributes:
        status: OPTIMAL or FEASIBLE with steps that it believes to fit; INFEASIBLE: it has a proof that no plan within
            the scope fits; TIMEOUT: it found none.
        steps: The plan; without a plan that fits, the one of the smallest peak it met, or None.
        lower_bound_duration: Proven least duration of any plan within the scope and budget, or None.
        incumbents: The course of the search.
        scope: The plans of which status and bound speak, where these are not all that were asked for: ``fixed`` of a
            plan in the given order, proven for that order alone, though any order would do. None: all of them.
    """

    status: Status
    steps: tuple[Step, ...] | None
    lower_bound_duration: int | None = None
    incumbents: tuple[Incumbent, ...] = ()
    scope: Scope | None = None


@runtime_checkable
class Planner(Protocol):
    """Something that proposes plans.

    A planner that can leave the given order says so by an attribute ``searches_order = True``; it is then asked for
    plans with scope ``free`` unless the order is to be kept. One that sees staged plans only, and so proves nothing
    about others, says ``searches_staged_only = True``; it is asked for plans with scope ``staged``. All others are
    asked for plans in the given order.
    """

    @property
    def name(self) -> str:
        """The name by which users choose it."""
        ...

    def propose(self, request: PlanRequest) -> Proposal:
        """Propose a plan for a request.

        Raises:
            InputError: The request cannot be met by this planner (e.g. a scope that it does not search).
        """
        ...
