"""The planner exact: its relaxation, what becomes of a solution, and what it claims, against exhaustive search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from lowtide.importers.generate import graph_from_spec
from lowtide.ir import Graph, Node, Scope, Status, Value
from lowtide.planners.bounds.families import fullest_stages, stages_from_graph
from lowtide.planners.core import load_bytes_by_stage, native_problem
from lowtide.planners.exact import ExactPlanner
from lowtide.planners.exact.grid import GridRelaxation
from lowtide.planners.exact.program import WholeProgram
from lowtide.planners.exact.relaxation import Relaxation
from lowtide.planners.exact.relaxing import Relaxing
from lowtide.planners.exact.rounding import recomputations_of
from lowtide.planners.flat import Recomputation, flatten
from lowtide.planners.protocol import Planner, PlanRequest, Proposal
from lowtide.planners.search import SearchPlanner
from lowtide.referee import baseline, largest_working_set, replay
from lowtide.testing import training_chain_graph

WORK = 300_000


def between(graph: Graph, fraction: float) -> int:
    least, most = largest_working_set(graph).size_bytes, baseline(graph).peak_bytes
    return least + int(fraction * (most - least))


def propose(
    graph: Graph, budget_bytes: int, *, seed: int = 0, scope: Scope | None = None, threads: int = 1
) -> Proposal:
    request = PlanRequest(graph, budget_bytes, scope=scope or Scope(), seed=seed, threads=threads)
    return ExactPlanner(max_work=WORK, max_search_nodes=500).propose(request)


def plain_graph(rng: Random, num_nodes: int) -> Graph:
    """One output a node, so that recomputation often pays and cascades."""
    nodes: list[Node] = []
    for index in range(num_nodes):
        made = [f"v{i}" for i in range(index)]
        inputs = rng.sample(made, min(index, rng.choice((1, 1, 2, 2))))
        nodes.append(
            Node(f"n{index}", "op", rng.randint(0, 9), tuple(inputs), (Value(f"v{index}", rng.randint(1, 9)),))
        )
    return Graph("plain", (), tuple(nodes), (f"v{num_nodes - 1}",), tuple(node.name for node in nodes), "unit")


# ---------------------------------------------------------------- the program
def test_a_knapsack_by_hand() -> None:
    """Cover 7 bytes with 5 (cost 50), 4 (cost 30), 3 (cost 29): 4 + 3 for 59 and not 5 + 3 for 79."""
    program = WholeProgram()
    variables = [program.add_variable(cost=cost) for cost in (50, 30, 29)]
    program.add_row(list(zip(variables, (5, 4, 3), strict=True)), least=7)
    solution = program.solve(time_limit_seconds=None, max_search_nodes=None)
    assert (solution.cost, solution.is_solved, solution.is_infeasible) == (59, True, False)
    assert solution.is_chosen == [False, True, True]
    program.add_row([(variables[0], 5), (variables[1], 4)], least=9)
    assert program.solve(time_limit_seconds=None, max_search_nodes=None).cost == 80
    program.add_row([(variables[0], 1)], least=2)
    assert program.solve(time_limit_seconds=None, max_search_nodes=None).is_infeasible


def test_fractions_are_counted_in_the_linear_relaxation() -> None:
    """4 of 5 bytes for 4 and 3 of 3 bytes for 1: the second whole, a quarter of the first."""
    program = WholeProgram()
    dear, cheap = program.add_variable(cost=4), program.add_variable(cost=1)
    program.add_row([(dear, 4), (cheap, 3)], least=4)
    assert program.count_fractional([dear, cheap], time_limit_seconds=None, max_iterations=100) == 1
    assert program.count_fractional([cheap], time_limit_seconds=None, max_iterations=100) == 0
    program.add_row([(dear, 1)], least=2)
    assert program.count_fractional([dear, cheap], time_limit_seconds=None, max_iterations=100) is None


# ---------------------------------------------------------------- the relaxation, rounded
def chain_of_two_uses() -> Graph:
    """a is used at once and at the end; big values lie between: a (4 bytes) can be evicted across them."""
    return Graph(
        "two uses",
        (),
        (
            Node("a", "op", 3, (), (Value("a", 4),)),
            Node("b", "op", 5, ("a",), (Value("b", 1),)),
            Node("c", "op", 1, ("b",), (Value("c", 9),)),
            Node("d", "op", 1, ("c",), (Value("d", 1),)),
            Node("e", "op", 1, ("d", "a"), (Value("e", 1),)),
        ),
        ("e",),
        ("a", "b", "c", "d", "e"),
        "unit",
    )


def test_one_recomputation_by_hand() -> None:
    graph = chain_of_two_uses()  # loads 4, 5, 4+1+9, 4+9+1, 4+1+1
    stages = stages_from_graph(graph)
    assert stages.overloaded(10) == (2, 3)
    relaxed = Relaxation(stages, 10, (2, 3)).solve(time_limit_seconds=None, max_search_nodes=None)
    assert (relaxed.extra_duration, relaxed.is_solved) == (3, True)
    assert relaxed.changed is not None
    a = next(index for index, family in enumerate(stages.families) if family.root == "a")
    assert {(a, 0), (a, 1)} <= relaxed.changed
    assert recomputations_of(stages, (2, 3), relaxed.changed) == (Recomputation(stage=4, node=0),)


def test_a_dead_input_is_made_again_beside_its_reader_or_waits() -> None:
    """u = f(p), p dead after u; u absent at stage 3 and used at 4."""
    graph = Graph(
        "dead input",
        (),
        (
            Node("p", "op", 1, (), (Value("p", 2),)),
            Node("u", "op", 1, ("p",), (Value("u", 5),)),
            Node("v", "op", 1, ("u",), (Value("v", 1),)),
            Node("big", "op", 1, ("v",), (Value("big", 9),)),
            Node("end", "op", 1, ("big", "u"), (Value("end", 1),)),
        ),
        ("end",),
        ("p", "u", "v", "big", "end"),
        "unit",
    )
    stages = stages_from_graph(graph)
    index_of = {family.root: index for index, family in enumerate(stages.families)}
    absent = (index_of["u"], 0)
    again = recomputations_of(stages, (3,), frozenset({absent}))
    assert again == (Recomputation(4, 0), Recomputation(4, 1))
    waiting = recomputations_of(stages, (3,), frozenset({absent, (index_of["p"], 0)}))
    assert waiting == (Recomputation(4, 1),)


def test_what_differs_nowhere_needs_no_recomputation(random_graph: Callable[..., Graph]) -> None:
    for seed in range(40):
        stages = stages_from_graph(random_graph(seed, num_nodes=15))
        assert recomputations_of(stages, (3, 8, 9), frozenset()) == ()


@pytest.mark.parametrize("kind", [Relaxation, GridRelaxation])
def test_a_solution_over_all_stages_is_resident_as_it_says(kind: type[Relaxation] | type[GridRelaxation]) -> None:
    """Where every stage is watched, the load of the plan at stages without recomputation is that of the solution."""
    num_checked = 0
    for seed in range(60):
        graph = plain_graph(Random(seed), 10)
        stages, flat = stages_from_graph(graph), flatten(graph)
        budget_bytes = between(graph, 0.5)
        watched = tuple(range(len(graph.nodes)))
        relaxed = kind(stages, budget_bytes, watched).solve(time_limit_seconds=None, max_search_nodes=None)
        if relaxed.changed is None:
            continue
        again = recomputations_of(stages, watched, relaxed.changed)
        cost = sum(flat.recompute_duration[recomputation.node] for recomputation in again)
        assert cost == relaxed.extra_duration if kind is GridRelaxation else cost >= relaxed.extra_duration
        loads = load_bytes_by_stage(native_problem(flat), again)
        busy = {recomputation.stage for recomputation in again}
        for stage, load in enumerate(loads):
            if stage not in busy:
                num_checked += 1
                assert load <= budget_bytes
    assert num_checked > 300


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Relaxation, GridRelaxation])
def test_bounds_never_exceed_the_optimum_whatever_is_watched(
    kind: type[Relaxation] | type[GridRelaxation],
    random_graph: Callable[..., Graph],
    least_duration: Callable[..., int | None],
) -> None:
    num_tight = 0
    for seed in range(90):
        graph = plain_graph(Random(seed), 6) if seed % 2 else random_graph(seed, num_nodes=5)
        budget_bytes = between(graph, Random(seed).choice([0.0, 0.5, 0.9]))
        optimum = least_duration(graph, budget_bytes)
        stages = stages_from_graph(graph)
        rng = Random(seed)
        for watched in (
            tuple(range(len(graph.nodes))),
            stages.overloaded(budget_bytes),
            tuple(sorted(rng.sample(range(len(graph.nodes)), 2))),
        ):
            relaxed = kind(stages, budget_bytes, watched).solve(time_limit_seconds=None, max_search_nodes=None)
            if optimum is None:
                continue
            assert not relaxed.is_infeasible
            assert graph.baseline_duration + relaxed.extra_duration <= optimum
            num_tight += graph.baseline_duration + relaxed.extra_duration == optimum > graph.baseline_duration
    assert num_tight > 12


def test_the_finer_relaxation_counts_what_is_live_but_absent() -> None:
    """q and u are both absent at stages 3 and 5; u is used at 4, so q runs for it, and again for its own use at 6."""
    graph = Graph(
        "twice",
        (),
        (
            Node("q", "op", 10, (), (Value("q", 5),)),
            Node("u", "op", 1, ("q",), (Value("u", 5),)),
            Node("a", "op", 1, ("u",), (Value("a", 1),)),
            Node("big1", "op", 1, ("a",), (Value("big1", 10),)),
            Node("b", "op", 1, ("big1", "u"), (Value("b", 1),)),
            Node("big2", "op", 1, ("b",), (Value("big2", 10),)),
            Node("c", "op", 1, ("big2", "q"), (Value("c", 1),)),
        ),
        ("c",),
        ("q", "u", "a", "big1", "b", "big2", "c"),
        "unit",
    )
    stages = stages_from_graph(graph)
    tight = 11  # nothing but big1 and one byte at stage 3, nothing but big2 and one byte at stage 5
    coarse, fine = (
        kind(stages, tight, (3, 5)).solve(time_limit_seconds=None, max_search_nodes=None)
        for kind in (Relaxation, GridRelaxation)
    )
    assert (coarse.extra_duration, fine.extra_duration) == (10 + 1, 10 + 1 + 10)


# ---------------------------------------------------------------- rounds
def test_rounds_watch_more_until_nothing_is_left() -> None:
    graph = graph_from_spec("generate:layered?n=40&seed=1")
    relaxing = Relaxing(flatten(graph), between(graph, 0.6))
    bounds: list[int] = []
    while not relaxing.is_exhausted:
        relaxing.run(seconds=None, max_search_nodes=50)
        bounds.append(relaxing.extra_duration)
    assert bounds == sorted(bounds)
    assert bounds[-1] > 0


# ---------------------------------------------------------------- the planner
def test_it_is_a_planner() -> None:
    assert isinstance(ExactPlanner(), Planner)


@pytest.mark.slow
def test_what_it_calls_optimal_or_infeasible_is(
    random_graph: Callable[..., Graph], least_duration: Callable[..., int | None]
) -> None:
    num_optimal = num_infeasible = 0
    for seed in range(80):
        graph = plain_graph(Random(seed), 6) if seed % 2 else random_graph(seed, num_nodes=5)
        budget_bytes = between(graph, Random(seed).choice([0.0, 0.5, 0.9]))
        optimum = least_duration(graph, budget_bytes)
        proposal = propose(graph, budget_bytes, seed=seed)
        num_optimal += proposal.status is Status.OPTIMAL
        num_infeasible += proposal.status is Status.INFEASIBLE
        if proposal.status is Status.OPTIMAL:
            assert proposal.steps is not None
            replayed = replay(graph, proposal.steps)
            assert (replayed.duration, replayed.peak_bytes <= budget_bytes) == (optimum, True)
        if proposal.status is Status.INFEASIBLE:
            assert optimum is None
        if proposal.lower_bound_duration is not None and optimum is not None:
            assert proposal.lower_bound_duration <= optimum
    assert num_optimal > 30
    assert num_infeasible > 3


@pytest.mark.parametrize(
    ("spec", "percent"),
    [
        ("generate:transformer?layers=12", 50),
        ("generate:transformer?layers=12", 60),
        ("generate:unet?depth=4", 60),
        ("generate:resnet?blocks=20", 50),
    ],
)
@pytest.mark.parametrize("planner", [ExactPlanner(), SearchPlanner()])
def test_training_graphs_are_proven_optimal(planner: Planner, spec: str, percent: int) -> None:
    graph = graph_from_spec(spec)
    budget_bytes = baseline(graph).peak_bytes * percent // 100
    proposal = planner.propose(PlanRequest(graph, budget_bytes))
    assert proposal.status is Status.OPTIMAL
    assert proposal.steps is not None
    replayed = replay(graph, proposal.steps)
    assert replayed.peak_bytes <= budget_bytes
    assert replayed.duration == proposal.lower_bound_duration


def test_the_same_seed_gives_the_same_plan() -> None:
    graph = graph_from_spec("generate:layered?n=60&seed=2")
    budget_bytes = between(graph, 0.7)
    first = propose(graph, budget_bytes, seed=3, threads=2)
    assert first.steps is not None
    assert propose(graph, budget_bytes, seed=3, threads=2).steps == first.steps


def test_what_is_proven_is_claimed_of_the_given_order_alone() -> None:
    graph = training_chain_graph(12, size_bytes=10, duration=10)
    budget_bytes = between(graph, 0.5)
    fixed = propose(graph, budget_bytes)
    free = propose(graph, budget_bytes, scope=Scope(order="free", max_copies=3))
    assert (fixed.status, fixed.scope) == (Status.OPTIMAL, None)
    assert (free.status, free.scope) == (Status.OPTIMAL, Scope(order="fixed", max_copies=3))
    assert free.lower_bound_duration == fixed.lower_bound_duration


def test_that_nothing_fits_in_the_given_order_is_not_claimed_of_others(random_graph: Callable[..., Graph]) -> None:
    num_infeasible = 0
    for seed in range(20):
        graph = random_graph(seed, num_nodes=5)
        budget_bytes = between(graph, 0.0)
        if propose(graph, budget_bytes).status is not Status.INFEASIBLE:
            continue
        free = propose(graph, budget_bytes, scope=Scope(order="free"))
        assert (free.status, free.scope, free.lower_bound_duration) == (Status.TIMEOUT, None, None)
        num_infeasible += 1
    assert num_infeasible >= 2


def test_copies_are_limited() -> None:
    graph = graph_from_spec("generate:transformer?layers=3")
    budget_bytes = baseline(graph).peak_bytes * 60 // 100
    for max_copies in (1, 2):
        proposal = propose(graph, budget_bytes, scope=Scope(max_copies=max_copies))
        assert proposal.steps is not None
        assert max(replay(graph, proposal.steps).num_copies_by_node.values()) <= max_copies


def test_it_stops_when_asked() -> None:
    graph = graph_from_spec("generate:layered?n=250&seed=1")
    request = PlanRequest(graph, between(graph, 0.6), should_stop=lambda: True)
    proposal = ExactPlanner().propose(request)
    assert proposal.status in (Status.TIMEOUT, Status.FEASIBLE)


def test_progress_tells_the_bound() -> None:
    graph = graph_from_spec("generate:transformer?layers=6")
    budget_bytes = baseline(graph).peak_bytes * 60 // 100
    proposal = propose(graph, budget_bytes)
    assert proposal.incumbents[-1].lower_bound_duration == proposal.lower_bound_duration


def test_fewer_watched_stages_bound_less() -> None:
    graph = graph_from_spec("generate:layered?n=60&seed=3")
    stages, budget_bytes = stages_from_graph(graph), between(graph, 0.8)
    overloaded = stages.overloaded(budget_bytes)
    few = fullest_stages(stages, overloaded, max_stages=2)
    solved = [
        Relaxation(stages, budget_bytes, watched).solve(time_limit_seconds=None, max_search_nodes=None)
        for watched in (few, overloaded)
    ]
    assert solved[0].extra_duration < solved[1].extra_duration
    assert replace(solved[0], changed=None).is_solved
