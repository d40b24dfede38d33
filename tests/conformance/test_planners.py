"""One suite for all planners: what a proposal claims is what the referee and an exhaustive search find.

A planner that is added to ``lowtide.planners.table`` is tested here without further ado.
"""

from __future__ import annotations

import heapq
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from random import Random

import pytest

from lowtide.errors import InputError, MissingDependency
from lowtide.ir import Compute, Evict, Graph, Incumbent, Input, Node, Scope, Status, Value
from lowtide.planners.protocol import Planner, PlanRequest, Proposal
from lowtide.planners.table import PLANNERS, planner_named
from lowtide.referee import Replay, baseline, largest_working_set, replay
from lowtide.testing import FixedPlanner, chain_graph, diamond_graph, random_graph, training_chain_graph

HAS_PLAN = (Status.FEASIBLE, Status.OPTIMAL)


def uneven_graph() -> Graph:
    """Cheap and dear nodes of different sizes, a workspace, two outputs of one node; x may be dropped."""
    return Graph(
        "uneven",
        (Input("x", 4),),
        (
            Node("a", "op", 2, ("x",), (Value("a", 6),)),
            Node("b", "op", 9, ("a",), (Value("b", 3), Value("b2", 2)), workspace_bytes=4),
            Node("c", "op", 1, ("b",), (Value("c", 5),)),
            Node("d", "op", 3, ("c", "a"), (Value("d", 4),)),
            Node("e", "op", 3, ("d", "b2", "x"), (Value("e", 1),)),
        ),
        ("e",),
        ("a", "b", "c", "d", "e"),
        duration_unit="unit",
    )


GRAPHS: dict[str, Callable[[], Graph]] = {
    "chain": lambda: chain_graph(4, size_bytes=3),
    "diamond": lambda: diamond_graph(size_bytes=2),
    "training": lambda: training_chain_graph(3, size_bytes=2, duration=2),
    "uneven": uneven_graph,
}
PLAN_BUDGETS = ["twice the baseline", "baseline", "a byte less", "halfway", "working set", "below working set"]


def budget_of(graph: Graph, name: str) -> int:
    peak_bytes, least_bytes = baseline(graph).peak_bytes, largest_working_set(graph).size_bytes
    return {
        "twice the baseline": 2 * peak_bytes,
        "baseline": peak_bytes,
        "a byte less": peak_bytes - 1,
        "halfway": (peak_bytes + least_bytes) // 2,
        "working set": least_bytes,
        "below working set": least_bytes - 1,
    }[name]


@pytest.fixture(params=sorted(PLANNERS))
def planner(request: pytest.FixtureRequest) -> Planner:
    try:
        return planner_named(request.param)
    except MissingDependency as error:
        pytest.skip(str(error))


def ask(planner: Planner, graph: Graph, budget_bytes: int) -> tuple[PlanRequest, Proposal]:
    """Ask for any number of copies, or for two where the planner does not search that scope."""
    request = PlanRequest(graph=graph, budget_bytes=budget_bytes, time_limit_seconds=20)
    try:
        return request, planner.propose(request)
    except InputError:
        request = replace(request, scope=Scope(max_copies=2))
        return request, planner.propose(request)


def check_proposal(request: PlanRequest, proposal: Proposal) -> Replay | None:
    """What must hold of every answer; returns the replay of its steps."""
    if proposal.steps is None:
        assert proposal.status not in HAS_PLAN
        return None
    figures = replay(request.graph, proposal.steps)
    assert figures.first_executions == request.graph.order
    most = request.scope.max_copies
    assert most is None or max(figures.num_copies_by_node.values(), default=0) <= most
    if proposal.status not in HAS_PLAN:
        return figures
    assert figures.peak_bytes <= request.budget_bytes
    if proposal.lower_bound_duration is not None:
        assert proposal.lower_bound_duration <= figures.duration
    if proposal.status is Status.OPTIMAL:
        assert proposal.lower_bound_duration in (None, figures.duration)
    return figures


def least_duration(request: PlanRequest) -> int | None:
    """Exhaustive search over what is resident, how far the order has come, and how often each node was executed.

    For graphs without aliases, overwriting and the like, where a value is its own instance. Any value may be dropped at
    any time, so nothing of ``steps_from_sequence`` or of a planner is taken for granted.
    """
    graph, most = request.graph, request.scope.max_copies
    size_by_value = {name: value.size_bytes for name, value in graph.value_by_name.items()}
    start = (frozenset(graph.input_by_name), 0, ())
    ticket = count()
    queue = [(0, next(ticket), start)]
    done = set()
    while queue:
        duration, _, state = heapq.heappop(queue)
        if state in done:
            continue
        done.add(state)
        resident, progress, copies = state
        if progress == len(graph.order) and resident >= set(graph.outputs):
            return duration
        for name in resident:
            if graph.value_by_name[name].evictable:
                heapq.heappush(queue, (duration, next(ticket), (resident - {name}, progress, copies)))
        for position, name in enumerate(graph.order[: progress + 1]):
            node = graph.node_by_name[name]
            is_first = position == progress
            again = copies if is_first or most is None else tuple(sorted((*copies, name)))
            if not resident.issuperset(node.inputs) or (not is_first and not node.recomputable):
                continue
            if most is not None and again.count(name) >= most:
                continue
            fresh_bytes = sum(value.size_bytes for value in node.outputs) + node.workspace_bytes
            if sum(size_by_value[value] for value in resident) + fresh_bytes > request.budget_bytes:
                continue
            after = resident | {value.name for value in node.outputs}
            heapq.heappush(queue, (duration + node.duration, next(ticket), (after, max(progress, position + 1), again)))
    return None


@pytest.mark.parametrize("graph_name", GRAPHS)
@pytest.mark.parametrize("budget_name", PLAN_BUDGETS)
def test_claims_are_true(planner: Planner, graph_name: str, budget_name: str) -> None:
    graph = GRAPHS[graph_name]()
    request, proposal = ask(planner, graph, budget_of(graph, budget_name))
    figures = check_proposal(request, proposal)
    least = least_duration(request)
    if proposal.status is Status.INFEASIBLE:
        assert least is None
    if proposal.lower_bound_duration is not None and least is not None:
        assert proposal.lower_bound_duration <= least
    if proposal.status in HAS_PLAN:
        assert figures is not None
        assert least is not None
        assert figures.duration >= least
        assert proposal.status is not Status.OPTIMAL or figures.duration == least


@pytest.mark.parametrize("graph_name", GRAPHS)
@pytest.mark.parametrize("budget_name", ["twice the baseline", "baseline"])
def test_a_budget_above_the_baseline_needs_no_recomputation(
    planner: Planner, graph_name: str, budget_name: str
) -> None:
    graph = GRAPHS[graph_name]()
    request, proposal = ask(planner, graph, budget_of(graph, budget_name))
    figures = check_proposal(request, proposal)
    assert proposal.status in HAS_PLAN
    assert figures is not None
    assert (figures.num_recomputes, figures.duration) == (0, graph.baseline_duration)


@pytest.mark.parametrize("graph_name", GRAPHS)
def test_no_plan_is_claimed_below_the_largest_working_set(planner: Planner, graph_name: str) -> None:
    graph = GRAPHS[graph_name]()
    _, proposal = ask(planner, graph, budget_of(graph, "below working set"))
    assert proposal.status not in HAS_PLAN


def test_recomputation_brings_a_training_chain_below_its_baseline(planner: Planner) -> None:
    graph = training_chain_graph(16, size_bytes=4)
    request, proposal = ask(planner, graph, baseline(graph).peak_bytes * 7 // 10)
    figures = check_proposal(request, proposal)
    assert proposal.status in HAS_PLAN
    assert figures is not None
    assert 0 < figures.num_recomputes <= 32


def test_the_same_request_gives_the_same_steps(planner: Planner) -> None:
    graph = training_chain_graph(6, size_bytes=4)
    budget_bytes = baseline(graph).peak_bytes * 8 // 10
    first, second = (ask(planner, graph, budget_bytes)[1] for _ in range(2))
    assert (first.status, first.steps) == (second.status, second.steps)


def feature_graphs() -> Iterator[Graph]:
    for seed in range(25):
        yield random_graph(Random(seed), num_nodes=6)


def test_every_feature_of_graphs_is_planned_by_the_rules_or_refused(planner: Planner) -> None:
    num_plans = 0
    for graph in feature_graphs():
        peak_bytes = baseline(graph).peak_bytes
        for budget_bytes in (peak_bytes, peak_bytes * 4 // 5):
            try:
                request, proposal = ask(planner, graph, max(budget_bytes, 1))
            except InputError as error:
                assert len(str(error).splitlines()) == 1  # noqa: PT017 - one of two good outcomes
                continue
            check_proposal(request, proposal)
            num_plans += proposal.status in HAS_PLAN
    assert num_plans >= 10


def test_progress_never_gets_worse_and_ends_with_the_plan(planner: Planner) -> None:
    graph = training_chain_graph(8, size_bytes=4)
    seen: list[Incumbent] = []
    request, _ = ask(planner, graph, baseline(graph).peak_bytes * 3 // 4)
    proposal = planner.propose(replace(request, on_progress=seen.append))
    figures = check_proposal(request, proposal)
    durations = [item.duration for item in seen if item.duration is not None]
    bounds = [item.lower_bound_duration for item in seen if item.lower_bound_duration is not None]
    assert durations == sorted(durations, reverse=True)
    assert bounds == sorted(bounds)
    assert [item.seconds for item in seen] == sorted(item.seconds for item in seen)
    if proposal.status in HAS_PLAN and durations:
        assert figures is not None
        assert durations[-1] >= figures.duration


def test_a_planner_that_is_told_to_stop_answers_by_the_rules(planner: Planner) -> None:
    graph = training_chain_graph(8, size_bytes=4)
    request, _ = ask(planner, graph, baseline(graph).peak_bytes)
    request = replace(request, budget_bytes=baseline(graph).peak_bytes * 3 // 4, should_stop=lambda: True)
    check_proposal(request, planner.propose(request))


def test_ctrl_c_is_pythons_after_planning_as_before(planner: Planner) -> None:
    """A solver that takes SIGINT over and leaves it to the system would have the next Ctrl-C kill the process."""
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: heard.append(number))
    try:
        graph = training_chain_graph(8, size_bytes=4)
        ask(planner, graph, budget_of(graph, "halfway"))
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [signal.SIGINT]


def test_a_graph_without_nodes_is_planned(planner: Planner) -> None:
    graph = Graph("empty", (Input("x", 4),), (), ("x",), ())
    request, proposal = ask(planner, graph, 4)
    assert proposal.status in HAS_PLAN
    assert check_proposal(request, proposal) is not None


def test_the_name_is_the_one_in_the_table(planner: Planner) -> None:
    assert planner.name in PLANNERS
    assert type(planner_named(planner.name)) is type(planner)


# ---------------------------------------------------------------- the suite itself


def test_the_exhaustive_search_finds_what_was_worked_out_by_hand() -> None:
    graph = training_chain_graph(3, size_bytes=1)  # 3 forward, loss, 3 backward; peak 5: x a0 a1 g3 g2
    assert baseline(graph).peak_bytes == 5
    at_peak = PlanRequest(graph=graph, budget_bytes=5)
    assert least_duration(at_peak) == graph.baseline_duration == 7
    # With 4 bytes: x, g3 and the pair a1, g2 of b2 leave no room for a0, which is computed again for b1.
    assert least_duration(replace(at_peak, budget_bytes=4)) == 8
    assert least_duration(replace(at_peak, budget_bytes=4, scope=Scope(max_copies=1))) is None
    assert least_duration(replace(at_peak, budget_bytes=3)) is None


@pytest.mark.parametrize(
    "proposal",
    [
        Proposal(Status.FEASIBLE, None),
        Proposal(Status.FEASIBLE, (Compute("n0"), Compute("n1"), Evict("x"), Evict("v0"))),  # over the budget
        Proposal(Status.FEASIBLE, (Compute("n0"), Evict("x"), Compute("n1"), Evict("v0")), lower_bound_duration=3),
        Proposal(Status.OPTIMAL, (Compute("n0"), Evict("x"), Compute("n1"), Evict("v0")), lower_bound_duration=1),
    ],
)
def test_the_suite_notices_false_claims(proposal: Proposal) -> None:
    request = PlanRequest(graph=chain_graph(2, size_bytes=1), budget_bytes=2)
    with pytest.raises(AssertionError):
        check_proposal(request, FixedPlanner(proposal).propose(request))
