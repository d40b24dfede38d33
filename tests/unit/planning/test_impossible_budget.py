"""A budget below the largest working set: said at once, with a budget that is known to work."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide import api
from lowtide.importers.held_inputs import with_inputs_held
from lowtide.ir import Graph, Incumbent, Input, Node, Status, Value
from lowtide.ir.sequence import baseline_steps
from lowtide.layouts.best_fit import BestFitLayouter
from lowtide.layouts.protocol import LayoutProposal, LayoutRequest
from lowtide.planners.greedy import GreedyPlanner
from lowtide.planners.protocol import PlanRequest, Proposal
from lowtide.referee import replay
from lowtide.testing import random_graph, training_chain_graph

GRAPH = training_chain_graph(12)
LEAST_BYTES = api.plan(GRAPH, budget="100%", bound=False).largest_working_set_bytes


@dataclass
class RememberingPlanner:
    """Greedy, with an eye on what it is asked and with a better plan to tell of."""

    name: str = "remembering"
    requests: list[PlanRequest] = field(default_factory=list)

    def propose(self, request: PlanRequest) -> Proposal:
        self.requests.append(request)
        if request.on_progress is not None:
            request.on_progress(Incumbent(0.0, GRAPH.baseline_duration, None))
        return GreedyPlanner(max_work=0).propose(request)


@dataclass
class RememberingLayouter:
    """Best fit, with an eye on what it is asked."""

    name: str = "remembering"
    requests: list[LayoutRequest] = field(default_factory=list)

    def place(self, request: LayoutRequest) -> LayoutProposal:
        self.requests.append(request)
        return BestFitLayouter().place(request)


@pytest.mark.parametrize("time_limit_seconds", [None, 600.0])
def test_planner_and_layouter_get_a_second_each_and_nobody_is_told_of_plans_that_cannot_fit(
    time_limit_seconds: float | None,
) -> None:
    planner, layouter, told = RememberingPlanner(), RememberingLayouter(), list[Incumbent]()
    baseline_lifespans = replay(GRAPH, baseline_steps(GRAPH)).lifespans
    result = api.plan(
        GRAPH,
        budget=LEAST_BYTES - 1,
        planner=planner,
        layout=layouter,
        time_limit_seconds=time_limit_seconds,
        on_progress=told.append,
    )
    assert (result.status, result.plan, told) == (Status.INFEASIBLE, None, [])
    assert planner.requests[0].budget_bytes == LEAST_BYTES
    placed = [request for request in layouter.requests if request.lifespans != baseline_lifespans]
    assert placed
    for request in (*planner.requests, *placed):
        assert request.time_limit_seconds is not None
        assert request.time_limit_seconds <= 1.0


def test_the_budget_that_is_named_works() -> None:
    result = api.plan(GRAPH, budget=LEAST_BYTES - 1)
    assert result.bottleneck_node is not None
    assert LEAST_BYTES <= result.smallest_known_peak_bytes < result.baseline_peak_bytes
    told = api.explain_missing_plan(result)
    assert f"node {result.bottleneck_node!r} needs that for its inputs and outputs together" in told
    assert f"({result.smallest_known_peak_bytes} bytes)" in told
    assert api.plan(GRAPH, budget=result.smallest_known_peak_bytes).status.has_plan


def test_without_a_plan_the_baseline_is_what_is_known_to_work() -> None:
    class Helpless:
        name = "helpless"

        def propose(self, request: PlanRequest) -> Proposal:
            return Proposal(Status.TIMEOUT, baseline_steps(request.graph))

    result = api.plan(GRAPH, budget=LEAST_BYTES - 1, planner=Helpless())
    assert (result.status, result.smallest_known_peak_bytes) == (Status.INFEASIBLE, result.baseline_peak_bytes)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), percent=st.integers(1, 90), planner=st.sampled_from(["greedy", "sqrt"]))
def test_whoever_asks_for_the_budget_that_is_named_gets_a_plan(seed: int, percent: int, planner: str) -> None:
    graph = random_graph(Random(seed), num_nodes=14)
    asked = partial(api.plan, graph, planner=planner, bound=False, keep_order=True)
    failed = asked(budget=max(1, graph_peak_bytes(graph) * percent // 100))
    if not failed.status.has_plan:
        named = asked(budget=failed.smallest_known_peak_bytes)
        assert named.plan is not None, failed


def graph_peak_bytes(graph: Graph) -> int:
    return replay(graph, baseline_steps(graph)).peak_bytes


def test_a_peak_that_is_met_but_not_found_again_is_not_named() -> None:
    class Forgetful:
        """Meets a quarter more than it is asked for, and has plans from 9 tenths of the plain peak up only."""

        name = "forgetful"

        def propose(self, request: PlanRequest) -> Proposal:
            plain_bytes = graph_peak_bytes(GRAPH)
            if request.budget_bytes >= plain_bytes * 9 // 10:
                return GreedyPlanner().propose(request)
            met = GreedyPlanner().propose(replace(request, budget_bytes=request.budget_bytes * 5 // 4))
            return Proposal(Status.TIMEOUT, met.steps)

    asked = partial(api.plan, GRAPH, planner=Forgetful(), layout=None, bound=False)
    result = asked(budget="40%")
    assert result.plan is None
    assert result.smallest_known_peak_bytes >= result.baseline_peak_bytes * 9 // 10
    assert asked(budget=result.smallest_known_peak_bytes).plan is not None


def test_inputs_that_need_more_than_any_node_are_no_node() -> None:
    inputs = [Input(name, 100) for name in ("x", "unread")]
    relu = Node("relu", "relu", 1, ("x",), (Value("y", 100),))
    nodes = with_inputs_held(inputs, [relu], ["y"])
    graph = Graph(name="g", inputs=tuple(inputs), nodes=nodes, order=tuple(one.name for one in nodes), outputs=("y",))
    result = api.plan(graph, budget=150, bound=False)
    assert (result.largest_working_set_bytes, result.bottleneck_node) == (200, None)
    assert "the graph's inputs need that before anything is computed" in api.explain_missing_plan(result)
