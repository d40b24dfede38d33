"""Planning as a compiled model needs it: whoever calls the model waits for it, and must get a plan or a reason.

the quick planner ──no plan──▶ the thorough one, some seconds ──no plan──▶ the smallest budget that works for either
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from lowtide.ir import Graph, PlanResult, Status
from lowtide.planners.protocol import Planner
from lowtide.planning.facts import gather_facts
from lowtide.planning.options import build_request, check_limits, choose_planner
from lowtide.planning.required import require_plan
from lowtide.planning.search import Attempt, Search
from lowtide.referee import VerifiedPlan

__all__ = ["planning_for_compile"]

_QUICK_PLANNER, _THOROUGH_PLANNER = "greedy", "search"
_MOST_SECONDS_TO_PLAN_AGAIN = 4.0
_MOST_SECONDS_TO_NAME = 6.0  # a budget that works, where none was found for the one that is wanted


def planning_for_compile(
    planner: Planner, *, time_limit_seconds: float | None, seed: int
) -> Callable[[Graph, int], tuple[PlanResult, VerifiedPlan]]:
    """How a compiled model asks for plans.

    Args:
        planner: Who plans; where it is the quick one and finds nothing, the thorough one is asked, too.
        time_limit_seconds: Wall-clock cap on the planning of one graph, or None.
        seed: Of the planner.

    Returns:
        From a graph and the bytes of its budget to the result and its plan; it raises what ``require_plan`` does.

    Raises:
        InputError: A limit or the seed is wrong.
    """
    check_limits(time_limit_seconds=time_limit_seconds, seed=seed)

    def plan_graph(graph: Graph, budget_bytes: int) -> tuple[PlanResult, VerifiedPlan]:
        started = time.perf_counter()
        facts = gather_facts(graph)
        request = build_request(
            graph,
            max_copies=None,
            seed=seed,
            threads=None,
            time_limit_seconds=time_limit_seconds,
            on_progress=None,
            should_stop=None,
        )
        search = Search(facts, planner, request, keep_order=False, bound=False, started=started)
        attempt = search.attempt(max(budget_bytes, 1))
        if not attempt.fits and planner.name == _QUICK_PLANNER and not search.is_over:
            search, attempt = _ask_thoroughly(search, attempt)
        result = search.result(search.with_known_budget(attempt))
        return result, require_plan(result, graph)

    return plan_graph


def _ask_thoroughly(search: Search, attempt: Attempt) -> tuple[Search, Attempt]:
    """Where the quick planner has no plan, ask the thorough one, also for the smallest budget that works.

    It gets seconds of its own, as a refusal ends the program that waits; but no more than a time limit leaves.
    """
    asking = replace(search, planner=choose_planner(_THOROUGH_PLANNER))
    again = asking.within(_MOST_SECONDS_TO_PLAN_AGAIN).attempt(attempt.budget_bytes)
    keeps_proof = attempt.status is not Status.INFEASIBLE or again.status is Status.INFEASIBLE
    if again.fits or (keeps_proof and again.needed_bytes < attempt.needed_bytes):
        attempt = again
    thorough, quick = asking.within(_MOST_SECONDS_TO_NAME), search.within(_MOST_SECONDS_TO_NAME)
    known = quick.with_known_budget(attempt, most_seconds=_MOST_SECONDS_TO_NAME, other=thorough)
    return replace(thorough, started=search.started), known
