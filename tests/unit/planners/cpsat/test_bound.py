"""The bound of small graphs: what the planner proves, for small graphs only, and none without its solver."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from lowtide.importers.generate import graph_from_spec
from lowtide.ir import Graph, Scope
from lowtide.planners.cpsat import MAX_BOUND_NODES, small_graph_bound
from lowtide.referee import baseline
from lowtide.testing import random_graph, training_chain_graph

Least = Callable[..., int | None]
Plain = Callable[[int, int], Graph]
Budgets = Callable[[Graph], list[int]]


def test_equals_the_exhaustive_optimum_of_plain_graphs(
    least_duration: Least, plain_graph: Plain, budgets: Budgets
) -> None:
    num_infeasible = num_exact = 0
    for graph in (plain_graph(seed, 6) for seed in range(8)):
        for budget_bytes in budgets(graph):
            bound = small_graph_bound(graph, budget_bytes, time_limit_seconds=30)
            assert bound is not None
            assert bound.scope == Scope()
            least = least_duration(graph, budget_bytes)
            assert bound.is_infeasible is (least is None)
            num_infeasible += least is None
            num_exact += least is not None
            assert least is None or bound.duration == least
    assert num_exact > 5


def test_never_above_the_optimum_with_every_feature(least_duration: Least, budgets: Budgets) -> None:
    num_compared = 0
    for graph in (random_graph(Random(seed), num_nodes=5) for seed in range(40)):
        for budget_bytes in budgets(graph):
            bound = small_graph_bound(graph, budget_bytes, time_limit_seconds=30)
            least = least_duration(graph, budget_bytes)
            if bound is None or least is None:
                continue
            assert not bound.is_infeasible
            assert bound.duration <= least
            num_compared += 1
    assert num_compared > 15


def test_only_small_graphs_are_tried() -> None:
    large = graph_from_spec(f"generate:layered?n={MAX_BOUND_NODES + 1}")
    assert small_graph_bound(large, 1 << 40, time_limit_seconds=30) is None


def test_durations_whose_sums_leave_64_bits_are_not_tried() -> None:
    small = graph_from_spec("generate:layered?n=50&seed=1")
    long = replace(small, nodes=tuple(replace(node, duration=2**53 - 1) for node in small.nodes))
    budget_bytes = baseline(long).peak_bytes - 1
    assert small_graph_bound(small, budget_bytes, time_limit_seconds=1) is not None
    assert small_graph_bound(long, budget_bytes, time_limit_seconds=1) is None


def test_without_time_there_is_none() -> None:
    assert small_graph_bound(training_chain_graph(4), 1, time_limit_seconds=0) is None


def test_stopped_at_once_it_claims_no_more_than_the_baseline() -> None:
    graph = graph_from_spec("generate:layered?n=30&seed=1")
    bound = small_graph_bound(graph, 20_000, time_limit_seconds=30, should_stop=lambda: True)
    assert bound is None or bound.duration == graph.baseline_duration


def test_without_the_solver_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("lowtide.planners.cpsat.course")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    assert small_graph_bound(graph_from_spec("generate:layered?n=30"), 20_000, time_limit_seconds=30) is None
