"""The planner sqrt: segments, what they recompute, and its answers."""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt

import pytest

from lowtide.ir import Graph, Incumbent, Scope, Status
from lowtide.ir.sequence import baseline_steps
from lowtide.planners.flat import Recomputation, flatten
from lowtide.planners.protocol import Planner, PlanRequest, Proposal
from lowtide.planners.sqrt import SqrtPlanner, recomputations_of_segments, segment_borders
from lowtide.referee import baseline, replay


def propose(graph: Graph, budget_bytes: int, *, max_copies: int | None = None) -> Proposal:
    scope = Scope(max_copies=max_copies)
    return SqrtPlanner().propose(PlanRequest(graph=graph, budget_bytes=budget_bytes, scope=scope))


@pytest.mark.parametrize(
    ("weights", "num_segments", "borders"),
    [
        ([1] * 9, 3, [3, 6, 9]),
        ([1] * 9, 1, [9]),
        ([1, 1], 5, [1, 2]),
        ([0, 0, 8, 1, 1], 2, [2, 5]),
        ([5, 5, 5, 5], 2, [2, 4]),
    ],
)
def test_borders_cut_into_parts_of_about_equal_weight(
    weights: list[int], num_segments: int, borders: list[int]
) -> None:
    assert segment_borders(weights, num_segments) == borders


def test_each_segment_but_the_last_is_recomputed_before_its_first_use(training_graph: Callable[..., Graph]) -> None:
    flat = flatten(training_graph(num_layers=5))  # f0 .. f4, loss, boundary, b4 .. b0 at 7 .. 11
    found = recomputations_of_segments(flat, [2, 4, 6])
    # a1 and a3 are read across a border and kept; a2 is read first by b3 (stage 8), a0 by b1 (stage 10).
    assert sorted(found) == [Recomputation(8, 2), Recomputation(10, 0)]


def test_sqrt_segments_take_a_chain_to_about_twice_the_square_root(training_graph: Callable[..., Graph]) -> None:
    num_layers = 100
    graph = training_graph(num_layers=num_layers)
    proposal = propose(graph, 0)
    assert proposal.status is Status.TIMEOUT
    assert proposal.steps is not None
    replayed = replay(graph, proposal.steps)
    # Checkpoints and one segment, ten bytes each, then gradients and weights' gradients (one byte each).
    assert replayed.peak_bytes <= (2 * isqrt(num_layers) + 5) * 10 + num_layers
    assert replayed.duration <= graph.baseline_duration + num_layers * 10
    assert max(replayed.num_copies_by_node.values()) == 2


@pytest.mark.parametrize("percent", [40, 60, 80])
def test_of_all_plans_that_fit_the_shortest_is_taken(percent: int, training_graph: Callable[..., Graph]) -> None:
    graph = training_graph(num_layers=64)
    budget_bytes = baseline(graph).peak_bytes * percent // 100
    proposal = propose(graph, budget_bytes)
    assert proposal.status is Status.FEASIBLE
    assert proposal.steps is not None
    replayed = replay(graph, proposal.steps)
    assert replayed.peak_bytes <= budget_bytes
    assert proposal.incumbents[-1].duration == replayed.duration
    # A smaller budget never has the shorter plan, as the same plans are tried for each.
    tighter = propose(graph, budget_bytes - 50)
    assert tighter.steps is not None
    assert replay(graph, tighter.steps).duration >= replayed.duration


def test_random_graphs_with_a_boundary_give_legal_plans(
    random_graph: Callable[..., Graph], with_backward: Callable[[Graph], Graph]
) -> None:
    num_recomputes = 0
    for seed in range(80):
        graph = with_backward(random_graph(seed, num_nodes=14))
        proposal = propose(graph, 0)
        assert proposal.steps is not None
        replayed = replay(graph, proposal.steps)
        assert replayed.peak_bytes <= baseline(graph).peak_bytes
        num_recomputes += replayed.num_recomputes
    assert num_recomputes > 20


def test_a_graph_without_a_boundary_keeps_its_baseline(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph(3, num_nodes=12)
    peak = baseline(graph).peak_bytes
    assert propose(graph, peak - 1) == Proposal(Status.TIMEOUT, baseline_steps(graph))


def test_a_budget_of_the_baselines_peak_is_met_at_once_and_proven_optimal(training_graph: Callable[..., Graph]) -> None:
    graph = training_graph(num_layers=10)
    proposal = propose(graph, baseline(graph).peak_bytes)
    assert proposal.status is Status.OPTIMAL
    assert proposal.steps == baseline_steps(graph)
    assert proposal.lower_bound_duration == graph.baseline_duration


def test_one_copy_of_each_node_allows_only_the_baseline(training_graph: Callable[..., Graph]) -> None:
    graph = training_graph(num_layers=10)
    assert propose(graph, 1, max_copies=1).steps == baseline_steps(graph)


def test_it_reports_progress_and_stops_when_asked(training_graph: Callable[..., Graph]) -> None:
    graph = training_graph(num_layers=10)
    told: list[Incumbent] = []
    peak = baseline(graph).peak_bytes
    planner = SqrtPlanner()
    assert isinstance(planner, Planner)
    proposal = planner.propose(PlanRequest(graph=graph, budget_bytes=peak * 7 // 10, on_progress=told.append))
    assert proposal.incumbents == tuple(told) != ()
    stopped = planner.propose(PlanRequest(graph=graph, budget_bytes=1, should_stop=lambda: True))
    assert stopped.steps == baseline_steps(graph)
