"""What steps mean: every rule with a sequence that keeps it and one that breaks it, figures worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from lowtide.errors import PlanRejected
from lowtide.ir import BOUNDARY_OP, Compute, Evict, Graph, Input, InputKind, Interval, Lifespan, Node, Step, Value
from lowtide.referee import baseline, largest_working_set, replay
from lowtide.testing import chain_graph, diamond_graph, training_chain_graph


def steps_of(text: str) -> tuple[Step, ...]:
    """``"a b -a"``: compute a, compute b, evict a."""
    return tuple(Evict(word[1:]) if word.startswith("-") else Compute(word) for word in text.split())


def node(name: str, inputs: tuple[str, ...], *outputs: Value, **options: Any) -> Node:
    return Node(name, "test.op", options.pop("duration", 1), inputs, outputs, **options)


def graph(*nodes: Node, outputs: tuple[str, ...], inputs: tuple[Input, ...] = (Input("x", 1),)) -> Graph:
    return Graph("g", inputs, nodes, outputs, tuple(item.name for item in nodes), duration_unit="unit")


CHAIN = chain_graph(3, size_bytes=10, duration=2)  # x -> v0 -> v1 -> v2


# ---------------------------------------------------------------- figures


def test_memory_counts_fresh_outputs_at_a_compute_step_and_what_is_left_at_an_evict_step() -> None:
    figures = replay(CHAIN, steps_of("n0 -x n1 -v0 n2 -v1"))
    assert figures.memory_bytes == (20, 10, 20, 10, 20, 10)
    assert (figures.peak_bytes, figures.peak_step, figures.duration) == (20, 0, 6)
    assert (figures.num_recomputes, figures.first_executions) == (0, ("n0", "n1", "n2"))


def test_a_recomputation_after_an_eviction_makes_a_second_instance() -> None:
    figures = replay(CHAIN, steps_of("n0 n1 -v0 -v1 n0 n1 -v0 n2 -v1 -x"))
    assert figures.memory_bytes == (20, 30, 20, 10, 20, 30, 20, 30, 20, 10)
    assert (figures.duration, figures.num_recomputes) == (10, 2)
    assert figures.num_copies_by_node == {"n0": 2, "n1": 2, "n2": 1}
    assert [span for span in figures.lifespans if span.name == "v1"] == [
        Lifespan("v1", 0, Interval(1, 3), 10),
        Lifespan("v1", 1, Interval(5, 8), 10),
    ]


def test_an_output_that_is_still_resident_counts_twice_for_that_step() -> None:
    figures = replay(CHAIN, steps_of("n0 n0 n1 -x -v0 n2 -v1"))
    assert figures.memory_bytes == (20, 30, 30, 20, 10, 20, 10)
    assert [span for span in figures.lifespans if span.name == "v0"] == [
        Lifespan("v0", 0, Interval(0, 4), 10),
        Lifespan("v0", 1, Interval(1, 2), 10),
    ]


def test_durations_of_the_plan_replace_those_of_the_graph() -> None:
    assert replay(CHAIN, steps_of("n0 n1 -v0 n0 -x -v0 n2 -v1"), durations=(100, 10, 1)).duration == 211


def test_a_workspace_counts_during_its_step_only() -> None:
    made = graph(node("a", ("x",), Value("a", 2), workspace_bytes=7), node("b", ("a",), Value("b", 4)), outputs=("b",))
    figures = replay(made, steps_of("a -x b -a"))
    assert figures.memory_bytes == (10, 2, 6, 4)
    assert Lifespan("a", 0, Interval(0, 1), 7, is_workspace=True) in figures.lifespans


@pytest.mark.parametrize("kind", [kind for kind in InputKind if kind is not InputKind.USER])
def test_inputs_that_are_not_the_users_count_nowhere(kind: InputKind) -> None:
    made = graph(
        node("a", ("x", "w"), Value("a", 2)), inputs=(Input("x", 1), Input("w", 50, kind=kind)), outputs=("a",)
    )
    figures = replay(made, steps_of("a -x"))
    assert figures.memory_bytes == (3, 2)
    assert {span.name for span in figures.lifespans} == {"x", "a"}
    assert largest_working_set(made).size_bytes == 3


def test_the_end_of_what_stays_is_the_number_of_steps() -> None:
    figures = replay(CHAIN, steps_of("n0 -x n1 -v0 n2 -v1"))
    assert Lifespan("v2", 0, Interval(4, 6), 10) in figures.lifespans
    assert Lifespan("x", 0, Interval(0, 1), 10) in figures.lifespans


def test_no_steps_for_no_nodes() -> None:
    figures = replay(graph(inputs=(Input("x", 5),), outputs=("x",)), ())
    assert (figures.peak_bytes, figures.peak_step, figures.duration, figures.memory_bytes) == (0, None, 0, ())


# ---------------------------------------------------------------- views

VIEWS = graph(
    node("a", ("x",), Value("a", 10)),
    node("v", ("a",), Value("v", 0, alias_of="a")),
    node("b", ("v",), Value("b", 1)),
    node("c", ("a", "b"), Value("c", 1)),
    outputs=("c",),
)


def test_a_view_keeps_the_bytes_of_its_evicted_base() -> None:
    figures = replay(VIEWS, steps_of("a v -a b -v a -x c -a -b"))
    assert figures.memory_bytes == (11, 11, 11, 12, 2, 12, 11, 12, 2, 1)


def test_recomputing_a_base_beside_its_view_makes_a_second_instance() -> None:
    figures = replay(VIEWS, steps_of("a v -a a b -v -x c -a -b"))
    assert figures.memory_bytes[3] == 21
    assert Lifespan("a", 0, Interval(0, 5), 10) in figures.lifespans
    assert Lifespan("a", 1, Interval(3, 8), 10) in figures.lifespans


def test_recomputed_views_are_no_recomputes() -> None:
    assert replay(VIEWS, steps_of("a v -v v b -v -x c -a -b")).num_recomputes == 0


def test_a_fresh_view_of_a_resident_sibling_keeps_the_fresh_instance() -> None:
    both = node("a", ("x",), Value("a", 10), Value("v", 0, alias_of="a"))
    made = graph(both, node("b", ("a", "v"), Value("b", 1)), outputs=("b",))
    figures = replay(made, steps_of("a -v a -x b -a -v"))
    assert figures.memory_bytes == (11, 11, 21, 20, 21, 11, 1)


def test_several_outputs_live_on_their_own() -> None:
    made = graph(node("a", ("x",), Value("p", 4), Value("q", 8)), node("b", ("q",), Value("b", 1)), outputs=("b",))
    assert replay(made, steps_of("a -p b -q -x")).memory_bytes == (13, 9, 10, 2, 1)


# ---------------------------------------------------------------- overwriting

INPLACE = graph(
    node("a", ("x",), Value("a", 10)),
    node("v", ("a",), Value("v", 0, alias_of="a")),
    node("r", ("v",), Value("r", 0, overwrites="v")),
    node("b", ("r",), Value("b", 1)),
    outputs=("b",),
)


def test_an_overwriting_output_takes_the_instance() -> None:
    figures = replay(INPLACE, steps_of("a -x v r b -r"))
    assert figures.memory_bytes == (11, 10, 10, 10, 11, 1)
    assert [span.name for span in figures.lifespans] == ["x", "a", "b"]


@pytest.mark.parametrize("name", ["a", "v"])
def test_all_values_of_an_overwritten_instance_end_with_it(name: str) -> None:
    with pytest.raises(PlanRejected, match=rf"^evict-resident at step 4: value '{name}' is evicted but not resident"):
        replay(INPLACE, steps_of(f"a -x v r -{name} b -r"))


def test_what_was_overwritten_comes_back_in_a_new_instance() -> None:
    figures = replay(INPLACE, steps_of("a v r a -a -x b -r"))
    assert figures.memory_bytes == (11, 11, 11, 21, 11, 10, 11, 1)


def test_a_view_of_the_overwriting_output_lives_and_one_of_the_overwritten_input_does_not() -> None:
    outputs = (Value("r", 0, overwrites="x"), Value("new", 0, alias_of="r"), Value("old", 0, alias_of="x"))
    made = graph(node("a", ("x",), *outputs), outputs=("new",))
    assert replay(made, steps_of("a -r")).memory_bytes == (1, 1)
    with pytest.raises(PlanRejected, match=r"^evict-resident at step 1: value 'old'"):
        replay(made, steps_of("a -old"))


def test_overwriting_a_buffer_counts_nothing() -> None:
    buffer = Input("s", 50, kind=InputKind.BUFFER)
    made = graph(node("a", ("s",), Value("t", 0, overwrites="s")), inputs=(buffer,), outputs=("t",))
    assert replay(made, steps_of("a")).memory_bytes == (0,)


# ---------------------------------------------------------------- what only the first execution does

FIRST_ONLY = graph(
    node("a", ("x",), Value("a", 4), Value("state", 8, first_only=True), recompute_inputs=("seed",)),
    node("b", ("a",), Value("b", 2)),
    inputs=(Input("x", 1), Input("seed", 16)),
    outputs=("b",),
)


def test_a_recomputation_makes_no_first_only_value() -> None:
    figures = replay(FIRST_ONLY, steps_of("a -state -a a b -a -x -seed"))
    assert figures.memory_bytes == (29, 21, 17, 21, 23, 19, 18, 2)


def test_a_first_only_value_is_not_brought_back() -> None:
    reader = node("c", ("state",), Value("c", 1))
    made = graph(*FIRST_ONLY.nodes, reader, inputs=FIRST_ONLY.inputs, outputs=("c",))
    with pytest.raises(PlanRejected, match=r"^inputs-resident at step 5: input 'state' of node 'c' is not resident"):
        replay(made, steps_of("a -state -a a b c"))


# ---------------------------------------------------------------- broken rules

ORDERED = graph(
    node("a", ("x",), Value("a", 1), recomputable=False),
    node("b", ("x",), Value("b", 1), after=("a",)),
    outputs=("a", "b"),
)
BOUNDARY = graph(
    node("f", ("x",), Value("f", 1)),
    Node("loss", BOUNDARY_OP, 0, ("f",), (Value("g", 1),), recomputable=False),
    node("back", ("g",), Value("d", 1)),
    outputs=("d",),
)
KEPT = graph(node("a", ("x",), Value("a", 1, evictable=False)), outputs=(), inputs=(Input("x", 1, evictable=False),))

BROKEN = {
    "known-node": (CHAIN, "n0 n9", "known-node at step 1: node 'n9' is not in the graph: compute one of its nodes"),
    "known-value": (CHAIN, "n0 -v9", "known-value at step 1: value 'v9' is not in the graph: evict one of its values"),
    "inputs-resident": (
        CHAIN,
        "n0 -v0 n1",
        "inputs-resident at step 2: input 'v0' of node 'n1' is not resident: keep or recompute it",
    ),
    "inputs never come back": (
        CHAIN,
        "-x n0",
        "inputs-resident at step 1: input 'x' of node 'n0' is not resident: keep or recompute it",
    ),
    "recompute-inputs-resident": (
        FIRST_ONLY,
        "a -seed -a a",
        "recompute-inputs-resident at step 3: recompute input 'seed' of node 'a' is not resident: keep or recompute it",
    ),
    "evict-resident": (
        CHAIN,
        "n0 -v0 -v0",
        "evict-resident at step 2: value 'v0' is evicted but not resident: leave the step out",
    ),
    "evict before it is made": (
        CHAIN,
        "-v0",
        "evict-resident at step 0: value 'v0' is evicted but not resident: leave the step out",
    ),
    "evictable input": (KEPT, "a -x", "evictable at step 1: value 'x' is not evictable: leave the step out"),
    "evictable value": (KEPT, "a -a", "evictable at step 1: value 'a' is not evictable: leave the step out"),
    "recomputable": (
        ORDERED,
        "a -a a",
        "recomputable at step 2: node 'a' must not be executed twice: keep its outputs",
    ),
    "after": (ORDERED, "b a", "after at step 0: node 'b' comes before node 'a': compute that first"),
    "boundary": (
        BOUNDARY,
        "f back",
        "inputs-resident at step 1: input 'g' of node 'back' is not resident: keep or recompute it",
    ),
    "boundary twice": (
        BOUNDARY,
        "f loss -g loss",
        "recomputable at step 3: node 'loss' must not be executed twice: keep its outputs",
    ),
    "every-node": (ORDERED, "a -x", "every-node: node 'b' is never computed: compute every node"),
    "outputs-resident": (
        CHAIN,
        "n0 -x n1 -v0 n2 -v1 -v2",
        "outputs-resident: graph output 'v2' is not resident after the last step: keep it",
    ),
    "only-outputs": (
        CHAIN,
        "n0 -x n1 -v0 n2",
        "only-outputs: value 'v1' is still resident after the last step: evict it",
    ),
    "only-outputs input": (
        CHAIN,
        "n0 n1 -v0 n2 -v1",
        "only-outputs: value 'x' is still resident after the last step: evict it",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_rules_say_where_and_what_to_do(case: str) -> None:
    broken, text, said = BROKEN[case]
    with pytest.raises(PlanRejected) as caught:
        replay(broken, steps_of(text))
    assert str(caught.value) == said
    assert said.startswith(caught.value.rule)
    assert (caught.value.step is None) == (" at step " not in said)


@pytest.mark.parametrize(
    ("durations", "said"),
    [
        ((1, 2), "durations: 2 durations for 3 nodes: give one for each, in their order"),
        ((1, -2, 3), "durations: duration -2 of node 'n1' is below 0"),
    ],
)
def test_durations_that_do_not_fit(durations: tuple[int, ...], said: str) -> None:
    with pytest.raises(PlanRejected) as caught:
        replay(CHAIN, steps_of("n0 -x n1 -v0 n2 -v1"), durations=durations)
    assert str(caught.value) == said


def test_unevictable_values_stay_after_the_last_step() -> None:
    assert replay(KEPT, steps_of("a")).memory_bytes == (2,)


# ---------------------------------------------------------------- baseline and working set


def test_the_baseline_evicts_right_after_the_last_use() -> None:
    figures = baseline(diamond_graph(size_bytes=10))
    assert figures.memory_bytes == (20, 10, 20, 30, 20, 30, 20, 10)
    assert (figures.peak_bytes, figures.peak_step) == (30, 3)


def test_the_baseline_of_a_training_chain_keeps_all_activations() -> None:
    # x (unevictable), a0..a4 and g5 at the boundary; b4 then reads g5 and a3 and makes g4.
    assert baseline(training_chain_graph(5, size_bytes=1)).peak_bytes == 7


def test_the_baseline_of_an_order_that_reads_what_was_overwritten_is_refused() -> None:
    made = graph(node("a", ("x",), Value("a", 0, overwrites="x")), node("b", ("x", "a"), Value("b", 1)), outputs=("b",))
    with pytest.raises(PlanRejected, match=r"^inputs-resident at step 1: input 'x' of node 'b' is not resident"):
        baseline(made)


def test_the_working_set_holds_inputs_outputs_and_workspace_each_storage_once() -> None:
    made = graph(
        node("a", ("x",), Value("a", 10)),
        node("v", ("a",), Value("v", 0, alias_of="a")),
        node("b", ("a", "v"), Value("b", 3), Value("w", 0, alias_of="v"), workspace_bytes=5),
        outputs=("b",),
    )
    assert (largest_working_set(made).node, largest_working_set(made).size_bytes) == ("b", 18)


def test_the_working_set_holds_the_instance_that_an_input_took_over() -> None:
    made = graph(
        node("a", ("x",), Value("a", 100)),
        node("r", ("a",), Value("r", 0, overwrites="a")),
        node("v", ("r",), Value("v", 0, alias_of="r")),
        node("b", ("v",), Value("b", 30)),
        outputs=("b",),
    )
    assert (largest_working_set(made).node, largest_working_set(made).size_bytes) == ("b", 130)


def test_the_working_set_holds_inputs_that_can_never_leave() -> None:
    inputs = (Input("x", 1), Input("kept", 50, evictable=False), Input("out", 7), Input("loose", 90))
    made = graph(node("a", ("x",), Value("a", 2)), inputs=inputs, outputs=("a", "out"))
    assert largest_working_set(made).size_bytes == 1 + 2 + 50 + 7


def test_an_unevictable_input_that_is_overwritten_can_leave() -> None:
    nodes = (
        node("a", ("kept",), Value("r", 0, overwrites="kept")),
        node("b", ("r",), Value("b", 1)),
        node("c", ("b",), Value("c", 60)),
    )
    made = graph(*nodes, inputs=(Input("kept", 50, evictable=False),), outputs=("c",))
    assert (largest_working_set(made).node, largest_working_set(made).size_bytes) == ("c", 61)
    assert baseline(made).peak_bytes == 61


def test_a_graph_without_nodes_has_no_working_set() -> None:
    made = graph(outputs=())
    assert (largest_working_set(made).node, largest_working_set(made).size_bytes) == (None, 0)
