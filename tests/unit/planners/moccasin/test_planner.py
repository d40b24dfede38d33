"""The planner: equal to the exhaustive optimum, honest about its scope, and stoppable."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from lowtide.errors import InputError
from lowtide.ir import Compute, Graph, Node, Scope, Status, Value
from lowtide.ir.sequence import steps_from_sequence
from lowtide.planners.moccasin import MoccasinPlanner
from lowtide.planners.moccasin import model as model_module
from lowtide.planners.moccasin.phases import SearchLimits, solve
from lowtide.planners.moccasin.problem import problem_from_graph
from lowtide.planners.protocol import PlanRequest
from lowtide.referee import baseline, replay
from lowtide.testing import random_graph, training_chain_graph

TWO_COPIES = Scope(order="staged", max_copies=2)
Least = Callable[..., int | None]
Plain = Callable[[int, int], Graph]
Budgets = Callable[[Graph], list[int]]


def check_against(graph: Graph, budget_bytes: int, max_copies: int, least_duration: Least) -> Status:
    expected = least_duration(graph, budget_bytes, max_copies=max_copies, is_staged=True)
    proposal = MoccasinPlanner().propose(PlanRequest(graph, budget_bytes, scope=Scope("staged", max_copies)))
    if expected is None:
        assert proposal.status is Status.INFEASIBLE
        return proposal.status
    assert proposal.status is Status.OPTIMAL
    assert proposal.steps is not None
    replayed = replay(graph, proposal.steps)
    assert replayed.duration == expected == proposal.lower_bound_duration
    assert replayed.peak_bytes <= budget_bytes
    assert max(replayed.num_copies_by_node.values()) <= max_copies
    assert replayed.first_executions == graph.order
    return proposal.status


@pytest.mark.parametrize("max_copies", [1, 2, 3])
def test_equals_the_exhaustive_optimum(
    least_duration: Least, max_copies: int, plain_graph: Plain, budgets: Budgets
) -> None:
    graphs = [plain_graph(seed, 6) for seed in range(8)]
    seen = [check_against(graph, budget, max_copies, least_duration) for graph in graphs for budget in budgets(graph)]
    assert (Status.OPTIMAL if max_copies == 3 else Status.INFEASIBLE) in seen
    assert len(seen) > 10


def test_equals_the_exhaustive_optimum_with_every_feature(least_duration: Least, budgets: Budgets) -> None:
    graphs = [random_graph(Random(seed), num_nodes=5) for seed in range(24)]
    seen = [
        check_against(graph, budget_bytes, 2, least_duration)
        for graph in graphs
        for budget_bytes in budgets(graph)
        if problem_from_graph(graph, budget_bytes=budget_bytes, max_copies=2).is_exact
    ]
    assert seen.count(Status.OPTIMAL) > 5
    assert seen.count(Status.INFEASIBLE) > 5


def test_implied_constraints_cut_off_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = training_chain_graph(4)
    budget_bytes = baseline(graph).peak_bytes - 64
    found = []
    for most in (0, model_module.MAX_IMPLIED_LITERALS):
        monkeypatch.setattr("lowtide.planners.moccasin.phases.build_model", lambda p, m=most: build(p, m))
        limits = SearchLimits(seconds=60, threads=1, seed=0, should_stop=None, on_progress=None)
        outcome = solve(graph, problem_from_graph(graph, budget_bytes=budget_bytes, max_copies=2), limits)
        assert outcome.is_optimal
        found.append(outcome.lower_bound_duration)
    assert found[0] == found[1]
    assert found[0] > graph.baseline_duration


build_model = model_module.build_model


def build(problem: object, max_implied_literals: int) -> object:
    return build_model(problem, max_implied_literals=max_implied_literals)  # type: ignore[arg-type]


def test_steps_equal_those_of_the_sequence_where_nothing_is_shared(plain_graph: Plain, budgets: Budgets) -> None:
    for seed in range(6):
        graph = plain_graph(seed, 6)
        for budget_bytes in budgets(graph):
            steps = MoccasinPlanner().propose(PlanRequest(graph, budget_bytes, scope=TWO_COPIES)).steps
            if steps is not None:
                sequence = [step.node for step in steps if isinstance(step, Compute)]
                by_sequence = replay(graph, steps_from_sequence(graph, sequence))
                assert max(by_sequence.memory_bytes) == max(replay(graph, steps).memory_bytes)


@pytest.mark.parametrize("scope", [Scope(), Scope("fixed", 2), Scope("free", 2), Scope("staged")])
def test_it_claims_nothing_for_a_wider_scope(scope: Scope) -> None:
    graph = training_chain_graph(4)
    peak_bytes = baseline(graph).peak_bytes
    found = MoccasinPlanner().propose(PlanRequest(graph, peak_bytes - 64, scope=scope))
    assert found.status is Status.FEASIBLE
    assert found.lower_bound_duration == graph.baseline_duration
    none = MoccasinPlanner().propose(PlanRequest(graph, 1, scope=scope))
    assert none.status is Status.TIMEOUT
    assert none.steps is not None  # the one of the smallest peak
    assert replay(graph, none.steps).peak_bytes < peak_bytes


def test_a_graph_too_large_is_refused_with_its_size() -> None:
    nodes = [
        Node(f"n{i}", "op", 1, tuple(f"n{j}" for j in range(max(0, i - 3), i)), (Value(f"n{i}", 1),))
        for i in range(5000)
    ]
    graph = Graph("large", (), tuple(nodes), (), tuple(node.name for node in nodes), "unit")
    with pytest.raises(InputError, match=r"graph 'large' with 5000 nodes and 2 copies needs about \d+ events"):
        MoccasinPlanner().propose(PlanRequest(graph, 100, scope=TWO_COPIES))


def test_without_time_there_is_no_plan() -> None:
    graph = training_chain_graph(4)
    proposal = MoccasinPlanner().propose(PlanRequest(graph, 100, scope=TWO_COPIES, time_limit_seconds=0.0))
    assert proposal.status is Status.TIMEOUT
    assert proposal.lower_bound_duration == graph.baseline_duration
