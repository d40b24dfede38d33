"""What the planners on CP-SAT promise alike: progress, an end when asked, the same plan for the same request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from lowtide.errors import InputError
from lowtide.ir import Compute, Graph, Incumbent, Scope, Status
from lowtide.planners.cpsat import CpsatPlanner
from lowtide.planners.moccasin import MoccasinPlanner
from lowtide.planners.protocol import Planner, PlanRequest
from lowtide.referee import baseline, largest_working_set
from lowtide.testing import training_chain_graph


@dataclass(frozen=True)
class Case:
    """A planner and what it can be asked.

    Attributes:
        planner: It.
        name: By which users choose it.
        scope: In which it proves its plans.
        settled: A request that it settles in a moment, after more than one plan.
        same: The same, with a seed.
        long: A request that takes it longer.
    """

    planner: Planner
    name: str
    scope: Scope
    settled: PlanRequest
    same: PlanRequest
    long: PlanRequest


@pytest.fixture(params=["cpsat", "moccasin"])
def case(
    request: pytest.FixtureRequest, plain_graph: Callable[..., Graph], budgets: Callable[[Graph], list[int]]
) -> Case:
    if request.param == "cpsat":
        scope, graphs = Scope(), [plain_graph(seed, 12) for seed in (1, 3)]
        settled, same = (PlanRequest(graph, budgets(graph)[1], scope=scope) for graph in graphs)
        return Case(CpsatPlanner(), "cpsat", scope, settled, replace(same, seed=3), settled)
    scope = Scope(order="staged", max_copies=2)
    settled, same = (
        PlanRequest(graph, baseline(graph).peak_bytes - 64 * excess, scope=scope)
        for graph, excess in ((training_chain_graph(6), 3), (training_chain_graph(5), 2))
    )
    chain = training_chain_graph(40)
    long = PlanRequest(chain, 4 * largest_working_set(chain).size_bytes, scope=scope)
    return Case(MoccasinPlanner(), "moccasin", scope, settled, replace(same, seed=3), long)


def test_they_are_planners(case: Case) -> None:
    assert isinstance(case.planner, Planner)
    assert case.planner.name == case.name


def test_a_budget_that_is_met_anyway_needs_no_recomputation(case: Case) -> None:
    graph = training_chain_graph(3)
    proposal = case.planner.propose(PlanRequest(graph, baseline(graph).peak_bytes, scope=case.scope))
    assert proposal.status is Status.OPTIMAL
    assert proposal.lower_bound_duration == graph.baseline_duration
    assert [step.node for step in proposal.steps or () if isinstance(step, Compute)] == list(graph.order)


def test_no_copies_are_refused(case: Case) -> None:
    with pytest.raises(InputError, match=r"max_copies 0 must be at least 1: every node is executed once"):
        case.planner.propose(PlanRequest(training_chain_graph(2), 100, scope=Scope(max_copies=0)))


def test_progress_reports_falling_durations_and_rising_bounds(case: Case) -> None:
    seen: list[Incumbent] = []
    proposal = case.planner.propose(replace(case.settled, on_progress=seen.append))
    assert proposal.status is Status.OPTIMAL
    assert seen == list(proposal.incumbents)
    durations = [incumbent.duration for incumbent in seen if incumbent.duration is not None]
    bounds = [incumbent.lower_bound_duration for incumbent in seen if incumbent.lower_bound_duration is not None]
    assert durations == sorted(durations, reverse=True)
    assert bounds == sorted(bounds)
    assert seen[-1].duration == seen[-1].lower_bound_duration == proposal.lower_bound_duration


@pytest.mark.parametrize(
    "limit", [{"should_stop": lambda: True}, {"time_limit_seconds": 0.0}], ids=["asked", "no time"]
)
def test_they_stop_when_asked_and_without_time(case: Case, limit: dict[str, Any]) -> None:
    proposal = case.planner.propose(replace(case.long, **limit))
    assert proposal.status in (Status.TIMEOUT, Status.FEASIBLE)
    assert proposal.lower_bound_duration == case.long.graph.baseline_duration


def test_the_same_request_gives_the_same_plan(case: Case) -> None:
    first, second = case.planner.propose(case.same), case.planner.propose(case.same)
    assert first.status is second.status is Status.OPTIMAL
    assert first.steps == second.steps
