"""The planners: the program's optimum is that of all staged plans; both are honest, and stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from random import Random

import pytest

from lowtide.errors import InputError
from lowtide.ir import Graph, Incumbent, Node, Scope, Status, Value
from lowtide.ir.sequence import steps_from_sequence
from lowtide.planners.checkmate import CheckmateLpPlanner, CheckmatePlanner
from lowtide.planners.checkmate import planner as planner_module
from lowtide.planners.checkmate.instance import instance_from_flat, num_nonzeros
from lowtide.planners.checkmate.model import build_program
from lowtide.planners.flat import flatten
from lowtide.planners.protocol import Planner, PlanRequest
from lowtide.referee import baseline, largest_working_set, replay
from lowtide.testing import random_graph, training_chain_graph

PLANNERS = [CheckmatePlanner(), CheckmateLpPlanner()]


def plain_graph(rng: Random, num_nodes: int) -> Graph:
    """One to two outputs a node, no aliases, the last value is the output."""
    nodes: list[Node] = []
    for index in range(num_nodes):
        made = [value.name for node in nodes for value in node.outputs]
        inputs = rng.sample(made, min(len(made), rng.choice((1, 1, 2, 2, 3))))
        outputs = [Value(f"v{index}.{i}", rng.randint(1, 9)) for i in range(rng.choice((1, 1, 1, 2)))]
        workspace_bytes = rng.choice((0, 0, 3))
        nodes.append(Node(f"n{index}", "op", rng.randint(1, 9), tuple(inputs), tuple(outputs), workspace_bytes))
    kept = (nodes[-1].outputs[0].name,)
    return Graph("plain", (), tuple(nodes), kept, tuple(node.name for node in nodes), "unit")


def least_staged_duration(graph: Graph, budget_bytes: int) -> int | None:
    """By trying every set of recomputations; the referee says what each needs."""
    pairs = [(stage, node) for stage in range(len(graph.order)) for node in range(stage)]
    best: int | None = None
    for size in range(len(pairs) + 1):
        for chosen in combinations(pairs, size):
            sequence = [
                graph.order[node]
                for stage in range(len(graph.order))
                for node in [*(node for at, node in chosen if at == stage), stage]
            ]
            figures = replay(graph, steps_from_sequence(graph, sequence))
            if figures.peak_bytes <= budget_bytes and (best is None or figures.duration < best):
                best = figures.duration
    return best


@pytest.mark.parametrize("seed", range(5))
def test_the_program_finds_the_best_staged_plan(seed: int) -> None:
    graph = plain_graph(Random(seed), 5)
    low, high = largest_working_set(graph).size_bytes, baseline(graph).peak_bytes
    for budget_bytes in sorted({low, (low + high) // 2, high}):
        least = least_staged_duration(graph, budget_bytes)
        proposal = CheckmatePlanner().propose(PlanRequest(graph, budget_bytes))
        if least is None:
            assert proposal.status is Status.TIMEOUT
            continue
        assert proposal.steps is not None
        figures = replay(graph, proposal.steps)
        assert figures.duration == least
        assert figures.peak_bytes <= budget_bytes
        assert (proposal.status is Status.OPTIMAL) == (least == graph.baseline_duration)
        assert proposal.lower_bound_duration == graph.baseline_duration


@pytest.mark.parametrize("planner", PLANNERS, ids=lambda planner: planner.name)
def test_plans_keep_the_rules_with_every_feature(planner: Planner) -> None:
    num_plans = 0
    for seed in range(30):
        graph = random_graph(Random(seed), num_nodes=6)
        low, high = largest_working_set(graph).size_bytes, baseline(graph).peak_bytes
        proposal = planner.propose(PlanRequest(graph, (low + high) // 2, scope=Scope(max_copies=3)))
        if proposal.status in (Status.FEASIBLE, Status.OPTIMAL):
            assert proposal.steps is not None
            figures = replay(graph, proposal.steps)
            assert figures.peak_bytes <= (low + high) // 2
            assert figures.first_executions == graph.order
            assert max(figures.num_copies_by_node.values()) <= 3
            num_plans += figures.duration > graph.baseline_duration
    assert num_plans > 0


def test_rounding_never_beats_the_program() -> None:
    graph = training_chain_graph(6, size_bytes=4)
    request = PlanRequest(graph, baseline(graph).peak_bytes * 7 // 10)
    durations = []
    for planner in PLANNERS:
        proposal = planner.propose(request)
        assert proposal.status is Status.FEASIBLE
        assert proposal.steps is not None
        durations.append(replay(graph, proposal.steps).duration)
    assert graph.baseline_duration < durations[0] <= durations[1]


def test_the_size_of_a_program_is_known_before_it_is_built() -> None:
    for graph in (training_chain_graph(5), plain_graph(Random(1), 12)):
        instance = instance_from_flat(flatten(graph), budget_bytes=100, max_copies=None)
        built = build_program(instance)[0].num_nonzeros
        assert 0.7 * built < num_nonzeros(instance) < 1.5 * built


@pytest.mark.parametrize("planner", PLANNERS, ids=lambda planner: planner.name)
def test_a_graph_too_large_is_refused_with_its_size(planner: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner_module, "MAX_NONZEROS", 50)
    graph = training_chain_graph(20)
    message = (
        rf"planner {planner.name}: .* 42 nodes needs a program of about \d+ nonzeros, more than 50: use planner 'se"
    )
    with pytest.raises(InputError, match=message):
        planner.propose(PlanRequest(graph, baseline(graph).peak_bytes - 64))


@pytest.mark.parametrize("planner", PLANNERS, ids=lambda planner: planner.name)
def test_no_copies_are_refused(planner: Planner) -> None:
    graph = training_chain_graph(3)
    with pytest.raises(InputError, match=r"max_copies 0 must be at least 1: every node is executed once"):
        planner.propose(PlanRequest(graph, baseline(graph).peak_bytes - 1, scope=Scope(max_copies=0)))


@pytest.mark.parametrize("planner", PLANNERS, ids=lambda planner: planner.name)
@pytest.mark.parametrize(
    "limit",
    [
        lambda request: replace(request, should_stop=lambda: True),
        lambda request: replace(request, time_limit_seconds=0.0),
    ],
    ids=["asked", "time"],
)
def test_they_stop(planner: Planner, limit: Callable[[PlanRequest], PlanRequest]) -> None:
    graph = training_chain_graph(8)
    proposal = planner.propose(limit(PlanRequest(graph, baseline(graph).peak_bytes * 7 // 10)))
    assert proposal.status in (Status.TIMEOUT, Status.FEASIBLE)


def test_progress_is_told() -> None:
    graph = training_chain_graph(6, size_bytes=4)
    seen: list[Incumbent] = []
    request = PlanRequest(graph, baseline(graph).peak_bytes * 7 // 10, on_progress=seen.append)
    proposal = CheckmatePlanner().propose(request)
    assert seen == list(proposal.incumbents)
    durations = [incumbent.duration for incumbent in seen]
    assert durations == sorted(durations, key=lambda duration: -(duration or 0))
    assert proposal.steps is not None
    assert durations[-1] == replay(graph, proposal.steps).duration


def test_they_are_planners() -> None:
    assert [planner.name for planner in PLANNERS] == ["checkmate", "checkmate-lp"]
    assert all(isinstance(planner, Planner) for planner in PLANNERS)
