"""Every figure of a plan is a claim: one test for each that is false."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import pytest

from lowtide.errors import LayoutRejected, PlanRejected
from lowtide.ir import Compute, Evict, Graph, Incumbent, Layout, Plan, Scope, Status
from lowtide.ir.sequence import baseline_steps, steps_from_sequence
from lowtide.referee import VerifiedPlan, baseline, check_plan, replay
from lowtide.testing import chain_graph, diamond_graph, honest_plan, stacked_layout, training_chain_graph

GRAPH = diamond_graph(size_bytes=10)  # baseline peak 30, duration 4


def plan_of(graph: Graph = GRAPH, **changes: Any) -> Plan:
    return replace(honest_plan(graph, baseline_steps(graph)), **changes)


def test_an_honest_plan_is_accepted() -> None:
    plan = plan_of()
    verified = check_plan(GRAPH, plan)
    assert (verified.graph, verified.plan) == (GRAPH, plan)
    assert verified.replay == baseline(GRAPH)


FALSE_CLAIMS: dict[str, tuple[dict[str, Any], str]] = {
    "graph": ({"graph_sha256": "0" * 64}, "graph: the plan is for graph '000000000000', this one is "),
    "peak": ({"peak_bytes": 29}, "peak-bytes: the plan says peak_bytes 29, but it is 30"),
    "duration": ({"duration": 3}, "duration: the plan says duration 3, but it is 4"),
    "baseline": ({"baseline_duration": 5}, "baseline-duration: the plan says baseline_duration 5, but it is 4"),
    "count": ({"durations": (1, 1)}, "durations: 2 durations for 4 nodes: give one for each, in their order"),
    "durations": ({"durations": (1, 1, 1, 2)}, "duration: the plan says duration 4, but it is 5"),
    "footprint": ({"footprint_bytes": 30}, "footprint-bytes: the plan says footprint_bytes 30, but it is None"),
    "budget": ({"budget_bytes": 29}, "budget: peak 30 bytes exceeds the budget 29 bytes"),
    "bound": ({"lower_bound_duration": 5}, "lower-bound: lower bound 5 is above the plan's own duration 4"),
    "optimal without": (
        {"status": Status.OPTIMAL},
        "status: an optimal plan of duration 4 needs that lower bound, but it has None",
    ),
    "optimal with less": (
        {"status": Status.OPTIMAL, "lower_bound_duration": 3},
        "status: an optimal plan of duration 4 needs that lower bound, but it has 3",
    ),
    "infeasible": (
        {"status": Status.INFEASIBLE},
        "status: status 'infeasible' of a plan must be 'feasible' or 'optimal'",
    ),
    "scope": ({"scope": Scope(order="any")}, "scope: scope.order 'any' must be 'fixed', 'free' or 'staged'"),
    "incumbent bound": (
        {"incumbents": (Incumbent(0.1, 9, 2), Incumbent(0.2, 4, 5))},
        "incumbents: an incumbent's bound 5 is above the plan's duration 4",
    ),
    "incumbent duration": (
        {"incumbents": (Incumbent(0.1, 3, None),), "lower_bound_duration": 4},
        "incumbents: an incumbent's duration 3 is below the bound 4",
    ),
    "steps": (
        {"steps": (Evict("x"),)},
        "every-node: node 'top' is never computed: compute every node",
    ),
}


@pytest.mark.parametrize("case", FALSE_CLAIMS)
def test_false_claims_are_refused(case: str) -> None:
    changes, said = FALSE_CLAIMS[case]
    with pytest.raises(PlanRejected) as caught:
        check_plan(GRAPH, plan_of(**changes))
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


def test_an_optimal_plan_with_its_bound_is_accepted() -> None:
    check_plan(GRAPH, plan_of(status=Status.OPTIMAL, lower_bound_duration=4, incumbents=(Incumbent(0.1, 4, 4),)))


def test_a_budget_given_replaces_that_of_the_plan() -> None:
    check_plan(GRAPH, plan_of(budget_bytes=1), budget_bytes=30)
    with pytest.raises(PlanRejected, match=r"^budget: peak 30 bytes exceeds the budget 29 bytes$"):
        check_plan(GRAPH, plan_of(budget_bytes=100), budget_bytes=29)


def test_another_order_is_accepted_only_where_it_is_free() -> None:
    steps = steps_from_sequence(GRAPH, ["top", "right", "left", "bottom"])
    said = r"^order: node 'right' is first executed where the given order has 'left'$"
    free = honest_plan(GRAPH, steps)
    check_plan(GRAPH, free)
    with pytest.raises(PlanRejected, match=said):
        check_plan(GRAPH, free, keep_order=True)
    with pytest.raises(PlanRejected, match=said):
        check_plan(GRAPH, replace(free, scope=Scope(order="fixed")))


def test_recomputation_keeps_the_given_order() -> None:
    steps = steps_from_sequence(GRAPH, ["top", "left", "top", "right", "bottom"])
    check_plan(GRAPH, honest_plan(GRAPH, steps), keep_order=True)


@pytest.mark.parametrize(
    ("sequence", "said"),
    [
        (["top", "left", "top", "right", "bottom"], None),
        (["top", "left", "top", "right", "top", "left", "bottom"], None),  # each once, in the given order
        (["top", "left", "right", "top", "left", "bottom", "top"], None),  # a new stage after every first execution
        (["top", "left", "right", "left", "top", "bottom"], "'top' runs again after 'left'"),
        (["top", "left", "right", "top", "top", "bottom"], "'top' runs again after 'top'"),
        (["top", "left", "right", "bottom", "right", "left"], "'left' runs again after 'right'"),  # after the last one
    ],
)
def test_staged_plans_recompute_once_each_in_the_given_order(sequence: list[str], said: str | None) -> None:
    steps = [Compute(name) for name in sequence]
    values = ("x", *(f"{name}.out" for name in ("top", "left", "right")))
    plan = honest_plan(GRAPH, [*steps, *map(Evict, values)])
    check_plan(GRAPH, replace(plan, scope=Scope(order="fixed")))
    staged = replace(plan, scope=Scope(order="staged"))
    if said is None:
        check_plan(GRAPH, staged)
        return
    with pytest.raises(
        PlanRejected, match=rf"^stages at step \d: node {said} in one stage: in the scope 'staged' each"
    ):
        check_plan(GRAPH, staged)


def test_staged_plans_keep_the_given_order() -> None:
    free = honest_plan(GRAPH, steps_from_sequence(GRAPH, ["top", "right", "left", "bottom"]))
    with pytest.raises(PlanRejected, match=r"^order: node 'right' is first executed where the given order has 'left'$"):
        check_plan(GRAPH, replace(free, scope=Scope(order="staged")))


def test_no_node_is_executed_more_often_than_the_scope_says() -> None:
    steps = steps_from_sequence(GRAPH, ["top", "left", "top", "right", "bottom"])
    check_plan(GRAPH, replace(honest_plan(GRAPH, steps), scope=Scope(order="free", max_copies=2)))
    with pytest.raises(PlanRejected, match=r"^max-copies: node 'top' is executed 2 times, the scope allows 1$"):
        check_plan(GRAPH, replace(honest_plan(GRAPH, steps), scope=Scope(order="free", max_copies=1)))


def test_with_a_layout_the_budget_applies_to_the_footprint() -> None:
    steps = baseline_steps(GRAPH)
    layout = stacked_layout(replay(GRAPH, steps).lifespans, alignment=1)
    plan = honest_plan(GRAPH, steps, layout=layout)
    assert plan.footprint_bytes == 50
    check_plan(GRAPH, plan, budget_bytes=50)
    with pytest.raises(PlanRejected, match=r"^budget: footprint 50 bytes exceeds the budget 49 bytes$"):
        check_plan(GRAPH, plan, budget_bytes=49)
    with pytest.raises(PlanRejected, match=r"^footprint-bytes: the plan says footprint_bytes 30, but it is 50$"):
        check_plan(GRAPH, replace(plan, footprint_bytes=30))
    with pytest.raises(LayoutRejected, match=r"^placed: value 'x' #0 has no placement: give it one$"):
        check_plan(GRAPH, replace(plan, layout=Layout(layout.placements[1:])))


def test_a_rewritten_graph_is_the_one_that_is_checked() -> None:
    original, rewritten = chain_graph(2), training_chain_graph(2)
    rewrite = honest_plan(rewritten, baseline_steps(rewritten))
    plan = replace(rewrite, graph_sha256=plan_of(original).graph_sha256, graph=rewritten)
    assert check_plan(original, plan).graph == rewritten
    with pytest.raises(PlanRejected, match=r"^graph: the plan is for graph"):
        check_plan(rewritten, plan)
    with pytest.raises(PlanRejected, match=r"^durations: 6 durations for 2 nodes"):
        check_plan(original, replace(plan, graph=None))


def test_a_new_profile_does_not_orphan_a_plan() -> None:
    slower = chain_graph(3, duration=50)
    verified = check_plan(slower, plan_of(chain_graph(3, duration=2)))
    assert verified.replay.duration == 6


def test_nobody_else_makes_a_verified_plan() -> None:
    verified = check_plan(GRAPH, plan_of())
    with pytest.raises(TypeError, match=r"^a VerifiedPlan comes from lowtide\.referee\.check_plan only$"):
        VerifiedPlan(verified.graph, verified.plan, verified.replay)
    with pytest.raises(TypeError, match="comes from lowtide"):
        replace(verified, plan=plan_of(budget_bytes=1))
    with pytest.raises(dataclasses.FrozenInstanceError):
        verified.plan = plan_of()  # type: ignore[misc]
