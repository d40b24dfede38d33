"""The planner search: its plans against the referee, exhaustive search, greedy, and its own promises."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from itertools import combinations, pairwise, product
from typing import Any, Literal

import pytest

from lowtide import _search
from lowtide.importers.generate import graph_from_spec
from lowtide.ir import Graph, Incumbent, Scope, Status
from lowtide.ir.sequence import baseline_steps
from lowtide.planners import search_greedy
from lowtide.planners.core import native_problem
from lowtide.planners.exact.relaxing import Relaxing
from lowtide.planners.flat import Recomputation as Again
from lowtide.planners.flat import flatten, sequence_of
from lowtide.planners.greedy import GreedyPlanner
from lowtide.planners.profile import peak_bytes
from lowtide.planners.protocol import Planner, PlanRequest, Proposal
from lowtide.planners.search import SearchPlanner
from lowtide.referee import baseline, largest_working_set, replay

WORK = 300_000


def propose(
    graph: Graph,
    budget_bytes: int,
    *,
    seed: int = 0,
    threads: int = 1,
    max_copies: int | None = None,
    work: int = WORK,
    order: Literal["fixed", "free"] = "fixed",
    seconds: float | None = None,
) -> Proposal:
    request = PlanRequest(
        graph=graph,
        budget_bytes=budget_bytes,
        seed=seed,
        threads=threads,
        scope=Scope(order, max_copies),
        time_limit_seconds=seconds,
    )
    return SearchPlanner(max_work=work).propose(request)


def between(graph: Graph, fraction: float) -> int:
    """A budget between the largest working set and the baseline's peak."""
    least, most = largest_working_set(graph).size_bytes, baseline(graph).peak_bytes
    return least + int(fraction * (most - least))


def duration_of(graph: Graph, proposal: Proposal) -> int:
    assert proposal.steps is not None
    return replay(graph, proposal.steps).duration


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
    assert isinstance(SearchPlanner(), Planner)


def test_a_budget_of_the_baselines_peak_is_met_at_once_and_proven_optimal(random_graph: Callable[..., Graph]) -> None:
    for seed in range(10):
        graph = random_graph(seed, num_nodes=10)
        proposal = propose(graph, baseline(graph).peak_bytes)
        assert proposal.status is Status.OPTIMAL
        assert proposal.steps == baseline_steps(graph)


def test_what_it_calls_feasible_the_referee_accepts_within_the_budget(random_graph: Callable[..., Graph]) -> None:
    num_feasible = 0
    for seed in range(160):
        graph = random_graph(seed, num_nodes=6 + seed % 25)
        budget_bytes = between(graph, random.Random(seed).choice([0.3, 0.6, 0.9]))
        proposal = propose(graph, budget_bytes, seed=seed, threads=1 + seed % 2)
        assert proposal.steps is not None
        replayed = replay(graph, proposal.steps)
        assert (replayed.peak_bytes <= budget_bytes) == (proposal.status in (Status.OPTIMAL, Status.FEASIBLE))
        assert replayed.peak_bytes <= baseline(graph).peak_bytes
        num_feasible += proposal.status in (Status.OPTIMAL, Status.FEASIBLE)
    assert num_feasible >= 30


def test_small_graphs_against_exhaustive_search(random_graph: Callable[..., Graph]) -> None:
    num_solvable = 0
    for seed in range(120):
        graph = random_graph(seed, num_nodes=5, rich=seed % 2 == 0)
        budget_bytes = between(graph, 0.5)
        if budget_bytes >= baseline(graph).peak_bytes:
            continue
        shortest = shortest_by_exhaustion(graph, budget_bytes)
        proposal = propose(graph, budget_bytes)
        if shortest is None:
            assert proposal.status in (Status.TIMEOUT, Status.INFEASIBLE)
            continue
        num_solvable += 1
        assert proposal.status in (Status.OPTIMAL, Status.FEASIBLE)
        assert proposal.status is Status.OPTIMAL or shortest > graph.baseline_duration
        assert duration_of(graph, proposal) == shortest
    assert num_solvable >= 10


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_same_seed_and_threads_give_the_same_plan(threads: int) -> None:
    for spec in ("generate:transformer?layers=6", "generate:layered?n=120&seed=1"):
        graph = graph_from_spec(spec)
        budget_bytes = between(graph, 0.7)
        first = propose(graph, budget_bytes, threads=threads, work=20_000_000)
        assert first.status in (Status.OPTIMAL, Status.FEASIBLE)
        assert propose(graph, budget_bytes, threads=threads, work=20_000_000).steps == first.steps


@pytest.mark.parametrize("order", ["fixed", "free"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_time_limit_that_is_not_reached_changes_nothing(threads: int, order: Literal["fixed", "free"]) -> None:
    graph = graph_from_spec("generate:layered?n=40&seed=1")
    budget_bytes = between(graph, 0.5)
    plans = [propose(graph, budget_bytes, threads=threads, seconds=limit, order=order).steps for limit in (None, 900.0)]
    assert plans[0] == plans[1]


# ---------------------------------------------------------------- beside greedy
def propose_greedy(graph: Graph, budget_bytes: int, *, seed: int = 0, max_copies: int | None = None) -> Proposal:
    """Greedy with as much work as a search of ``WORK`` gives it."""
    request = PlanRequest(graph, budget_bytes, seed=seed, scope=Scope(max_copies=max_copies))
    return GreedyPlanner(max_work=WORK // 2).propose(request)


@pytest.mark.parametrize("seconds", [None, 60.0])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("order", ["fixed", "free"])
def test_it_is_never_worse_than_greedy(
    order: Literal["fixed", "free"], threads: int, seconds: float | None, random_graph: Callable[..., Graph]
) -> None:
    num_compared = 0
    for seed in range(24):
        graph = random_graph(seed, num_nodes=10 + seed % 20)
        max_copies = (None, 2)[seed % 2]
        for fraction in (0.1, 0.5, 0.9):
            budget_bytes = between(graph, fraction)
            greedy = propose_greedy(graph, budget_bytes, seed=seed, max_copies=max_copies)
            if greedy.status is not Status.FEASIBLE:
                continue
            found = propose(
                graph,
                budget_bytes,
                seed=seed,
                threads=threads,
                max_copies=max_copies,
                order=order,
                seconds=seconds,
            )
            assert found.status in (Status.OPTIMAL, Status.FEASIBLE)
            assert duration_of(graph, found) <= duration_of(graph, greedy)
            num_compared += 1
    assert num_compared > 10


@pytest.mark.parametrize("fraction", [0.3, 0.5, 0.8])
@pytest.mark.parametrize("order", ["fixed", "free"])
def test_it_is_never_worse_than_greedy_on_layered_graphs(order: Literal["fixed", "free"], fraction: float) -> None:
    for seed in range(4):
        graph = graph_from_spec(f"generate:layered?n=50&seed={seed}")
        budget_bytes = between(graph, fraction)
        greedy = propose_greedy(graph, budget_bytes, seed=seed)
        found = propose(graph, budget_bytes, seed=seed, threads=1 + seed % 2, order=order)
        if greedy.status is Status.FEASIBLE:
            assert found.status in (Status.OPTIMAL, Status.FEASIBLE)
            assert duration_of(graph, found) <= duration_of(graph, greedy)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_relaxation_that_comes_to_nothing_leaves_greedy_its_time(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hangs until the time limit, as HiGHS may in a hard program."""

    def hang(_: Relaxing, *, seconds: float) -> bool:
        time.sleep(seconds / 0.4)  # is_clear gets so much of what is left
        return False

    run_greedy = search_greedy.run_greedy
    seconds_of_greedy: list[float] = []

    def note_seconds(*args: Any, seconds: float, **options: Any) -> object:
        seconds_of_greedy.append(seconds)
        return run_greedy(*args, seconds=seconds, **options)

    monkeypatch.setattr(Relaxing, "is_clear", hang)
    monkeypatch.setattr(search_greedy, "run_greedy", note_seconds)
    graph = graph_from_spec("generate:transformer?layers=12")
    budget_bytes = baseline(graph).peak_bytes * 50 // 100
    greedy = propose_greedy(graph, budget_bytes)
    found = propose(graph, budget_bytes, threads=threads, seconds=3.0)
    assert [2.0 < seconds <= 3.0 for seconds in seconds_of_greedy] == [True]
    assert duration_of(graph, found) <= duration_of(graph, greedy)


def test_all_rounds_of_the_relaxation_share_one_part_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round that takes all that it gets leaves nothing for another."""
    run = Relaxing.run
    seconds_of_rounds: list[float] = []

    def run_to_the_limit(self: Relaxing, *, seconds: float, max_search_nodes: int | None) -> tuple[Again, ...]:
        seconds_of_rounds.append(seconds)
        started = time.monotonic()
        start = run(self, seconds=seconds, max_search_nodes=max_search_nodes)
        time.sleep(max(0.0, seconds - (time.monotonic() - started)))
        return start

    monkeypatch.setattr(Relaxing, "run", run_to_the_limit)
    graph = graph_from_spec("generate:layered?n=30&seed=1")
    propose(graph, baseline(graph).peak_bytes * 80 // 100, seconds=2.0)
    assert len(seconds_of_rounds) == 1
    assert 0 < seconds_of_rounds[0] <= 0.4 * 2.0


@pytest.mark.parametrize("threads", [1, 2])
def test_a_plan_that_is_proven_optimal_does_not_wait_for_greedy(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Greedy would go on for ever: it is stopped, or not even begun."""
    run_greedy = search_greedy.run_greedy

    def endless(*args: Any, should_stop: Callable[[], bool] | None, **options: Any) -> object:
        assert threads > 1
        assert should_stop is not None
        while not should_stop():
            time.sleep(0.001)
        return run_greedy(*args, should_stop=should_stop, **options)

    monkeypatch.setattr(search_greedy, "run_greedy", endless)
    graph = graph_from_spec("generate:transformer?layers=12")
    proposal = propose(graph, baseline(graph).peak_bytes * 60 // 100, threads=threads, work=50_000_000)
    assert proposal.status is Status.OPTIMAL


@pytest.mark.parametrize("threads", [1, 2])
def test_plans_to_combine_are_not_lost_and_give_shorter_ones(threads: int) -> None:
    graph = graph_from_spec("generate:layered?n=100&seed=3")
    flat = flatten(graph)
    problem, budget_bytes = native_problem(flat), baseline(graph).peak_bytes * 75 // 100
    greedy = [_search.greedy(problem, budget_bytes=budget_bytes, seed=seed, max_work=500_000) for seed in range(8)]
    starts = [([], []), *((one.stages, one.nodes) for one in greedy)]
    shortest = min(one.extra_duration for one in greedy)

    def search(work: int) -> _search.SearchOutcome:
        return _search.search(problem, budget_bytes=budget_bytes, seed=0, threads=threads, max_work=work, starts=starts)

    assert all(one.is_feasible for one in greedy)
    assert search(1).extra_duration <= shortest
    combined = search(40_000_000)
    assert combined.extra_duration < shortest
    load_bytes = _search.load_bytes(problem, stages=combined.stages, nodes=combined.nodes)
    assert max(load_bytes) <= budget_bytes


def test_it_is_better_than_greedy_on_transformers() -> None:
    graph = graph_from_spec("generate:transformer?layers=20")
    budget_bytes = baseline(graph).peak_bytes * 50 // 100
    work = 150_000_000
    greedy = GreedyPlanner(max_work=work).propose(PlanRequest(graph=graph, budget_bytes=budget_bytes))
    assert duration_of(graph, propose(graph, budget_bytes, work=work)) < duration_of(graph, greedy)


@pytest.mark.parametrize("max_copies", [1, 2, 3])
def test_no_node_is_executed_more_often_than_the_scope_allows(
    max_copies: int, random_graph: Callable[..., Graph], training_graph: Callable[..., Graph]
) -> None:
    graphs = [*(random_graph(seed, num_nodes=20) for seed in range(20)), training_graph(num_layers=20)]
    most = 0
    for graph in graphs:
        proposal = propose(graph, between(graph, 0.4), max_copies=max_copies)
        assert proposal.steps is not None
        most = max(most, *replay(graph, proposal.steps).num_copies_by_node.values())
    assert most == max_copies


@pytest.mark.parametrize("budget_bytes", [0, 1])
def test_a_hopeless_budget_gives_the_smallest_peak_met(budget_bytes: int, training_graph: Callable[..., Graph]) -> None:
    graph = training_graph(num_layers=20)
    proposal = propose(graph, budget_bytes)
    assert proposal.status is Status.INFEASIBLE
    assert proposal.steps is not None
    assert proposal.incumbents == ()
    assert budget_bytes < replay(graph, proposal.steps).peak_bytes < baseline(graph).peak_bytes


def test_progress_is_told_as_it_comes_and_is_the_course_of_the_search(training_graph: Callable[..., Graph]) -> None:
    graph = training_graph(num_layers=30)
    told: list[Incumbent] = []
    budget_bytes = baseline(graph).peak_bytes * 45 // 100
    request = PlanRequest(graph=graph, budget_bytes=budget_bytes, threads=2, on_progress=told.append)
    proposal = SearchPlanner(max_work=WORK).propose(request)
    assert tuple(told) == proposal.incumbents
    durations = [incumbent.duration for incumbent in told]
    assert all(a is not None and b is not None and a > b for a, b in pairwise(durations))
    assert durations[-1] == duration_of(graph, proposal)


def test_an_error_in_the_progress_callback_arrives_as_itself(training_graph: Callable[..., Graph]) -> None:
    def fail(_: Incumbent) -> None:
        raise RuntimeError("the disk is full")

    graph = training_graph(num_layers=10)
    budget_bytes = baseline(graph).peak_bytes * 60 // 100
    request = PlanRequest(graph=graph, budget_bytes=budget_bytes, threads=2, on_progress=fail)
    with pytest.raises(RuntimeError, match="the disk is full"):
        SearchPlanner(max_work=WORK).propose(request)


@pytest.mark.parametrize("percent", [60, 1])
def test_it_stops_when_asked_and_keeps_its_best(percent: int, training_graph: Callable[..., Graph]) -> None:
    graph = training_graph(num_layers=40)
    asked = threading.Event()

    def should_stop() -> bool:
        asked.set()
        return True

    budget_bytes = baseline(graph).peak_bytes * percent // 100
    request = PlanRequest(graph=graph, budget_bytes=budget_bytes, threads=2, should_stop=should_stop)
    proposal = SearchPlanner(max_work=10**15).propose(request)
    assert asked.is_set()
    assert proposal.steps is not None
    assert replay(graph, proposal.steps).peak_bytes < baseline(graph).peak_bytes


def test_a_time_limit_ends_it(training_graph: Callable[..., Graph]) -> None:
    graph = training_graph(num_layers=40)
    budget_bytes = baseline(graph).peak_bytes * 60 // 100
    started = time.monotonic()
    proposal = SearchPlanner(max_work=10**15).propose(
        PlanRequest(graph=graph, budget_bytes=budget_bytes, threads=2, time_limit_seconds=0.5)
    )
    assert time.monotonic() - started < 10
    assert proposal.status in (Status.FEASIBLE, Status.OPTIMAL)  # it may be proven before the time is up
