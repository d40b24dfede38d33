"""Orders for the planner search: legal, better, and true to what the referee counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from lowtide.importers.generate import graph_from_spec
from lowtide.ir import Graph, Incumbent, Scope, Status
from lowtide.planners.answers import steps_of
from lowtide.planners.core import load_bytes_by_stage, native_problem
from lowtide.planners.flat import Recomputation, flatten
from lowtide.planners.greedy import GreedyPlanner
from lowtide.planners.protocol import PlanRequest
from lowtide.planners.search import SearchPlanner
from lowtide.planners.search_order import order_plan, precedence_of
from lowtide.referee import baseline, replay

FREE = Scope(order="free")


def overflow_of(loads: list[int], budget_bytes: int) -> int:
    return sum(max(0, load - budget_bytes) for load in loads)


def test_a_better_order_is_legal_and_its_overflow_is_that_of_the_new_graph(random_graph: Callable[..., Graph]) -> None:
    num_changed = 0
    for seed in range(80):
        graph = random_graph(seed, num_nodes=8 + seed % 20)
        budget_bytes = baseline(graph).peak_bytes * 2 // 3
        flat = flatten(graph)
        ordering = order_plan(flat, (), budget_bytes=budget_bytes, seed=seed, max_work=200_000, should_stop=None)
        loads = load_bytes_by_stage(native_problem(flatten(ordering.graph)), ())
        assert overflow_of(loads, budget_bytes) == ordering.overflow_bytes
        assert ordering.overflow_bytes <= overflow_of(load_bytes_by_stage(native_problem(flat), ()), budget_bytes)
        replayed = replay(graph, steps_of(flatten(ordering.graph), ()))
        assert replayed.first_executions == ordering.graph.order
        num_changed += ordering.graph.order != graph.order
    assert num_changed >= 20


def test_recomputations_move_with_the_order_of_a_plan(random_graph: Callable[..., Graph]) -> None:
    num_moved = 0
    for seed in range(60):
        graph = random_graph(seed, num_nodes=20, rich=seed % 2 == 0)
        flat = flatten(graph)
        again = [
            Recomputation(stage, node)
            for node, stage in enumerate(flat.last_stage)
            if stage > node and (seed + node) % 4 == 0
        ]
        ordering = order_plan(flat, again, budget_bytes=0, seed=seed, max_work=200_000, should_stop=None)
        moved = flatten(ordering.graph)
        legal = [r for r in ordering.recomputations if r.node < r.stage <= moved.last_stage[r.node]]
        replay(graph, steps_of(moved, legal))
        names = {moved.nodes[r.node].name for r in ordering.recomputations}
        assert names <= {flat.nodes[r.node].name for r in again}
        num_moved += len(names)
    assert num_moved >= 60


def test_what_touches_an_overwritten_storage_keeps_its_order(random_graph: Callable[..., Graph]) -> None:
    num_overwriting = 0
    for seed in range(40):
        graph = random_graph(seed, num_nodes=25)
        overwriting = [node for node in graph.nodes if any(value.overwrites for value in node.outputs)]
        num_overwriting += len(overwriting)
        position = {name: index for index, name in enumerate(graph.order)}
        reached: dict[int, set[int]] = {}
        for first, second in reversed(precedence_of(graph)):
            assert first < second
            reached.setdefault(first, set()).update({second}, reached.get(second, ()))
        for node in overwriting:
            taken = {value.overwrites for value in node.outputs}
            for reader in graph.nodes:
                if reader is not node and taken.intersection(reader.inputs):
                    assert position[node.name] in reached[position[reader.name]]
    assert num_overwriting >= 10


def test_order_alone_makes_a_layered_graph_fit_and_is_proven_optimal() -> None:
    graph = graph_from_spec("generate:layered?n=120&seed=3")
    budget_bytes = baseline(graph).peak_bytes * 90 // 100
    request = PlanRequest(graph=graph, budget_bytes=budget_bytes, scope=FREE)
    proposal = SearchPlanner(max_work=100_000_000).propose(request)
    assert proposal.status is Status.OPTIMAL
    assert proposal.steps is not None
    replayed = replay(graph, proposal.steps)
    assert replayed.duration == graph.baseline_duration
    assert replayed.peak_bytes <= budget_bytes
    assert replayed.first_executions != graph.order


def test_order_and_recomputation_together_fit_where_the_given_order_does_not() -> None:
    graph = graph_from_spec("generate:layered?n=120&seed=1")
    budget_bytes = baseline(graph).peak_bytes * 50 // 100
    fixed = PlanRequest(graph=graph, budget_bytes=budget_bytes)
    assert GreedyPlanner(max_work=20_000_000).propose(fixed).status is Status.TIMEOUT
    proposal = SearchPlanner(max_work=200_000_000).propose(replace(fixed, scope=FREE))
    assert proposal.status is Status.FEASIBLE
    assert proposal.steps is not None
    assert replay(graph, proposal.steps).peak_bytes <= budget_bytes
    assert SearchPlanner(max_work=200_000_000).propose(replace(fixed, scope=FREE)).steps == proposal.steps


@pytest.mark.parametrize("threads", [1, 2])
def test_a_training_graph_keeps_its_order_where_another_gains_nothing(threads: int) -> None:
    graph = graph_from_spec("generate:transformer?layers=6")
    budget_bytes = baseline(graph).peak_bytes * 60 // 100
    request = PlanRequest(graph=graph, budget_bytes=budget_bytes, scope=FREE, threads=threads)
    proposal = SearchPlanner(max_work=20_000_000).propose(request)
    assert (proposal.status, proposal.scope) == (Status.OPTIMAL, Scope(order="fixed"))
    assert proposal.steps is not None
    assert replay(graph, proposal.steps).first_executions == graph.order


def test_everything_of_the_format_is_planned_in_any_order_by_the_rules(random_graph: Callable[..., Graph]) -> None:
    num_left = num_fitting = 0
    for seed in range(100):
        graph = random_graph(seed, num_nodes=8 + seed % 20)
        budget_bytes = baseline(graph).peak_bytes * 4 // 5
        proposal = SearchPlanner(max_work=200_000).propose(
            PlanRequest(graph=graph, budget_bytes=budget_bytes, scope=FREE)
        )
        assert proposal.steps is not None
        replayed = replay(graph, proposal.steps)
        assert (replayed.peak_bytes <= budget_bytes) == (proposal.status is not Status.TIMEOUT)
        num_fitting += proposal.status is not Status.TIMEOUT
        num_left += replayed.first_executions != graph.order
    assert num_left >= 10
    assert num_fitting >= 15


def test_a_plan_that_is_handed_over_is_the_start_in_its_own_order() -> None:
    graph = graph_from_spec("generate:layered?n=120&seed=1")
    peak_bytes = baseline(graph).peak_bytes
    request = PlanRequest(graph=graph, budget_bytes=peak_bytes * 55 // 100, scope=FREE)
    larger = SearchPlanner(max_work=200_000_000).propose(request)
    assert larger.steps is not None
    order = replay(graph, larger.steps).first_executions
    assert order != graph.order
    tighter = replace(request, budget_bytes=peak_bytes * 53 // 100, start=larger.steps)
    started = SearchPlanner(max_work=200_000_000).propose(tighter)
    assert started.steps is not None
    found = replay(graph, started.steps)
    assert (found.first_executions, found.peak_bytes <= tighter.budget_bytes) == (order, True)
    assert SearchPlanner(max_work=200_000_000).propose(tighter).steps == started.steps


def test_a_start_of_another_graph_is_passed_over() -> None:
    graph, other = (graph_from_spec(f"generate:layered?n={n}&seed=2") for n in (30, 20))
    start = SearchPlanner(max_work=100_000).propose(PlanRequest(graph=other, budget_bytes=10**9)).steps
    request = PlanRequest(graph=graph, budget_bytes=baseline(graph).peak_bytes * 90 // 100, scope=FREE)
    planner = SearchPlanner(max_work=2_000_000)
    assert planner.propose(replace(request, start=start)).steps == planner.propose(request).steps


def test_no_plan_is_told_with_a_bound_above_it() -> None:
    told: list[Incumbent] = []
    for seed in range(30):
        graph = graph_from_spec(f"generate:layered?n=12&seed={seed}")
        budget_bytes = baseline(graph).peak_bytes * 9 // 10
        request = PlanRequest(graph=graph, budget_bytes=budget_bytes, scope=FREE, on_progress=told.append)
        SearchPlanner(max_work=200_000).propose(request)
    both = [(one.lower_bound_duration or 0, one.duration) for one in told if one.duration is not None]
    assert len(both) > 20
    assert all(bound <= duration for bound, duration in both)


def test_a_start_in_another_order_is_passed_over_where_the_order_is_kept() -> None:
    graph = graph_from_spec("generate:layered?n=60&seed=2")
    free = PlanRequest(graph=graph, budget_bytes=baseline(graph).peak_bytes * 80 // 100, scope=FREE)
    start = SearchPlanner(max_work=20_000_000).propose(free).steps
    assert start is not None
    assert replay(graph, start).first_executions != graph.order
    kept = replace(free, scope=Scope())
    proposal = SearchPlanner(max_work=20_000_000).propose(replace(kept, start=start))
    assert proposal.steps == SearchPlanner(max_work=20_000_000).propose(kept).steps
