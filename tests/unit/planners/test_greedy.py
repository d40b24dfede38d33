"""The planner greedy: its plans against the referee, exhaustive search, and its own promises."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, pairwise, product

import pytest

from lowtide.ir import Graph, Incumbent, Scope, Status
from lowtide.ir.sequence import baseline_steps
from lowtide.planners.flat import Recomputation as Again
from lowtide.planners.flat import flatten, sequence_of
from lowtide.planners.greedy import GreedyPlanner
from lowtide.planners.profile import peak_bytes
from lowtide.planners.protocol import Planner, PlanRequest, Proposal
from lowtide.referee import baseline, largest_working_set, replay

WORK = 300_000


def propose(graph: Graph, budget_bytes: int, *, seed: int = 0, max_copies: int | None = None) -> Proposal:
    scope = Scope(max_copies=max_copies)
    request = PlanRequest(graph=graph, budget_bytes=budget_bytes, seed=seed, scope=scope)
    return GreedyPlanner(max_work=WORK).propose(request)


def between(graph: Graph, fraction: float) -> int:
    """A budget between the largest working set and the baseline's peak."""
    least, most = largest_working_set(graph).size_bytes, baseline(graph).peak_bytes
    return least + int(fraction * (most - least))


def shortest_by_exhaustion(graph: Graph, budget_bytes: int) -> int | None:
    """Least duration of any set of recomputations whose plan fits, by trying all of them."""
    flat = flatten(graph)
    pairs = [
        Again(stage, node)
        for stage, node in product(range(len(flat.nodes)), repeat=2)
        if node < stage <= flat.last_stage[node]
    ]
    best: int | None = None
    for number in range(len(pairs) + 1):
        for chosen in combinations(pairs, number):
            sequence = sequence_of(flat, chosen)
            duration = sum(graph.node_by_name[name].duration for name in sequence)
            if (best is None or duration < best) and peak_bytes(graph, sequence) <= budget_bytes:
                best = duration
    return best


def test_it_is_a_planner() -> None:
    assert isinstance(GreedyPlanner(), Planner)


def test_a_budget_of_the_baselines_peak_is_met_at_once_and_proven_optimal(random_graph: Callable[..., Graph]) -> None:
    for seed in range(30):
        graph = random_graph(seed, num_nodes=10)
        proposal = propose(graph, baseline(graph).peak_bytes)
        assert proposal.status is Status.OPTIMAL
        assert proposal.steps == baseline_steps(graph)
        assert proposal.lower_bound_duration == graph.baseline_duration


def test_what_it_calls_feasible_the_referee_accepts_within_the_budget(random_graph: Callable[..., Graph]) -> None:
    statuses = {Status.OPTIMAL: 0, Status.FEASIBLE: 0, Status.TIMEOUT: 0, Status.INFEASIBLE: 0}
    for seed in range(160):
        graph = random_graph(seed, num_nodes=6 + seed % 25)
        budget_bytes = between(graph, random.Random(seed).choice([0.3, 0.6, 0.9]))
        proposal = propose(graph, budget_bytes, seed=seed)
        statuses[proposal.status] += 1
        assert proposal.steps is not None
        replayed = replay(graph, proposal.steps)
        assert (replayed.peak_bytes <= budget_bytes) == (proposal.status is not Status.TIMEOUT)
        assert replayed.peak_bytes <= baseline(graph).peak_bytes
        if proposal.status is Status.FEASIBLE:
            assert proposal.incumbents[-1].duration == replayed.duration
    assert statuses[Status.FEASIBLE] >= 30


def test_small_graphs_against_exhaustive_search(random_graph: Callable[..., Graph]) -> None:
    num_solvable = num_found = num_optimal = 0
    for seed in range(120):
        graph = random_graph(seed, num_nodes=5, rich=seed % 2 == 0)
        budget_bytes = between(graph, 0.5)
        if budget_bytes >= baseline(graph).peak_bytes:
            continue
        shortest = shortest_by_exhaustion(graph, budget_bytes)
        proposal = propose(graph, budget_bytes)
        if shortest is None:
            assert proposal.status is Status.TIMEOUT
            continue
        num_solvable += 1
        if proposal.status is Status.FEASIBLE and proposal.steps is not None:
            num_found += 1
            duration = replay(graph, proposal.steps).duration
            assert duration >= shortest
            num_optimal += duration == shortest
    assert num_solvable >= 10
    assert num_found == num_solvable
    assert num_optimal >= 0.95 * num_solvable


@pytest.mark.parametrize("percent", [40, 50, 70])
def test_a_training_chain_fits_well_below_its_peak(percent: int, training_graph: Callable[..., Graph]) -> None:
    graph = training_graph(num_layers=48)
    budget_bytes = baseline(graph).peak_bytes * percent // 100
    proposal = propose(graph, budget_bytes)
    assert proposal.status is Status.FEASIBLE
    assert proposal.steps is not None
    replayed = replay(graph, proposal.steps)
    assert replayed.peak_bytes <= budget_bytes
    # One more forward is the most that checkpointing needs at these budgets.
    assert replayed.duration <= graph.baseline_duration + 48 * 10


def test_equal_seeds_give_equal_plans_and_other_seeds_are_allowed_others(training_graph: Callable[..., Graph]) -> None:
    graph = training_graph(num_layers=20)
    budget_bytes = baseline(graph).peak_bytes * 45 // 100
    plans = [propose(graph, budget_bytes, seed=seed).steps for seed in (1, 1, 2)]
    assert plans[0] == plans[1]


def test_relabelling_changes_nothing(random_graph: Callable[..., Graph]) -> None:
    for seed in range(15):
        graph = random_graph(seed, num_nodes=16)
        renamed = relabelled(graph)
        budget_bytes = between(graph, 0.6)
        first, second = propose(graph, budget_bytes), propose(renamed, budget_bytes)
        assert first.status is second.status
        assert first.steps is not None
        assert second.steps is not None
        assert replay(graph, first.steps).memory_bytes == replay(renamed, second.steps).memory_bytes


def relabelled(graph: Graph) -> Graph:
    """The same graph with every name turned round and its nodes in another sequence."""

    def turned(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(f"q{name[::-1]}" for name in names)

    def maybe(name: str | None) -> str | None:
        return None if name is None else f"q{name[::-1]}"

    nodes = tuple(
        replace(
            node,
            name=f"q{node.name[::-1]}",
            inputs=turned(node.inputs),
            after=turned(node.after),
            recompute_inputs=turned(node.recompute_inputs),
            outputs=tuple(
                replace(
                    value,
                    name=f"q{value.name[::-1]}",
                    alias_of=maybe(value.alias_of),
                    overwrites=maybe(value.overwrites),
                )
                for value in node.outputs
            ),
        )
        for node in reversed(graph.nodes)
    )
    inputs = tuple(replace(graph_input, name=f"q{graph_input.name[::-1]}") for graph_input in graph.inputs)
    return Graph(graph.name, inputs, nodes, turned(graph.outputs), turned(graph.order))


def test_scaling_sizes_and_budget_together_changes_nothing(random_graph: Callable[..., Graph]) -> None:
    for seed in range(15):
        graph = random_graph(seed, num_nodes=16)
        scaled = replace(
            graph,
            alignment=64,
            inputs=tuple(replace(i, size_bytes=64 * i.size_bytes) for i in graph.inputs),
            nodes=tuple(
                replace(
                    node,
                    workspace_bytes=64 * node.workspace_bytes,
                    outputs=tuple(replace(value, size_bytes=64 * value.size_bytes) for value in node.outputs),
                )
                for node in graph.nodes
            ),
        )
        budget_bytes = between(graph, 0.6)
        assert propose(graph, budget_bytes).steps == propose(scaled, 64 * budget_bytes).steps


@pytest.mark.parametrize("max_copies", [1, 2, 3])
def test_no_node_is_executed_more_often_than_the_scope_allows(
    max_copies: int, random_graph: Callable[..., Graph], training_graph: Callable[..., Graph]
) -> None:
    graphs = [*(random_graph(seed, num_nodes=20) for seed in range(20)), training_graph(num_layers=20)]
    most = 0
    for graph in graphs:
        proposal = propose(graph, between(graph, 0.4), max_copies=max_copies)
        assert proposal.steps is not None
        copies = replay(graph, proposal.steps).num_copies_by_node
        most = max(most, *copies.values())
    assert most == max_copies


@pytest.mark.parametrize("budget_bytes", [0, 1])
def test_a_hopeless_budget_gives_the_smallest_peak_met(budget_bytes: int, training_graph: Callable[..., Graph]) -> None:
    graph = training_graph(num_layers=20)
    proposal = propose(graph, budget_bytes)
    assert proposal.status is Status.TIMEOUT
    assert proposal.steps is not None
    assert proposal.incumbents == ()
    assert budget_bytes < replay(graph, proposal.steps).peak_bytes <= baseline(graph).peak_bytes


def test_a_graph_without_nodes_needs_no_steps() -> None:
    assert propose(Graph("empty", (), (), (), ()), 0).steps == ()


def test_progress_is_told_as_it_comes_and_is_the_course_of_the_search(training_graph: Callable[..., Graph]) -> None:
    graph = training_graph(num_layers=30)
    told: list[Incumbent] = []
    request = PlanRequest(graph=graph, budget_bytes=baseline(graph).peak_bytes * 45 // 100, on_progress=told.append)
    proposal = GreedyPlanner(max_work=WORK).propose(request)
    assert tuple(told) == proposal.incumbents
    durations = [incumbent.duration for incumbent in told]
    assert len(durations) >= 1
    assert all(a is not None and b is not None and a > b for a, b in pairwise(durations))


def test_an_error_in_the_progress_callback_arrives_as_itself(training_graph: Callable[..., Graph]) -> None:
    def fail(_: Incumbent) -> None:
        raise RuntimeError("the disk is full")

    graph = training_graph(num_layers=10)
    request = PlanRequest(graph=graph, budget_bytes=baseline(graph).peak_bytes * 60 // 100, on_progress=fail)
    with pytest.raises(RuntimeError, match="the disk is full"):
        GreedyPlanner(max_work=WORK).propose(request)


def test_it_stops_when_asked_and_keeps_its_best(training_graph: Callable[..., Graph]) -> None:
    graph = training_graph(num_layers=40)
    asked = threading.Event()

    def should_stop() -> bool:
        asked.set()
        return True

    request = PlanRequest(graph=graph, budget_bytes=baseline(graph).peak_bytes * 60 // 100, should_stop=should_stop)
    proposal = GreedyPlanner(max_work=10**15).propose(request)
    assert asked.is_set()
    assert proposal.steps is not None
    replay(graph, proposal.steps)


def test_a_time_limit_ends_it(training_graph: Callable[..., Graph]) -> None:
    graph = training_graph(num_layers=40)
    budget_bytes = baseline(graph).peak_bytes * 60 // 100
    started = time.monotonic()
    proposal = GreedyPlanner(max_work=10**15).propose(
        PlanRequest(graph=graph, budget_bytes=budget_bytes, time_limit_seconds=0.5)
    )
    assert 0.4 < time.monotonic() - started < 10
    assert proposal.status is Status.FEASIBLE
