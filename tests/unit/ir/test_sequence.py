"""From sequences to steps: where each copy is evicted."""

from __future__ import annotations

import pytest

from lowtide.ir import Compute, Graph, Input, Node, Value
from lowtide.ir.sequence import baseline_steps, steps_from_sequence
from lowtide.testing import chain_graph, diamond_graph


def text_of(graph: Graph, sequence: str) -> str:
    """``"a b -a"``: compute a, compute b, evict a."""
    steps = steps_from_sequence(graph, sequence.split())
    return " ".join(step.node if isinstance(step, Compute) else f"-{step.value}" for step in steps)


def node(name: str, inputs: str, *outputs: Value, recompute_inputs: tuple[str, ...] = ()) -> Node:
    return Node(name, "op", 1, tuple(inputs.split()), outputs, recompute_inputs=recompute_inputs)


def graph(*nodes: Node, outputs: str, inputs: tuple[Input, ...] = (Input("x", 1),)) -> Graph:
    return Graph("g", inputs, nodes, tuple(outputs.split()), tuple(item.name for item in nodes))


def test_every_copy_lives_until_its_last_use() -> None:
    assert text_of(chain_graph(3), "n0 n1 n0 n1 n2") == "n0 n1 -v0 -v1 n0 -x n1 -v0 n2 -v1"
    assert text_of(diamond_graph(), "top left top right bottom") == (
        "top left -top.out top -x right -top.out bottom -left.out -right.out"
    )


def test_the_baseline_takes_the_given_order() -> None:
    assert baseline_steps(chain_graph(2)) == steps_from_sequence(chain_graph(2), ["n0", "n1"])


def test_what_nobody_uses_is_evicted_at_once() -> None:
    made = graph(node("a", "x", Value("p", 1), Value("q", 1)), outputs="p", inputs=(Input("x", 1), Input("y", 1)))
    assert text_of(made, "a") == "-y a -x -q"
    assert text_of(made, "a a") == "-y a -p -q a -x -q"


def test_outputs_and_unevictable_values_stay() -> None:
    made = graph(
        node("a", "x", Value("p", 1, evictable=False), Value("q", 1)),
        node("b", "q", Value("b", 1)),
        outputs="b x",
    )
    assert text_of(made, "a b a") == "a b -q a -q"


def test_recompute_inputs_are_used_from_the_second_execution_on() -> None:
    made = graph(
        node("a", "x", Value("a", 1), recompute_inputs=("s",)),
        node("b", "a", Value("b", 1)),
        node("c", "a b", Value("c", 1)),
        inputs=(Input("x", 1), Input("s", 1)),
        outputs="c",
    )
    assert text_of(made, "a b c") == "-s a -x b c -a -b"
    assert text_of(made, "a b a c") == "a b -a a -x -s c -a -b"


def test_first_only_values_keep_their_only_copy() -> None:
    made = graph(
        node("a", "x", Value("a", 1), Value("s", 1, first_only=True)),
        node("b", "a", Value("b", 1)),
        node("c", "a b s", Value("c", 1)),
        outputs="c",
    )
    assert text_of(made, "a b a c") == "a b -a a -x c -a -s -b"


OVERWRITING = (
    node("a", "x", Value("a", 4)),
    node("v", "a", Value("v", 0, alias_of="a")),
    node("r", "a v", Value("r", 0, overwrites="v")),
    node("b", "r", Value("b", 1)),
)


@pytest.mark.parametrize(
    ("sequence", "text"),
    [
        # a and v end with the step that overwrites their instance
        ("a v r b", "a -x v r b -r"),
        # a fresh a, computed after the view, has an instance of its own and is evicted as usual
        ("a v a r b", "a v -a a -x r -a b -r"),
    ],
)
def test_what_an_overwriting_ends_is_not_evicted(sequence: str, text: str) -> None:
    assert text_of(graph(*OVERWRITING, outputs="b"), sequence) == text


def test_a_view_of_what_its_own_node_overwrites_is_not_evicted() -> None:
    made = graph(
        node("a", "x", Value("r", 0, overwrites="x"), Value("old", 0, alias_of="x"), Value("new", 0, alias_of="r")),
        outputs="r",
    )
    assert text_of(made, "a") == "a -new"


def test_an_unevictable_value_that_was_overwritten_comes_back_in_a_new_instance() -> None:
    made = graph(
        node("a", "x", Value("a", 4, evictable=False)),
        node("r", "a", Value("r", 0, overwrites="a")),
        node("b", "r", Value("b", 1)),
        outputs="b",
    )
    assert text_of(made, "a r a r b") == "a r -r a -x r b -r"


def test_a_value_that_its_own_recomputation_reads_stays() -> None:
    made = graph(
        node("a", "x", Value("a", 4), recompute_inputs=("a",)),
        node("b", "a", Value("b", 1)),
        outputs="b",
    )
    assert text_of(made, "a a b") == "a a -x b -a"
