"""lowtide.api: plans are what the referee says, errors say what to do, rubbish from planners is named."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

import lowtide
from lowtide import api
from lowtide.errors import (
    GraphError,
    InfeasibleBudget,
    InputError,
    MissingDependency,
    NoPlanFound,
    PlanRejected,
    UnitError,
)
from lowtide.importers.generate import graph_from_spec
from lowtide.ir import Graph, Incumbent, Input, Node, Scope, Status, Value
from lowtide.ir.sequence import baseline_steps, steps_from_sequence
from lowtide.planners.bounds import best_bound
from lowtide.planners.protocol import PlanRequest, Proposal
from lowtide.planning.compiled import planning_for_compile

KIB = 1024


def four_nodes(*, scale: int = 1, duration_unit: str = "unit") -> Graph:
    """A graph worked out by hand, in units of ``scale`` bytes; ``a`` is read by ``b`` and, late, by ``d``.

    step        a         b         c             d
    resident    x a       a b       a b c         a c d         baseline: 1+8, 8+8, 8+8+8, 8+8+1: peak 24
    recomputing x a       x a b     x b c  x c a  a c d         peak 17 = the working set of d; a twice: 5 instead of 4
    """

    def value(name: str, size: int) -> Value:
        return Value(name, size * scale)

    return Graph(
        name="four",
        inputs=(Input("x", 1 * scale),),
        nodes=(
            Node("a", "op", 1, ("x",), (value("va", 8),)),
            Node("b", "op", 1, ("va",), (value("vb", 8),)),
            Node("c", "op", 1, ("vb",), (value("vc", 8),)),
            Node("d", "op", 1, ("va", "vc"), (value("vd", 1),)),
        ),
        outputs=("vd",),
        order=("a", "b", "c", "d"),
        duration_unit=duration_unit,
    )


@dataclass
class FakePlanner:
    """Answers with what it was given, and remembers what it was asked."""

    answer: Callable[[PlanRequest], Any]
    name: str = "fake"
    searches_order: bool = False

    def __post_init__(self) -> None:
        self.requests: list[PlanRequest] = []

    def propose(self, request: PlanRequest) -> Proposal:
        self.requests.append(request)
        return self.answer(request)  # type: ignore[no-any-return]  # rubbish included


def sequence_planner(*sequence: str, status: Status = Status.FEASIBLE, bound: int | None = None) -> FakePlanner:
    return FakePlanner(
        lambda request: Proposal(
            status, steps_from_sequence(request.graph, sequence), lower_bound_duration=bound, incumbents=()
        )
    )


def recomputing(request: PlanRequest) -> Proposal:
    """An honest planner for ``four_nodes``: it knows the baseline and the plan that recomputes ``a``."""
    scale = request.graph.input_by_name["x"].size_bytes
    steps = steps_from_sequence(request.graph, ("a", "b", "c", "a", "d"))
    return Proposal(Status.FEASIBLE if request.budget_bytes >= 17 * scale else Status.TIMEOUT, steps)


def refuse_to_be_asked(request: PlanRequest) -> Proposal:
    raise AssertionError(f"asked for {request.budget_bytes} bytes")


# ------------------------------------------------------------------------------------------------ plan


def test_plan_has_the_figures_of_the_hand_calculation() -> None:
    graph = four_nodes()
    planner = FakePlanner(recomputing)
    result = api.plan(graph, budget=20, planner=planner, seed=3, threads=2, bound=False)
    assert result.plan is not None
    assert (result.status, result.scope) == (Status.FEASIBLE, Scope("fixed", None))
    assert (result.plan.peak_bytes, result.plan.duration, result.num_recomputes) == (17, 5, 1)
    assert (result.baseline_peak_bytes, result.baseline_duration, result.plan.tdi_percent) == (24, 4, 25.0)
    assert (result.largest_working_set_bytes, result.bottleneck_node) == (17, "d")
    assert result.smallest_known_peak_bytes == 17
    assert result.plan.footprint_bytes == 17
    assert (planner.requests[0].seed, planner.requests[0].threads, planner.requests[0].budget_bytes) == (3, 2, 20)


def test_as_dict_has_the_keys_of_the_json_output() -> None:
    document = api.plan(four_nodes(), budget=20, planner=FakePlanner(recomputing), bound=False).as_dict()
    assert list(document) == [
        "status",
        "scope",
        "planner",
        "budget_bytes",
        "peak_bytes",
        "footprint_bytes",
        "baseline_peak_bytes",
        "largest_working_set_bytes",
        "bottleneck_node",
        "smallest_known_peak_bytes",
        "duration",
        "baseline_duration",
        "tdi_percent",
        "lower_bound_tdi_percent",
        "num_recomputes",
        "solve_seconds",
    ]
    assert document["scope"] == {"order": "fixed", "max_copies": None}


@pytest.mark.parametrize("budget", [24, 10**6, "100%", "24 B"])
def test_budget_of_the_baseline_needs_no_planner_and_is_optimal(budget: int | str) -> None:
    result = api.plan(four_nodes(), budget=budget, planner=FakePlanner(refuse_to_be_asked))
    assert result.plan is not None
    assert (result.status, result.plan.tdi_percent, result.num_recomputes) == (Status.OPTIMAL, 0.0, 0)
    assert (result.lower_bound_duration, result.plan.steps) == (4, baseline_steps(four_nodes()))


def test_percentage_is_rounded_down() -> None:
    result = api.plan(four_nodes(), budget="99%", planner=FakePlanner(recomputing), bound=False)
    assert result.budget_bytes == 23  # 23.76


def test_budget_below_the_largest_working_set_is_infeasible_with_numbers() -> None:
    planner = FakePlanner(recomputing)
    result = api.plan(four_nodes(), budget=16, planner=planner)
    assert (result.status, result.plan, result.num_recomputes) == (Status.INFEASIBLE, None, 0)
    assert (result.bottleneck_node, result.largest_working_set_bytes) == ("d", 17)
    assert result.smallest_known_peak_bytes == 17
    assert [request.budget_bytes for request in planner.requests] == [17]


def test_timeout_is_data_and_knows_the_smallest_peak_met() -> None:
    result = api.plan(four_nodes(), budget=20, planner=FakePlanner(lambda _: Proposal(Status.TIMEOUT, None)))
    assert (result.status, result.plan, result.smallest_known_peak_bytes) == (Status.TIMEOUT, None, 24)


@pytest.mark.parametrize("planner", ["greedy", "search", "sqrt"])
def test_inputs_that_nobody_reads_leave_one_by_one(planner: str) -> None:
    inputs = (Input("x", 5), Input("y", 2), Input("z", 8))
    node = Node("n", "op", 9, ("z",), (Value("v", 0, alias_of="z"),))
    graph = Graph("g", inputs, (node,), ("z",), ("n",), "unit")
    result = api.plan(graph, budget=8, planner=planner, layout=None)
    assert result.status is Status.INFEASIBLE
    assert result.largest_working_set_bytes == 10
    assert "10 B: the graph's inputs need that before anything is computed" in api.explain_missing_plan(result)
    reordered = replace(graph, inputs=(inputs[1], inputs[0], inputs[2]))
    for same in (graph, reordered):
        fitting = api.plan(same, budget=10, planner=planner, layout=None)
        assert fitting.status is Status.OPTIMAL
        assert api.require_plan(fitting, same).plan.peak_bytes == 10


def test_planners_proof_of_infeasibility_is_passed_on() -> None:
    result = api.plan(four_nodes(), budget=20, planner=FakePlanner(lambda _: Proposal(Status.INFEASIBLE, None)))
    assert (result.status, result.plan) == (Status.INFEASIBLE, None)


def test_min_finds_the_smallest_budget() -> None:
    result = api.plan(four_nodes(), budget="min", planner=FakePlanner(recomputing), bound=False)
    assert result.plan is not None
    assert (result.budget_bytes, result.plan.peak_bytes, result.plan.budget_bytes) == (17, 17, 17)


def test_min_bisects_where_the_planner_needs_more_than_the_working_set() -> None:
    """A planner that finds a plan (of peak 17) only from 20 up, and says nothing below."""

    def answer(request: PlanRequest) -> Proposal:
        steps = steps_from_sequence(request.graph, ("a", "b", "c", "a", "d"))
        return Proposal(Status.FEASIBLE, steps) if request.budget_bytes >= 20 else Proposal(Status.TIMEOUT, None)

    planner = FakePlanner(answer)
    result = api.plan(four_nodes(), budget="min", planner=planner, bound=False)
    assert result.budget_bytes == 17  # the plan found at 20 or more happens to have that peak
    assert planner.requests[0].budget_bytes == 17
    assert any(20 <= request.budget_bytes < 24 for request in planner.requests)


def test_min_without_any_success_is_the_baseline() -> None:
    planner = FakePlanner(lambda _: Proposal(Status.TIMEOUT, None))
    result = api.plan(four_nodes(), budget="min", planner=planner)
    assert (result.budget_bytes, result.status) == (24, Status.OPTIMAL)
    assert len(planner.requests) <= 8


def test_progress_and_stop_reach_the_planner() -> None:
    seen: list[Incumbent] = []

    def answer(request: PlanRequest) -> Proposal:
        assert request.on_progress is not None
        assert request.should_stop is not None
        request.on_progress(Incumbent(0.5, 5, None))
        assert request.should_stop()
        return recomputing(request)

    result = api.plan(
        four_nodes(), budget=20, planner=FakePlanner(answer), on_progress=seen.append, should_stop=lambda: True
    )
    assert seen == [Incumbent(0.5, 5, None)]
    assert result.plan is not None  # stopped: no bound was looked for, the plan is kept


def test_time_limit_is_shared_between_planner_and_bound() -> None:
    planner = FakePlanner(recomputing)
    limits = {"time_limit_seconds": 8.0, "should_stop": lambda: True}
    api.plan(four_nodes(), budget=20, planner=planner, layout=None, bound=False, **limits)  # type: ignore[arg-type]
    api.plan(four_nodes(), budget=20, planner=planner, layout=None, **limits)  # type: ignore[arg-type]
    api.plan(four_nodes(), budget=20, planner=planner, bound=False, **limits)  # type: ignore[arg-type]
    alone, shared, with_addresses = (request.time_limit_seconds for request in planner.requests)
    assert alone is not None
    assert shared is not None
    assert with_addresses is not None
    assert 0.4 * alone < with_addresses < 0.6 * alone  # half, less what has passed: it may have to plan again
    assert 7.0 < alone <= 8.0
    assert 5.0 < shared <= 6.0


def test_optimal_claim_of_a_planner_is_its_bound() -> None:
    planner = sequence_planner("a", "b", "c", "a", "d", status=Status.OPTIMAL)
    result = api.plan(four_nodes(), budget=20, planner=planner)
    assert (result.status, result.lower_bound_duration) == (Status.OPTIMAL, 5)


@dataclass(frozen=True)
class FakeBound:
    duration: int
    is_infeasible: bool = False


@pytest.fixture
def fake_bound(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., FakeBound | None]], None]:
    """``fake_bound(function)``: the only bound there is."""

    def use(function: Callable[..., FakeBound | None]) -> None:
        monkeypatch.setattr("lowtide.planners.bounds.best_bound", function)
        monkeypatch.setattr("lowtide.planners.cpsat.small_graph_bound", lambda *_, **__: None)

    return use


FakeBounds = Callable[[Callable[..., FakeBound | None]], None]


@pytest.mark.parametrize(
    ("bound", "status", "lower_bound_duration"),
    [(FakeBound(5), "optimal", 5), (FakeBound(4), "feasible", 4), (None, "feasible", None)],
)
def test_bound_completes_the_result(
    fake_bound: FakeBounds, bound: FakeBound | None, status: str, lower_bound_duration: int | None
) -> None:
    asked: list[tuple[int, float]] = []

    def best_bound(_graph: Graph, budget_bytes: int, *, time_limit_seconds: float) -> FakeBound | None:
        asked.append((budget_bytes, time_limit_seconds))
        return bound

    fake_bound(best_bound)
    result = api.plan(four_nodes(), budget=20, planner=FakePlanner(recomputing))
    assert (result.status, result.lower_bound_duration) == (Status(status), lower_bound_duration)
    assert asked == [(20, 10.0)]
    assert api.plan(four_nodes(), budget=20, planner=FakePlanner(recomputing), bound=False).lower_bound_duration is None
    assert len(asked) == 1


@pytest.mark.parametrize("bound", [FakeBound(6), FakeBound(4, is_infeasible=True)])
def test_bound_that_the_plan_disproves_is_dropped_loudly(
    fake_bound: FakeBounds, caplog: pytest.LogCaptureFixture, bound: FakeBound
) -> None:
    fake_bound(lambda *_, **__: bound)
    result = api.plan(four_nodes(), budget=20, planner=FakePlanner(recomputing))
    assert (result.status, result.lower_bound_duration) == (Status.FEASIBLE, None)
    assert "is wrong for a plan of duration 5, dropped" in caplog.text


def test_bound_can_prove_what_the_planner_only_failed_to_find(fake_bound: FakeBounds) -> None:
    fake_bound(lambda *_, **__: FakeBound(4, is_infeasible=True))
    result = api.plan(four_nodes(), budget=20, planner=FakePlanner(lambda _: Proposal(Status.TIMEOUT, None)))
    assert (result.status, result.lower_bound_duration) == (Status.INFEASIBLE, None)


def test_plan_is_kept_and_nobody_waits_where_the_bound_is_interrupted(fake_bound: FakeBounds) -> None:
    is_asked, may_end = threading.Event(), threading.Event()

    def best_bound(*_: Any, **__: Any) -> None:
        is_asked.set()
        may_end.wait(60)

    fake_bound(best_bound)
    started = time.monotonic()
    result = api.plan(four_nodes(), budget=20, planner=FakePlanner(recomputing), should_stop=is_asked.is_set)
    may_end.set()
    assert result.plan is not None
    assert result.status is Status.FEASIBLE
    assert time.monotonic() - started < 30


def test_error_inside_a_bound_is_raised_not_lost(fake_bound: FakeBounds) -> None:
    fake_bound(lambda *_, **__: _raise(ArithmeticError("solver")))
    with pytest.raises(ArithmeticError, match="solver"):
        api.plan(four_nodes(), budget=20, planner=FakePlanner(recomputing), should_stop=lambda: False)


def test_real_bound_proves_the_plan_of_the_hand_calculation() -> None:
    result = api.plan(four_nodes(), budget=20, planner=FakePlanner(recomputing))
    assert (result.status, result.lower_bound_duration) == (Status.OPTIMAL, 5)


def test_small_graph_is_proven_where_the_relaxation_leaves_a_gap() -> None:
    graph = graph_from_spec("generate:layered?n=30&seed=6")
    result = api.plan(graph, budget="80%", keep_order=True)
    relaxed = best_bound(graph, result.budget_bytes, time_limit_seconds=30)
    assert relaxed is not None
    assert result.plan is not None
    assert (result.status, result.plan.duration) == (Status.OPTIMAL, result.lower_bound_duration)
    assert relaxed.duration < result.plan.duration


def test_what_the_default_planner_proves_of_the_given_order_needs_no_other_bound(fake_bound: FakeBounds) -> None:
    fake_bound(lambda *_, **__: _raise(AssertionError("there is nothing left to prove")))
    graph = graph_from_spec("generate:transformer?layers=4")
    result = api.plan(graph, budget="60%")
    assert result.plan is not None
    assert (result.scope.order, result.status) == ("fixed", Status.OPTIMAL)
    exact = api.plan(graph, budget="60%", planner="exact")
    assert result.lower_bound_duration == result.plan.duration == exact.lower_bound_duration


def test_a_claim_for_an_order_that_the_steps_leave_is_refused() -> None:
    left = sequence_planner("p", "r", "q", "s", status=Status.OPTIMAL, bound=4)
    planner = FakePlanner(lambda request: replace(left.propose(request), scope=Scope("fixed")), searches_order=True)
    with pytest.raises(api.PlannerFailed, match="makes a claim in the given order for other steps"):
        api.plan(two_branches(), budget=10, planner=planner)


def test_plan_that_leaves_the_order_is_marked_and_loses_its_bound() -> None:
    planner = sequence_planner("p", "r", "q", "s", status=Status.OPTIMAL, bound=4)
    result = api.plan(two_branches(), budget=10, planner=planner, bound=False)
    assert result.plan is not None
    assert (result.scope.order, result.status, result.lower_bound_duration) == ("free", Status.FEASIBLE, None)
    bounded = api.plan(two_branches(), budget=10, planner=planner)  # by what holds for every order: nothing recomputed
    assert (bounded.scope.order, bounded.status, bounded.lower_bound_duration) == ("free", Status.OPTIMAL, 4)
    with pytest.raises(api.PlannerFailed, match="planner 'fake' was asked to keep the given order and left it"):
        api.plan(two_branches(), budget=10, planner=planner, keep_order=True)


def two_branches() -> Graph:
    """Two branches of two nodes, given in an order that keeps both large values: baseline peak 13 at ``r``."""
    return Graph(
        name="branches",
        inputs=(),
        nodes=(
            Node("p", "op", 1, (), (Value("vp", 6),)),
            Node("q", "op", 1, (), (Value("vq", 6),)),
            Node("r", "op", 1, ("vp",), (Value("vr", 1),)),
            Node("s", "op", 1, ("vq", "vr"), (Value("vs", 1),)),
        ),
        outputs=("vs",),
        order=("p", "q", "r", "s"),
        duration_unit="unit",
    )


def test_one_info_line_per_plan(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="lowtide"):
        api.plan(four_nodes(), budget=20, planner=FakePlanner(recomputing), bound=False)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(
        "plan feasible (fake, in the given order): budget 20 B, peak 24 B -> 17 B, footprint 17 B, "
        "TDI 25.000 %, bound none, 1 recomputations, "
    )


# ------------------------------------------------------------------------------------------------ budgets


@pytest.mark.parametrize(
    ("budget", "text"),
    [
        (0.6, "budget 0.6 is a float: give whole bytes, text such as '1.5GiB', or '60%'"),
        (60, "budget 60 bytes? For a share of the plain peak write '60%'"),
        ("60", "budget 60 bytes? For a share of the plain peak write '60%'"),
        ("1.5", "budget '1.5' has no unit: give whole bytes, '1.5GiB', or '60%'"),
        ("9_00", "budget 900 bytes? For a share of the plain peak write '900%'"),
        ("0%", "budget '0%' must be above 0% and at most 1000% of the plain peak"),
    ],
)
def test_budgets_refused_on_a_real_model(budget: Any, text: str) -> None:
    graph = four_nodes(scale=KIB, duration_unit="ns")
    with pytest.raises(UnitError) as caught:
        api.plan(graph, budget=budget, planner=FakePlanner(recomputing))
    assert str(caught.value) == text


def test_bare_numbers_are_read_where_units_are_abstract_and_few() -> None:
    result = api.plan(four_nodes(scale=10), budget=200, planner=FakePlanner(recomputing), bound=False)
    assert result.budget_bytes == 200
    with pytest.raises(UnitError):
        api.plan(four_nodes(scale=2**20), budget=200, planner=FakePlanner(recomputing))


# ------------------------------------------------------------------------------------------------ rubbish


def _raise(error: BaseException) -> Any:
    raise error


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda _: _raise(KeyError("vx")), "failed with KeyError: 'vx'"),
        (lambda _: _raise(SystemExit(7)), "failed with SystemExit: 7"),
        (lambda _: None, "answered with a NoneType, not a Proposal"),
        (lambda _: Proposal(Status.FEASIBLE, None), "claims status feasible without steps"),
        (
            lambda request: Proposal(Status.FEASIBLE, baseline_steps(request.graph)),
            "claims status feasible for steps that do not fit (peak 24 B, budget 20 B (20 bytes))",
        ),
        (
            lambda request: replace(recomputing(request), status=Status.INFEASIBLE),
            "claims that no plan fits, with steps that do (peak 17 B, budget 20 B (20 bytes))",
        ),
        (
            lambda request: replace(recomputing(request), lower_bound_duration=6),
            "claims the bound 6 for steps that take only 5",
        ),
    ],
)
def test_rubbish_names_the_planner(answer: Callable[[PlanRequest], Any], text: str) -> None:
    with pytest.raises(api.PlannerFailed) as caught:
        api.plan(four_nodes(), budget=20, planner=FakePlanner(answer))
    assert str(caught.value) == f"planner 'fake' {text}: choose another planner, or mend it"
    assert not caught.value.is_builtin


def test_steps_that_break_a_rule_name_planner_rule_and_step() -> None:
    planner = sequence_planner("a", "c", "b", "d")
    with pytest.raises(api.PlannerFailed) as caught:
        api.plan(four_nodes(), budget=20, planner=planner)
    assert str(caught.value).startswith("planner 'fake' proposed what breaks a rule: ")
    assert isinstance(caught.value.__cause__, PlanRejected)


def test_too_many_copies_name_the_planner() -> None:
    with pytest.raises(api.PlannerFailed, match="computes node 'a' 2 times, at most 1 were asked for"):
        api.plan(four_nodes(), budget=20, planner=FakePlanner(recomputing), max_copies=1)


def test_planners_own_input_errors_pass_unchanged() -> None:
    for error in (InputError("not in this scope"), MissingDependency("ortools", extra="exact", needed_for="cpsat")):
        with pytest.raises(type(error)) as caught:
            api.plan(four_nodes(), budget=20, planner=FakePlanner(lambda _, error=error: _raise(error)))
        assert caught.value is error


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"seed": -1}, "seed -1 must be a whole number, at least 0"),
        ({"threads": 0}, "threads 0 must be a whole number, at least 1"),
        ({"max_copies": True}, "max_copies True must be a whole number, at least 1"),
        ({"seed": 2**31}, "seed is above 2147483647, the most that is taken: choose a smaller number"),
        ({"max_copies": 10**20}, "max_copies is above 2147483647, the most that is taken: choose a smaller number"),
        ({"threads": 10**5}, "threads is above 1024, the most that is taken: choose a smaller number"),
        (
            {"time_limit_seconds": 10**400},
            "time limit is above 1.8e+308 s, the most that is taken: choose a smaller number",
        ),
        ({"time_limit_seconds": -(10**400)}, f"time limit -1{'0' * 38} must be a number of seconds above 0"),
        ({"seed": -(10**400)}, f"seed -1{'0' * 38} must be a whole number, at least 0"),
        ({"seed": -(10**5000)}, "seed of many thousands of digits must be a whole number, at least 0"),
        ({"time_limit_seconds": 0.0}, "time limit 0.0 must be a number of seconds above 0"),
        ({"time_limit_seconds": float("nan")}, "time limit nan must be a number of seconds above 0"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError) as caught:
        api.plan(four_nodes(), budget=20, planner=FakePlanner(recomputing), **options)
    assert str(caught.value) == text


def test_what_is_no_graph_and_no_plan_is_refused() -> None:
    graph: Any = four_nodes()
    for call in (lambda: api.plan(3, budget=20), lambda: api.analyze(3), lambda: api.verify(3, None)):  # type: ignore[arg-type]
        with pytest.raises(InputError, match="graph is of type int: give what load_graph or capture returns"):
            call()
    result: Any = api.plan(graph, budget="100%")
    with pytest.raises(InputError, match=r"plan is of type PlanResult: give the \.plan of a result that has one"):
        api.verify(graph, result)


def test_inputs_that_are_no_tuple_are_refused() -> None:
    with pytest.raises(InputError, match="inputs is of type NoneType: give a tuple of the model's positional"):
        api.capture(None, None)  # type: ignore[arg-type]


def test_object_that_is_no_planner() -> None:
    with pytest.raises(InputError, match="planner 3 has no name and propose"):
        api.plan(four_nodes(), budget=20, planner=3)  # type: ignore[arg-type]


def test_graph_whose_order_cannot_be_executed() -> None:
    graph = Graph(
        name="overwritten",
        inputs=(Input("x", 4),),
        nodes=(
            Node("w", "op_", 1, ("x",), (Value("vw", 0, overwrites="x"),)),
            Node("r", "op", 1, ("x",), (Value("vr", 4),)),
        ),
        outputs=("vw", "vr"),
        order=("w", "r"),
    )
    with pytest.raises(GraphError, match="graph 'overwritten' cannot be executed in its given order: "):
        api.plan(graph, budget="50%", planner=FakePlanner(recomputing))


# ------------------------------------------------------------------------------------------------ no plan, as an error


def test_require_plan_gives_the_verified_plan() -> None:
    graph = four_nodes()
    result = api.plan(graph, budget=20, planner=FakePlanner(recomputing), bound=False)
    verified = api.require_plan(result, graph)
    assert verified.plan == result.plan
    assert verified.replay.num_recomputes == 1


def test_require_plan_below_the_working_set() -> None:
    graph = four_nodes(scale=KIB)
    result = api.plan(graph, budget="16 KiB", planner=FakePlanner(recomputing))
    with pytest.raises(InfeasibleBudget) as caught:
        api.require_plan(result, graph)
    assert str(caught.value) == (
        "budget 16.0 KiB is below the smallest possible peak 17.0 KiB: node 'd' needs that for its inputs and outputs "
        "together. Raise the budget or split that node. The smallest budget known to work is 17.0 KiB (17408 bytes)."
    )
    assert isinstance(caught.value, MemoryError)
    assert (caught.value.budget_bytes, caught.value.bottleneck_node) == (16 * KIB, "d")
    assert (caught.value.largest_working_set_bytes, caught.value.smallest_known_peak_bytes) == (17 * KIB, 17 * KIB)


def test_require_plan_with_a_planners_proof() -> None:
    graph = four_nodes()
    result = api.plan(graph, budget=20, planner=FakePlanner(lambda _: Proposal(Status.INFEASIBLE, None)), max_copies=2)
    with pytest.raises(InfeasibleBudget) as caught:
        api.require_plan(result, graph)
    assert str(caught.value) == (
        "budget 20 B: it is proven that no plan in the given order with at most 2 copies of a node fits. "
        "Raise the budget. The smallest budget known to work is 24 B (24 bytes)."
    )


def test_require_plan_without_proof() -> None:
    graph = four_nodes()
    result = api.plan(graph, budget=20, planner=FakePlanner(lambda _: Proposal(Status.TIMEOUT, None)))
    with pytest.raises(NoPlanFound) as caught:
        api.require_plan(replace(result, solve_seconds=1.25), graph)
    assert str(caught.value) == (
        "no plan found within budget 20 B by planner 'fake' in 1.2 s, which proves nothing. Raise the budget, or give "
        "it more time or another planner. The smallest budget known to work is 24 B (24 bytes)."
    )


# ------------------------------------------------------------------------------------------------ verify, analyze


def test_verify_refuses_a_plan_of_another_graph_and_a_smaller_budget() -> None:
    graph = four_nodes()
    plan = api.plan(graph, budget=20, planner=FakePlanner(recomputing), bound=False).plan
    assert plan is not None
    assert api.verify(graph, plan).replay.peak_bytes == 17
    assert api.verify(graph, plan, budget="75%").plan == plan
    with pytest.raises(PlanRejected, match="budget"):
        api.verify(graph, plan, budget=16)
    with pytest.raises(PlanRejected, match="graph"):
        api.verify(four_nodes(scale=2), plan)


def test_analyze_says_what_holds_the_peak_and_how_low_it_goes() -> None:
    analysis = api.analyze(four_nodes(), planner=FakePlanner(recomputing))
    assert (analysis.baseline_peak_bytes, analysis.peak_node) == (24, "c")
    assert (analysis.largest_working_set_bytes, analysis.bottleneck_node) == (17, "d")
    assert [(holding.name, holding.node, holding.size_bytes) for holding in analysis.holdings] == [
        ("va", "a", 8),
        ("vb", "b", 8),
        ("vc", "c", 8),
    ]
    assert [(point.budget_percent, point.status, point.tdi_percent) for point in analysis.points] == [
        (90, Status.FEASIBLE, 25.0),
        (80, Status.FEASIBLE, 25.0),
        (70, Status.INFEASIBLE, None),  # floor(16.8) is below the 17 of d
    ]
    assert analysis.smallest_known_peak_bytes == 17
    assert not analysis.is_node_bound
    assert analysis.as_dict()["points"][2]["status"] == "infeasible"


def test_analyze_gives_every_budget_a_share_of_the_time_and_tells_of_each() -> None:
    limits: list[float] = []
    told: list[int] = []

    def answer(request: PlanRequest) -> Proposal:
        assert request.time_limit_seconds is not None
        limits.append(request.time_limit_seconds)
        return recomputing(request)

    api.analyze(
        four_nodes(),
        planner=FakePlanner(answer),
        time_limit_seconds=100.0,
        on_point=lambda p: told.append(p.budget_percent),
    )
    assert told == [90, 80, 70]
    assert 4.0 < limits[0] <= 10.0  # of ten: nine budgets, and how low it goes
    assert 4.0 < limits[1] < 12.0


def test_analyze_shows_a_plan_for_less_where_it_takes_less_time() -> None:
    def answer(request: PlanRequest) -> Proposal:
        again = ("a", "b", "a", "c", "a", "d") if request.budget_bytes > 20 else ("a", "b", "c", "a", "d")
        return Proposal(Status.FEASIBLE, steps_from_sequence(request.graph, again))

    points = api.analyze(four_nodes(), planner=FakePlanner(answer)).points
    assert [(point.budget_percent, point.peak_bytes, point.tdi_percent) for point in points[:2]] == [
        (90, 17, 25.0),
        (80, 17, 25.0),
    ]


def test_analyze_shows_the_plan_of_the_smallest_budget_where_a_larger_one_had_none() -> None:
    asked: list[int] = []

    def answer(request: PlanRequest) -> Proposal:
        asked.append(request.budget_bytes)
        proposal = recomputing(request)
        return replace(proposal, status=Status.TIMEOUT, steps=None) if asked == [21] else proposal

    analysis = api.analyze(four_nodes(), planner=FakePlanner(answer), time_limit_seconds=None)
    assert [(point.budget_percent, point.status, point.peak_bytes) for point in analysis.points] == [
        (90, Status.FEASIBLE, 17)
    ]
    assert analysis.smallest_known_peak_bytes == 17


def test_analyze_leaves_the_given_order_where_its_planner_can_as_plan_does() -> None:
    asked: list[Scope] = []

    def answer(request: PlanRequest) -> Proposal:
        asked.append(request.scope)
        return recomputing(request)

    api.analyze(four_nodes(), planner=FakePlanner(answer, searches_order=True))
    api.analyze(four_nodes(), planner=FakePlanner(answer))
    assert {scope.order for scope in asked[:2]} == {"free"}
    assert asked[-1].order == "fixed"


def test_analyze_asks_again_where_a_share_of_the_time_was_not_enough() -> None:
    limits: list[float] = []

    def answer(request: PlanRequest) -> Proposal:
        limits.append(request.time_limit_seconds or 0.0)
        proposal = recomputing(request)
        return replace(proposal, status=Status.TIMEOUT, steps=None) if len(limits) == 1 else proposal

    points = api.analyze(four_nodes(), planner=FakePlanner(answer), time_limit_seconds=100.0).points
    assert [point.status for point in points[:2]] == [Status.FEASIBLE, Status.FEASIBLE]
    assert limits[1] > 2 * limits[0]


def test_analyze_of_a_graph_that_one_node_bounds_asks_no_planner() -> None:
    graph = Graph("one", (), (Node("n", "op", 1, (), (Value("v", 4),), workspace_bytes=3),), ("v",), ("n",))
    analysis = api.analyze(graph, planner=FakePlanner(refuse_to_be_asked))
    assert analysis.is_node_bound
    assert analysis.points == ()
    assert [(holding.name, holding.is_workspace, holding.size_bytes) for holding in analysis.holdings] == [
        ("v", False, 4),
        ("n", True, 3),
    ]


# ------------------------------------------------------------------------------------------------ capture, names


def test_capture_refuses_options_that_contradict_each_other() -> None:
    with pytest.raises(InputError) as caught:
        api.capture(None, (), loss=len, inference=True)  # type: ignore[arg-type]
    assert str(caught.value) == "a loss is given, but inference has none: leave out one of loss and inference"
    with pytest.raises(InputError) as caught:
        api.capture(None, (), costs="guessed")  # type: ignore[arg-type]
    assert str(caught.value) == "costs 'guessed' must be 'profiled' or 'estimated'"


def test_public_names_resolve_and_are_sorted() -> None:
    assert lowtide.__all__ == sorted(lowtide.__all__)
    for name in lowtide.__all__:
        assert getattr(lowtide, name) is not None
    assert set(lowtide.__all__) <= set(dir(lowtide))
    assert lowtide.plan is api.plan


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'lowtide' has no attribute 'plann'"):
        lowtide.plann  # type: ignore[attr-defined]  # noqa: B018


# ------------------------------------------------------------------------------------------------ for compiled models


def test_a_compiled_model_is_planned_thoroughly_where_the_quick_planner_has_nothing() -> None:
    nothing = FakePlanner(lambda _: Proposal(Status.TIMEOUT, None), name="greedy")
    result, verified = planning_for_compile(nothing, time_limit_seconds=5.0, seed=0)(four_nodes(), 17)
    assert (result.planner, verified.plan.peak_bytes, verified.plan.duration) == ("search", 17, 5)
    by_name = FakePlanner(lambda _: Proposal(Status.TIMEOUT, None), name="mine")
    with pytest.raises(NoPlanFound, match="'mine'"):
        planning_for_compile(by_name, time_limit_seconds=5.0, seed=0)(four_nodes(), 17)


def test_the_thorough_planner_gets_no_more_than_the_time_limit_leaves() -> None:
    def late(_: PlanRequest) -> Proposal:
        time.sleep(0.3)
        return Proposal(Status.TIMEOUT, None)

    with pytest.raises(NoPlanFound, match="'greedy'"):
        planning_for_compile(FakePlanner(late, name="greedy"), time_limit_seconds=0.2, seed=0)(four_nodes(), 17)


def test_a_refusal_names_what_the_thorough_planner_finds() -> None:
    nothing = FakePlanner(lambda _: Proposal(Status.TIMEOUT, None), name="greedy")
    with pytest.raises(InfeasibleBudget) as caught:
        planning_for_compile(nothing, time_limit_seconds=5.0, seed=0)(four_nodes(), 1)
    assert caught.value.smallest_known_peak_bytes == 17
