"""The planner: equal to the exhaustive optimum over all plans in the order, honest about its scope, stoppable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import pytest

from lowtide.errors import InputError
from lowtide.importers.generate import graph_from_spec
from lowtide.ir import Compute, Graph, Incumbent, Node, Scope, Status, Value
from lowtide.planners.cpsat import CpsatPlanner
from lowtide.planners.cpsat import planner as planner_module
from lowtide.planners.protocol import PlanRequest, Proposal
from lowtide.referee import baseline, replay
from lowtide.testing import random_graph, training_chain_graph

HAS_PLAN = (Status.OPTIMAL, Status.FEASIBLE)
Least = Callable[..., int | None]
Plain = Callable[[int, int], Graph]
Budgets = Callable[[Graph], list[int]]


def tangled_graph(*, c_reads: tuple[str, ...] = ()) -> Graph:
    """Everything has to be made again for the last node; c's workspace leaves no room beside a, which b and d read."""
    nodes = (
        Node("a", "op", 1, (), (Value("a", 4),)),
        Node("b", "op", 10, ("a",), (Value("b", 1),)),
        Node("c", "op", 100, c_reads, (Value("c", 1),), workspace_bytes=6),
        Node("d", "op", 1000, ("a", "c"), (Value("d", 1),)),
        Node("gap", "op", 5, (), (Value("g", 8),)),
        Node("end", "op", 5, ("b", "d"), (Value("e", 0),)),
    )
    return Graph("tangled", (), nodes, ("e",), tuple(node.name for node in nodes), "unit")


def ask(graph: Graph, budget_bytes: int, *, max_copies: int | None = None) -> Proposal:
    return CpsatPlanner().propose(PlanRequest(graph, budget_bytes, scope=Scope(max_copies=max_copies)))


def check_against(graph: Graph, budget_bytes: int, max_copies: int | None, least: int | None) -> Status:
    proposal = ask(graph, budget_bytes, max_copies=max_copies)
    if proposal.status in HAS_PLAN:
        assert proposal.steps is not None
        assert least is not None
        figures = replay(graph, proposal.steps)
        assert figures.peak_bytes <= budget_bytes
        assert figures.duration >= least
        assert figures.first_executions == graph.order
        assert max_copies is None or max(figures.num_copies_by_node.values()) <= max_copies
        assert proposal.status is Status.FEASIBLE or figures.duration == least
    if least is None:
        assert proposal.status in (Status.INFEASIBLE, Status.TIMEOUT)
    else:
        assert proposal.status is not Status.INFEASIBLE
        assert proposal.lower_bound_duration is not None
        assert proposal.lower_bound_duration <= least
    return proposal.status


@pytest.mark.parametrize("max_copies", [None, 2])
def test_closes_every_plain_graph_and_equals_the_exhaustive_optimum(
    least_duration: Least, max_copies: int | None, plain_graph: Plain, budgets: Budgets
) -> None:
    graphs = [plain_graph(seed, 6) for seed in range(8)]
    seen = []
    for graph in graphs:
        for budget_bytes in budgets(graph):
            least = least_duration(graph, budget_bytes, max_copies=max_copies)
            seen.append(check_against(graph, budget_bytes, max_copies, least))
            assert seen[-1] is (Status.INFEASIBLE if least is None else Status.OPTIMAL)
    assert len(seen) > 10


def test_claims_are_true_with_every_feature(least_duration: Least, budgets: Budgets) -> None:
    seen = [
        check_against(graph, budget_bytes, None, least_duration(graph, budget_bytes))
        for graph in (random_graph(Random(seed), num_nodes=5) for seed in range(40))
        for budget_bytes in budgets(graph)
    ]
    assert seen.count(Status.OPTIMAL) > 10
    assert seen.count(Status.INFEASIBLE) > 10


def rich_graphs(make: Callable[..., Graph]) -> Iterator[Graph]:
    for seed in range(30):
        yield make(seed, num_nodes=5)


def test_claims_are_true_with_views_and_states(
    random_graph: Callable[..., Graph], least_duration: Least, budgets: Budgets
) -> None:
    seen = [
        check_against(graph, budget_bytes, None, least_duration(graph, budget_bytes))
        for graph in rich_graphs(random_graph)
        for budget_bytes in budgets(graph)[:2]
    ]
    assert seen.count(Status.OPTIMAL) > 5


def test_an_order_that_no_staged_plan_has_is_found_and_proven(least_duration: Least) -> None:
    graph = tangled_graph()
    assert least_duration(graph, 8, is_staged=True) is None
    assert check_against(graph, 8, None, least_duration(graph, 8)) is Status.OPTIMAL
    steps = ask(graph, 8).steps or ()
    names = [step.node for step in steps if isinstance(step, Compute)]
    assert names[-5:-1] == ["c", "a", "b", "d"]


def test_a_node_that_has_to_run_twice_between_two_first_executions(least_duration: Least) -> None:
    graph = tangled_graph(c_reads=("b",))
    least = least_duration(graph, 8)
    assert least_duration(graph, 8, is_staged=True) is None
    assert check_against(graph, 8, None, least) is Status.OPTIMAL
    names = [step.node for step in ask(graph, 8).steps or () if isinstance(step, Compute)]
    assert names[-6:-1] == ["a", "b", "c", "a", "d"]
    assert least_duration(graph, 8, max_copies=3) is None  # a runs in stage 3, too
    assert check_against(graph, 8, 2, None) is Status.INFEASIBLE


def test_outputs_are_made_again_after_the_last_node(least_duration: Least) -> None:
    nodes = (
        Node("a", "op", 3, (), (Value("a", 4),)),
        Node("b", "op", 2, ("a",), (Value("b", 1),), workspace_bytes=4),
        Node("c", "op", 2, (), (Value("c", 1),), workspace_bytes=7),
    )
    graph = Graph("late", (), nodes, ("a", "c"), ("a", "b", "c"), "unit")
    assert least_duration(graph, 9) == 10
    assert check_against(graph, 9, None, 10) is Status.OPTIMAL


@pytest.mark.parametrize("seed", [4, 6])
def test_layered_graphs_of_thirty_nodes_are_closed(seed: int) -> None:
    graph = graph_from_spec(f"layered?n=30&seed={seed}")
    budget_bytes = baseline(graph).peak_bytes * 8 // 10
    proposal = ask(graph, budget_bytes)
    assert proposal.status is Status.OPTIMAL
    assert proposal.steps is not None
    figures = replay(graph, proposal.steps)
    assert figures.duration == proposal.lower_bound_duration
    assert figures.duration > graph.baseline_duration
    assert figures.peak_bytes <= budget_bytes


def test_the_optimum_can_lie_below_that_of_staged_plans() -> None:
    graph = graph_from_spec("layered?n=30&seed=0")
    budget_bytes = baseline(graph).peak_bytes * 8 // 10
    proposal = ask(graph, budget_bytes)
    assert proposal.status is Status.OPTIMAL
    assert proposal.steps is not None
    figures = replay(graph, proposal.steps)
    assert figures.peak_bytes <= budget_bytes
    assert figures.duration < 12_606  # the least of staged plans, which planner checkmate proves in half a minute


def test_the_bound_reached_is_told_when_the_search_is_stopped() -> None:
    graph = graph_from_spec("layered?n=30&seed=5")
    bounds: list[int] = []

    def note(incumbent: Incumbent) -> None:
        if (incumbent.lower_bound_duration or 0) > graph.baseline_duration:
            bounds.append(incumbent.lower_bound_duration or 0)

    request = PlanRequest(
        graph, baseline(graph).peak_bytes * 8 // 10, on_progress=note, should_stop=lambda: bool(bounds)
    )
    proposal = CpsatPlanner().propose(request)
    assert proposal.status is Status.FEASIBLE
    assert bounds
    assert proposal.lower_bound_duration == bounds[-1]


def test_it_claims_nothing_for_a_free_order() -> None:
    graph = training_chain_graph(4)
    request = PlanRequest(graph, baseline(graph).peak_bytes - 64, scope=Scope(order="free"))
    found = CpsatPlanner().propose(request)
    assert found.status is Status.FEASIBLE
    assert found.lower_bound_duration == graph.baseline_duration
    tangled = CpsatPlanner().propose(PlanRequest(tangled_graph(c_reads=("b",)), 8, scope=Scope("free", 2)))
    assert tangled.status is Status.TIMEOUT


def test_a_graph_too_large_is_refused_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner_module, "MAX_RUNS", 50)
    graph = training_chain_graph(20)
    message = (
        r"graph 'training chain' with 42 nodes has \d+ pairs of a stage and a node to run again, more than 50: use"
    )
    with pytest.raises(InputError, match=message):
        ask(graph, baseline(graph).peak_bytes - 64)
