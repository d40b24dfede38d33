"""What makes a graph well-formed, and what each breach says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lowtide.errors import GraphError
from lowtide.ir import BOUNDARY_OP, Graph, Input, InputKind, Node, Value
from lowtide.testing import chain_graph, diamond_graph


def node(name: str, inputs: tuple[str, ...], *outputs: Value, **options: Any) -> Node:
    return Node(name, "test.op", 1, inputs, outputs or (Value(f"{name}.out", 4),), **options)


def graph(*nodes: Node, inputs: tuple[Input, ...] = (Input("x", 4),), **options: Any) -> Graph:
    order = tuple(item.name for item in nodes)
    return Graph(**{"name": "g", "inputs": inputs, "nodes": nodes, "outputs": (), "order": order, **options})


A = node("a", ("x",))
BOUNDARY = Node("loss", BOUNDARY_OP, 0, ("x",), (Value("g", 4),), recomputable=False)

ILL_FORMED = {
    "order repeats": (
        lambda: graph(A, order=("a", "a")),
        "graph order repeats a node: it must list every node once",
    ),
    "order lacks": (
        lambda: graph(A, node("b", ("x",)), order=("a",)),
        "graph order lacks 'b': it must list every node once",
    ),
    "order names": (
        lambda: graph(A, order=("a", "z")),
        "graph order names 'z': it must list every node once",
    ),
    "cycle": (
        lambda: graph(node("a", ("b.out",)), node("b", ("a.out",))),
        "node 'a' reads 'b.out' before node 'b' computes it in the given order: reorder, or remove the cycle",
    ),
    "self-loop": (
        lambda: graph(node("a", ("a.out",))),
        "node 'a' reads its own output 'a.out': a graph has no cycles",
    ),
    "after later": (
        lambda: graph(node("a", ("x",), after=("b",)), node("b", ("x",))),
        "node 'a' comes before 'b' in the given order, but is marked after it",
    ),
    "after itself": (
        lambda: graph(node("a", ("x",), after=("a",))),
        "node 'a' comes before 'a' in the given order, but is marked after it",
    ),
    "missing input": (
        lambda: graph(node("a", ("y",))),
        "node 'a': input 'y' is not in the graph: add it or remove the reference",
    ),
    "missing recompute input": (
        lambda: graph(node("a", ("x",), recompute_inputs=("y",))),
        "node 'a': recompute_inputs 'y' is not in the graph: add it or remove the reference",
    ),
    "missing after": (
        lambda: graph(node("a", ("x",), after=("x",))),
        "node 'a': after 'x' is not in the graph: add it or remove the reference",
    ),
    "missing output": (
        lambda: graph(A, outputs=("y",)),
        "graph outputs 'y' is not in the graph: add it or remove the reference",
    ),
    "input twice": (
        lambda: graph(node("a", ("x", "x"))),
        "node 'a' lists an input twice: list each value once",
    ),
    "output twice": (
        lambda: graph(A, outputs=("x", "x")),
        "graph outputs list a value twice: list each value once",
    ),
    "node twice": (
        lambda: graph(A, A),
        "node name 'a' occurs 2 times: give each node a name of its own",
    ),
    "value twice": (
        lambda: graph(node("a", ("x",), Value("x", 4))),
        "value name 'x' occurs 2 times: give each value a name of its own",
    ),
    "empty name": (
        lambda: graph(A, inputs=(Input("x", 4), Input("", 4))),
        "value name '' must be text of 1 to 4096 characters",
    ),
    "long name": (
        lambda: graph(A, inputs=(Input("x", 4), Input("y" * 5000, 4))),
        f"value name '{'y' * 40}' must be text of 1 to 4096 characters",
    ),
    "negative size": (
        lambda: graph(A, inputs=(Input("x", -4),)),
        "input 'x': size -4 must be a whole number of bytes from 0 to 2^53-1",
    ),
    "huge size": (
        lambda: graph(A, inputs=(Input("x", 2**53),)),
        "input 'x': size 9007199254740992 must be a whole number of bytes from 0 to 2^53-1",
    ),
    "bool as size": (
        lambda: graph(A, inputs=(Input("x", True),)),
        "input 'x': size True must be a whole number of bytes from 0 to 2^53-1",
    ),
    "size no multiple": (
        lambda: graph(node("a", ("x",), Value("o", 6)), alignment=4),
        "value 'o': size 6 is no multiple of the alignment 4: round it up",
    ),
    "workspace no multiple": (
        lambda: graph(node("a", ("x",), workspace_bytes=3), alignment=4),
        "node 'a': workspace: size 3 is no multiple of the alignment 4: round it up",
    ),
    "negative duration": (
        lambda: graph(replace(A, duration=-1)),
        "node 'a': duration -1 must be a whole number from 0 to 2^53-1",
    ),
    "float duration": (
        lambda: graph(replace(A, duration=1.5)),  # type: ignore[arg-type]
        "node 'a': duration 1.5 must be a whole number from 0 to 2^53-1",
    ),
    "huge total": (
        lambda: graph(A, inputs=(Input("x", 4), *(Input(f"x{index}", 2**53 - 1) for index in range(129)))),
        "graph 'g': sizes or durations add up to more than 2^60",
    ),
    "alias of nothing": (
        lambda: graph(node("a", ("x",), Value("v", 0, alias_of="y"))),
        "value 'v' of node 'a': alias_of 'y' is neither an input nor a sibling output of that node",
    ),
    "alias of a value elsewhere": (
        lambda: graph(A, node("b", ("x",), Value("v", 0, alias_of="a.out"))),
        "value 'v' of node 'b': alias_of 'a.out' is neither an input nor a sibling output of that node",
    ),
    "alias of itself": (
        lambda: graph(node("a", ("x",), Value("v", 0, alias_of="v"))),
        "value 'v' of node 'a' is an alias of itself through 'v': name a value that owns storage",
    ),
    "aliases of each other": (
        lambda: graph(node("a", ("x",), Value("v", 0, alias_of="w"), Value("w", 0, alias_of="v"))),
        "value 'v' of node 'a' is an alias of itself through 'w': name a value that owns storage",
    ),
    "alias with size": (
        lambda: graph(node("a", ("x",), Value("v", 4, alias_of="x"))),
        "value 'v' of node 'a' is an alias of 'x' with size 4: an alias has size 0",
    ),
    "alias of first_only": (
        lambda: graph(node("a", ("x",), Value("s", 4, first_only=True), Value("v", 0, alias_of="s"))),
        "value 'v' of node 'a' is an alias of 's', which is first_only: mark it first_only too",
    ),
    "alias and overwrites": (
        lambda: graph(node("a", ("x",), Value("v", 0, alias_of="x", overwrites="x"))),
        "value 'v' of node 'a' has both alias_of and overwrites: it can have one of them",
    ),
    "overwrites no input": (
        lambda: graph(A, node("b", ("a.out",), Value("v", 0, overwrites="x"))),
        "value 'v': overwrites 'x' is not an input of node 'b'",
    ),
    "overwrites twice": (
        lambda: graph(node("a", ("x",), Value("v", 0, overwrites="x"), Value("w", 0, overwrites="x"))),
        "node 'a' overwrites 'x' twice",
    ),
    "overwrites an output": (
        lambda: graph(node("a", ("x",), Value("v", 0, overwrites="x")), outputs=("x",)),
        "node 'a' overwrites 'x', a graph output: name the new value as the output instead",
    ),
    "two boundaries": (
        lambda: graph(BOUNDARY, replace(BOUNDARY, name="loss2", outputs=(Value("h", 4),))),
        "nodes 'loss' and 'loss2' are both lowtide.boundary: keep one",
    ),
    "recomputable boundary": (
        lambda: graph(replace(BOUNDARY, recomputable=True)),
        "boundary node 'loss' must have duration 0 and recomputable false",
    ),
    "slow boundary": (
        lambda: graph(replace(BOUNDARY, duration=1)),
        "boundary node 'loss' must have duration 0 and recomputable false",
    ),
    "duration unit": (
        lambda: graph(A, duration_unit="s"),
        "graph 'g': duration_unit 's' must be 'ns' or 'unit'",
    ),
    "alignment": (
        lambda: graph(A, alignment=0),
        "graph 'g': alignment 0 must be from 1 to 1073741824 bytes",
    ),
}


@pytest.mark.parametrize("case", ILL_FORMED)
def test_ill_formed_graphs_say_what_is_wrong(case: str) -> None:
    build, said = ILL_FORMED[case]
    with pytest.raises(GraphError) as caught:
        build()
    assert str(caught.value) == said


def test_only_user_inputs_are_evictable_and_counted_by_default() -> None:
    for kind in InputKind:
        assert Input("x", 4, kind=kind).evictable == (kind is InputKind.USER)
        assert Input("x", 4, kind=kind).is_counted == (kind is InputKind.USER)
    assert not Input("x", 4, evictable=False).evictable


def test_the_base_of_a_chain_of_views_is_the_value_that_owns_the_storage() -> None:
    views = node("b", ("v",), Value("w", 0, alias_of="y"), Value("y", 0, alias_of="v"), Value("z", 4))
    made = graph(node("a", ("x",), Value("v", 0, alias_of="x")), views)
    assert made.base_by_value == {"x": "x", "v": "x", "y": "x", "w": "x", "z": "z"}


def test_an_overwriting_output_is_a_base_of_its_own() -> None:
    made = graph(node("a", ("x",), Value("v", 0, overwrites="x")))
    assert made.base_by_value["v"] == "v"
    assert not made.value_by_name["v"].owns_storage  # type: ignore[union-attr]


def test_who_reads_and_produces() -> None:
    diamond = diamond_graph()
    assert [reader.name for reader in diamond.readers_by_value["top.out"]] == ["left", "right"]
    assert diamond.readers_by_value["bottom.out"] == ()
    assert diamond.producer_by_value["left.out"].name == "left"
    assert "x" not in diamond.producer_by_value
    assert diamond.baseline_duration == 4


def test_views_are_nodes_that_make_only_aliases() -> None:
    alias = Value("v", 0, alias_of="x")
    assert node("a", ("x",), alias).is_view
    assert not node("a", ("x",), alias, Value("o", 0)).is_view
    assert not Node("a", "op", 1, ("x",), ()).is_view
    assert not node("a", ("x",), Value("v", 0, overwrites="x")).is_view


def test_the_boundary_is_found() -> None:
    assert graph(BOUNDARY).boundary == BOUNDARY
    assert chain_graph(2).boundary is None


def test_meta_never_makes_graphs_differ() -> None:
    assert replace(chain_graph(2), meta={"a": 1}) == chain_graph(2)
