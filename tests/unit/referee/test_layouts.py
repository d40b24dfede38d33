"""Addresses: placed once, aligned, of the right size, and never two on the same bytes at the same step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from lowtide.errors import LayoutRejected, PlanRejected
from lowtide.ir import Compute, Evict, Graph, Input, InputKind, Layout, Node, Placement, Value
from lowtide.ir.sequence import baseline_steps, steps_from_sequence
from lowtide.referee import VerifiedLayout, check_layout, check_plan, replay
from lowtide.testing import chain_graph, honest_plan, stacked_layout, training_chain_graph

#     x -> a (workspace) -> b -> c, alignment 4
GRAPH = Graph(
    "g",
    (Input("x", 4), Input("w", 400, kind=InputKind.PARAMETER)),
    (
        Node("a", "op", 1, ("x", "w"), (Value("a.out", 8),), workspace_bytes=4),
        Node("b", "op", 1, ("a.out",), (Value("b.out", 4), Value("none", 0))),
        Node("c", "op", 1, ("b.out",), (Value("c.out", 12),)),
    ),
    ("c.out",),
    ("a", "b", "c"),
    alignment=4,
)
STEPS = baseline_steps(GRAPH)  # a -x b -a.out -none c -b.out
GOOD = (
    Placement("x", 0, 8, 4),
    Placement("a.out", 0, 0, 8),
    Placement("a", 0, 12, 4, is_workspace=True),
    Placement("b.out", 0, 12, 4),
    Placement("c.out", 0, 0, 12),
)


def test_bytes_are_shared_across_steps() -> None:
    verified = check_layout(GRAPH, STEPS, Layout(GOOD))
    assert verified.footprint_bytes == 16 == replay(GRAPH, STEPS).peak_bytes
    assert {span.name for span in verified.lifespans} == {"x", "a.out", "a", "b.out", "c.out"}


def changed(index: int, **changes: int) -> Callable[[], Layout]:
    return lambda: Layout((*GOOD[:index], replace(GOOD[index], **changes), *GOOD[index + 1 :]))


BROKEN: dict[str, tuple[Callable[[], Layout], str]] = {
    "no value": (lambda: Layout(GOOD[1:]), "placed: value 'x' #0 has no placement: give it one"),
    "no workspace": (
        lambda: Layout(GOOD[:2] + GOOD[3:]),
        "placed: workspace of node 'a' #0 has no placement: give it one",
    ),
    "twice": (lambda: Layout((*GOOD, GOOD[0])), "once: value 'x' #0 has two placements: keep one"),
    "parameter": (
        lambda: Layout((*GOOD, Placement("w", 0, 100, 400))),
        "known: value 'w' #0 is never allocated by the plan: remove its placement",
    ),
    "occurrence": (
        changed(0, occurrence=1),
        "known: value 'x' #1 is never allocated by the plan: remove its placement",
    ),
    "size": (changed(1, size_bytes=4), "size: value 'a.out' #0 is placed with 4 bytes, but has 8"),
    "alignment": (
        changed(3, offset=14),
        "aligned: value 'b.out' #0 lies at offset 14, no multiple of 4 from 0 up",
    ),
    "below 0": (changed(3, offset=-4), "aligned: value 'b.out' #0 lies at offset -4, no multiple of 4 from 0 up"),
    "fresh output on input": (
        changed(1, offset=4),
        "disjoint at step 0: value 'x' #0 at [8, 12) and value 'a.out' #0 at [4, 12) share bytes",
    ),
    "workspace on input": (
        changed(2, offset=8),
        "disjoint at step 0: workspace of node 'a' #0 at [8, 12) and value 'x' #0 at [8, 12) share bytes",
    ),
    "output on input": (
        changed(4, offset=4),
        "disjoint at step 5: value 'c.out' #0 at [4, 16) and value 'b.out' #0 at [12, 16) share bytes",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_layouts_say_what_is_wrong(case: str) -> None:
    build, said = BROKEN[case]
    with pytest.raises(LayoutRejected) as caught:
        check_layout(GRAPH, STEPS, build())
    assert str(caught.value) == said


def test_instances_of_no_bytes_need_no_placement_and_may_have_one() -> None:
    check_layout(GRAPH, STEPS, Layout((*GOOD, Placement("none", 0, 4, 0))))
    with pytest.raises(LayoutRejected, match=r"^aligned: value 'none' #0 lies at offset 3"):
        check_layout(GRAPH, STEPS, Layout((*GOOD, Placement("none", 0, 3, 0))))


def test_every_copy_has_an_address_of_its_own_those_dropped_at_once_included() -> None:
    graph = chain_graph(2, size_bytes=1)
    steps = (Compute("n0"), Compute("n0"), Compute("n1"), Evict("v0"), Evict("x"))
    places = [Placement("x", 0, 0, 1), Placement("v0", 0, 1, 1), Placement("v0", 1, 2, 1), Placement("v1", 0, 2, 1)]
    assert check_layout(graph, steps, Layout(tuple(places))).footprint_bytes == 3
    with pytest.raises(LayoutRejected, match=r"^disjoint at step 1: value 'v0' #1 at \[1, 2\) and value 'v0' #0"):
        check_layout(graph, steps, Layout((*places[:2], Placement("v0", 1, 1, 1), places[3])))


def test_a_step_after_an_eviction_may_use_its_bytes_and_the_step_before_may_not() -> None:
    graph = chain_graph(2, size_bytes=1)
    places = (Placement("x", 0, 0, 1), Placement("v0", 0, 1, 1), Placement("v1", 0, 0, 1))
    check_layout(graph, (Compute("n0"), Evict("x"), Compute("n1"), Evict("v0")), Layout(places))
    with pytest.raises(LayoutRejected, match=r"^disjoint at step 1: value 'v1' #0"):
        check_layout(graph, (Compute("n0"), Compute("n1"), Evict("x"), Evict("v0")), Layout(places))


def test_steps_that_break_a_rule_are_refused_first() -> None:
    with pytest.raises(PlanRejected, match=r"^every-node: node 'a' is never computed"):
        check_layout(GRAPH, (), Layout(GOOD))


def test_nobody_else_makes_a_verified_layout() -> None:
    with pytest.raises(TypeError, match=r"^a VerifiedLayout comes from lowtide\.referee\.check_layout only$"):
        VerifiedLayout(Layout(GOOD), (), 16)


def test_work_grows_with_the_number_of_steps(num_calls: Callable[[Callable[[], object]], int]) -> None:
    """Ten thousand nodes take a second or two."""
    calls = []
    for depth in (500, 5000):
        graph = training_chain_graph(depth)
        sequence = [*graph.order[:depth], *graph.order[:depth:2], *graph.order[depth:]]
        steps = steps_from_sequence(graph, sequence)
        layout = stacked_layout(replay(graph, steps).lifespans, alignment=1)
        plan = honest_plan(graph, steps, layout=layout)
        calls.append(num_calls(lambda graph=graph, plan=plan: check_plan(graph, plan)))  # type: ignore[misc]
    assert len(steps) > 20_000
    assert calls[1] < 13 * calls[0]
