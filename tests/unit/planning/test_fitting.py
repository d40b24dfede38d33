"""lowtide.plan with addresses: the budget is for the footprint; where that is too large, plan again with less."""

from __future__ import annotations

import time
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide import api
from lowtide.errors import InputError
from lowtide.importers.generate import graph_from_spec
from lowtide.ir import Graph, Layout, Placement, Status, Step
from lowtide.ir.sequence import baseline_steps
from lowtide.layouts.protocol import LayoutProposal, LayoutRequest
from lowtide.planners.protocol import PlanRequest, Proposal
from lowtide.planners.table import planner_named
from lowtide.referee import check_plan
from lowtide.testing import random_graph, training_chain_graph


class WastefulLayouter:
    """Lays out as best_fit does, above as many bytes as it is told to waste."""

    name = "wasteful"

    def __init__(self, waste_bytes: int) -> None:
        self.waste_bytes = waste_bytes
        self.inner = api.choose_layouter("best_fit")

    def place(self, request: LayoutRequest) -> LayoutProposal:
        assert self.inner is not None
        proposal = self.inner.place(request)
        placements = tuple(
            Placement(p.name, p.occurrence, p.offset + self.waste_bytes, p.size_bytes, p.is_workspace)
            for p in proposal.layout.placements
        )
        return LayoutProposal(Layout(placements), proposal.lower_bound_bytes)


class RecordingPlanner:
    """greedy, remembering the budgets, the starts, and the first plan."""

    name = "recording"

    def __init__(self) -> None:
        self.budgets: list[int] = []
        self.starts: list[tuple[Step, ...] | None] = []
        self.first: tuple[Step, ...] | None = None

    def propose(self, request: PlanRequest) -> Proposal:
        self.budgets.append(request.budget_bytes)
        self.starts.append(request.start)
        proposal = planner_named("greedy").propose(request)
        self.first = self.first or proposal.steps
        return proposal


@pytest.fixture
def no_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the exact search, which would undo the waste."""
    monkeypatch.setattr("lowtide.planning.addresses._MOST_EXACT_LIFESPANS", 0)


def chain() -> Graph:
    return training_chain_graph(12, size_bytes=8)


@pytest.mark.usefixtures("no_exact")
def test_a_footprint_above_the_budget_is_planned_again_with_less() -> None:
    graph, planner = chain(), RecordingPlanner()
    plain = api.plan(graph, budget="70%", planner="greedy", bound=False)
    assert plain.plan is not None
    result = api.plan(graph, budget="70%", planner=planner, layout=WastefulLayouter(16), bound=False)
    assert result.plan is not None
    assert planner.budgets[0] == plain.budget_bytes
    assert min(planner.budgets) < plain.budget_bytes
    assert planner.starts[0] is None
    assert all(start == planner.first for start in planner.starts[1:])
    assert result.plan.budget_bytes == plain.budget_bytes
    assert result.plan.footprint_bytes == result.plan.peak_bytes + 16 <= plain.budget_bytes
    assert result.plan.duration > plain.plan.duration
    check_plan(graph, result.plan, budget_bytes=plain.budget_bytes)


@pytest.mark.usefixtures("no_exact")
def test_none_found_says_the_smallest_footprint_met() -> None:
    graph = chain()
    result = api.plan(graph, budget="70%", layout=WastefulLayouter(1000), bound=False)
    assert (result.status, result.plan) == (Status.TIMEOUT, None)
    assert result.smallest_known_peak_bytes > 1000
    assert f"({result.smallest_known_peak_bytes} bytes)" in api.explain_missing_plan(result)


def test_the_exact_search_helps_before_planning_again() -> None:
    graph, planner = chain(), RecordingPlanner()
    result = api.plan(graph, budget="70%", planner=planner, layout=WastefulLayouter(16), bound=False)
    assert result.plan is not None
    assert len(planner.budgets) == 1
    assert result.plan.footprint_bytes is not None
    assert result.plan.footprint_bytes <= result.budget_bytes


@pytest.mark.usefixtures("no_exact")
def test_a_plan_that_is_no_longer_ends_the_tries() -> None:
    graph = chain()

    class OnceWasteful(WastefulLayouter):
        def place(self, request: LayoutRequest) -> LayoutProposal:
            proposal = super().place(request)
            if len(planner.budgets) == 1:
                self.waste_bytes = 0
            return proposal

    class Same(RecordingPlanner):
        def propose(self, request: PlanRequest) -> Proposal:
            return super().propose(replace(request, budget_bytes=least_bytes))

    small = api.plan(graph, budget="50%", planner="greedy", bound=False)
    large = api.plan(graph, budget="70%", planner="greedy", bound=False)
    assert small.plan is not None
    least_bytes = small.budget_bytes
    planner, layouter = Same(), OnceWasteful(large.budget_bytes - small.plan.peak_bytes + 8)
    result = api.plan(graph, budget="70%", planner=planner, layout=layouter, bound=False)
    assert result.plan is not None
    assert len(planner.budgets) == 2


@pytest.mark.usefixtures("no_exact")
def test_tries_leave_the_bound_its_share_of_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    monkeypatch.setattr(
        "lowtide.planners.bounds.best_bound",
        lambda *_, time_limit_seconds, **__: asked.append(time_limit_seconds),
    )

    class Slow(RecordingPlanner):
        def propose(self, request: PlanRequest) -> Proposal:
            time.sleep(0.5)
            return super().propose(request)

    planner = Slow()
    result = api.plan(chain(), budget="70%", planner=planner, layout=WastefulLayouter(1000), time_limit_seconds=4.0)
    assert result.status is Status.TIMEOUT
    assert 1 < len(planner.budgets) < 8
    assert 0.0 < asked[0] <= 1.0


@pytest.mark.usefixtures("no_exact")
def test_claims_for_a_smaller_budget_are_dropped_and_the_bound_kept() -> None:
    class Claiming:
        name = "claiming"

        def propose(self, request: PlanRequest) -> Proposal:
            found = planner_named("greedy").propose(request)
            is_first = request.budget_bytes == first_budget_bytes
            bound = graph.baseline_duration + (1 if is_first else 2)
            return Proposal(found.status, found.steps, lower_bound_duration=bound)

    graph = chain()
    first_budget_bytes = api.plan(graph, budget="70%", bound=False).budget_bytes
    result = api.plan(graph, budget="70%", planner=Claiming(), layout=WastefulLayouter(16), bound=False)
    assert result.status is Status.FEASIBLE
    assert result.lower_bound_duration == graph.baseline_duration + 1


@pytest.mark.usefixtures("no_exact")
def test_min_is_the_smallest_footprint() -> None:
    graph = chain()
    plain = api.plan(graph, budget="min", bound=False)
    wasteful = api.plan(graph, budget="min", layout=WastefulLayouter(16), bound=False)
    assert plain.plan is not None
    assert wasteful.plan is not None
    assert wasteful.budget_bytes == wasteful.plan.footprint_bytes == wasteful.plan.peak_bytes + 16
    assert plain.budget_bytes == plain.plan.footprint_bytes == plain.plan.peak_bytes


def test_the_smallest_budget_gets_as_short_a_plan_as_if_it_had_been_asked_for() -> None:
    for seed in range(12):
        graph = random_graph(Random(seed), num_nodes=12)
        smallest = api.plan(graph, budget="min", layout=None, bound=False, threads=1)
        asked = api.plan(graph, budget=smallest.budget_bytes, layout=None, bound=False, threads=1)
        assert smallest.plan is not None
        assert asked.plan is not None
        assert smallest.plan.duration <= asked.plan.duration


def test_without_layout_the_budget_is_for_live_bytes() -> None:
    graph = chain()
    result = api.plan(graph, budget="70%", layout=None, bound=False)
    assert result.plan is not None
    assert (result.plan.layout, result.plan.footprint_bytes) == (None, None)
    assert result.plan.peak_bytes <= result.budget_bytes
    named = api.plan(graph, budget="70%", layout="none", bound=False)
    assert named.plan is not None
    assert (named.plan.layout, named.plan.steps) == (None, result.plan.steps)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_a_budget_from_the_footprint_of_the_baseline_up_has_tdi_0(seed: int) -> None:
    graph = random_graph(Random(seed), num_nodes=12)
    large = api.plan(graph, budget=f"{10**6} B", bound=False)
    assert large.plan is not None
    footprint_bytes = large.plan.footprint_bytes
    assert footprint_bytes is not None
    assert large.plan.steps == baseline_steps(graph)
    for budget_bytes in (max(footprint_bytes, 1), footprint_bytes + 1):
        result = api.plan(graph, budget=f"{budget_bytes} B", bound=False)
        assert result.plan is not None
        assert (result.plan.tdi_percent, result.plan.footprint_bytes) == (0.0, footprint_bytes)


@pytest.mark.parametrize("percent", [90, 80])
def test_layered_graphs_fit_their_footprint_or_have_no_plan(percent: int) -> None:
    graph = graph_from_spec("generate:layered?n=40&seed=3")
    result = api.plan(graph, budget=f"{percent}%", bound=False, time_limit_seconds=10)
    if result.plan is None:
        assert result.status in (Status.TIMEOUT, Status.INFEASIBLE)
    else:
        assert result.plan.footprint_bytes is not None
        assert result.plan.peak_bytes <= result.plan.footprint_bytes <= result.budget_bytes
        check_plan(graph, result.plan)


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        ("tight", "layout 'tight' is not known: choose one of auto, best_fit, exact, none"),
        (3, "layout 3 has no name and place"),
    ],
)
def test_unknown_layouts_are_refused(layout: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        api.plan(chain(), budget="70%", layout=layout)


@pytest.mark.usefixtures("no_exact")
def test_auto_gives_up_addresses_where_none_fit_and_says_the_least_met(monkeypatch: pytest.MonkeyPatch) -> None:
    wasteful = WastefulLayouter(1000)
    monkeypatch.setattr("lowtide.planning.addresses.layouter_named", lambda name: wasteful)
    graph = chain()
    result = api.plan(graph, budget="70%", bound=False)
    live = api.plan(graph, budget="70%", layout=None, bound=False)
    assert result.plan is not None
    assert live.plan is not None
    assert (result.plan.layout, result.plan.footprint_bytes) == (None, None)
    assert result.plan.steps == live.plan.steps
    assert result.status is live.status
    assert result.unplaced_footprint_bytes is not None
    assert result.unplaced_footprint_bytes > max(1000, result.budget_bytes)
    check_plan(graph, result.plan, budget_bytes=result.budget_bytes)


@pytest.mark.usefixtures("no_exact")
def test_auto_prefers_a_longer_plan_with_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, wasteful = chain(), WastefulLayouter(16)
    named = api.plan(graph, budget="70%", layout=wasteful, bound=False)
    monkeypatch.setattr("lowtide.planning.addresses.layouter_named", lambda name: wasteful)
    result = api.plan(graph, budget="70%", bound=False)
    assert result.plan is not None
    assert named.plan is not None
    assert result.plan.layout is not None
    assert result.unplaced_footprint_bytes is None
    assert result.plan.duration == named.plan.duration
