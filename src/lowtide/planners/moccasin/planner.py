"""The planner ``moccasin``: retention intervals solved by CP-SAT, after Bartan et al. 2023."""

from __future__ import annotations

import logging

from lowtide.errors import InputError, MissingDependency
from lowtide.ir import Graph, Scope, Status
from lowtide.planners.moccasin.problem import Problem, problem_from_graph
from lowtide.planners.protocol import PlanRequest, Proposal

__all__ = ["DEFAULT_MAX_COPIES", "MoccasinPlanner"]

logger = logging.getLogger("lowtide")

DEFAULT_MAX_COPIES = 2
"""Most executions of a node where the scope names none (the paper's C)."""

_MAX_DOMAIN_EVENTS = 100_000_000


class MoccasinPlanner:
    """Retention intervals and CP-SAT (Bartan, Li, Teague, Lott, Dilkina: Moccasin, ICML 2023).

    Claims (optimal, infeasible, a bound) hold for the scope ``staged`` with at most ``scope.max_copies`` executions of
    a node. For a wider scope (any number of copies, plans that are not staged, free order) it plans within its own and
    claims only what holds there: feasible plans, and the duration without recomputation as the bound.

    Attributes:
        searches_staged_only: Its model holds no other plans.
    """

    searches_staged_only = True

    @property
    def name(self) -> str:
        """``"moccasin"``."""
        return "moccasin"

    def propose(self, request: PlanRequest) -> Proposal:
        """Search for the plan of least duration.

        Raises:
            InputError: The graph is too large for the model, or ``max_copies`` is below 1.
            MissingDependency: OR-Tools is not installed.
        """
        try:
            from lowtide.planners.moccasin.phases import SearchLimits, solve
        except ImportError as error:
            raise MissingDependency("ortools", extra="exact", needed_for="planner moccasin") from error
        max_copies = DEFAULT_MAX_COPIES if request.scope.max_copies is None else request.scope.max_copies
        problem = _problem(request.graph, request.budget_bytes, max_copies)
        limits = SearchLimits(
            request.time_limit_seconds, request.threads, request.seed, request.should_stop, request.on_progress
        )
        outcome = solve(request.graph, problem, limits)
        is_own_scope = problem.is_exact and request.scope == Scope(order="staged", max_copies=max_copies)
        bound = outcome.lower_bound_duration if is_own_scope else request.graph.baseline_duration
        if outcome.fits:
            status = Status.OPTIMAL if outcome.is_optimal and is_own_scope else Status.FEASIBLE
        else:
            status = Status.INFEASIBLE if outcome.is_infeasible and is_own_scope else Status.TIMEOUT
        return Proposal(status, outcome.steps, bound, outcome.incumbents if is_own_scope else ())


def _problem(graph: Graph, budget_bytes: int, max_copies: int) -> Problem:
    if max_copies < 1:
        raise InputError(f"max_copies {max_copies} must be at least 1: every node is executed once")
    problem = problem_from_graph(graph, budget_bytes=budget_bytes, max_copies=max_copies)
    num_stages = len(problem.columns)
    num_events = sum(num_stages * (1 + len(v.readers)) * v.max_copies for v in problem.values if v.max_copies > 1)
    if num_events > _MAX_DOMAIN_EVENTS:
        raise InputError(
            f"planner moccasin: graph {graph.name!r} with {len(graph.nodes)} nodes and {max_copies} copies needs about "
            f"{num_events} events in its domains, more than {_MAX_DOMAIN_EVENTS}: use planner 'greedy'"
        )
    return problem
