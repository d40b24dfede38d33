"""Which values share a storage, and what must not be recomputed."""

from __future__ import annotations

from lowtide.ir import Graph, Input, Node, Value
from lowtide.planners.storages import find_storages


def graph_of(*nodes: Node, outputs: tuple[str, ...]) -> Graph:
    return Graph("g", (Input("x", 4),), nodes, outputs, tuple(node.name for node in nodes))


def plain(name: str, *inputs: str, size_bytes: int = 4) -> Node:
    return Node(name, "op", 1, inputs, (Value(f"{name}.out", size_bytes),))


def test_views_of_views_share_the_storage_of_their_base() -> None:
    graph = graph_of(
        plain("a", "x"),
        Node("v", "view", 0, ("a.out",), (Value("v.out", 0, alias_of="a.out"),)),
        Node("w", "view", 0, ("v.out",), (Value("w.out", 0, alias_of="v.out"),)),
        outputs=("w.out",),
    )
    storages = find_storages(graph)
    assert {name for name, root in storages.root_by_value.items() if root == "a.out"} == {"a.out", "v.out", "w.out"}
    assert storages.clean_views == {"v", "w"}
    assert storages.frozen_nodes == frozenset()


def test_a_view_that_cannot_be_executed_again_freezes_its_base() -> None:
    graph = graph_of(
        plain("a", "x"),
        Node("v", "view", 0, ("a.out",), (Value("v.out", 0, alias_of="a.out"),), recomputable=False),
        outputs=("v.out",),
    )
    storages = find_storages(graph)
    assert storages.clean_views == frozenset()
    assert storages.frozen_nodes == {"a", "v"}


def test_an_alias_of_a_sibling_is_made_anew_with_it() -> None:
    graph = graph_of(
        Node("a", "op", 1, ("x",), (Value("p", 4), Value("q", 0, alias_of="p"))),
        outputs=("q",),
    )
    assert find_storages(graph).frozen_nodes == frozenset()


def test_an_alias_that_only_the_first_execution_makes_freezes_its_sibling() -> None:
    graph = graph_of(
        Node("a", "op", 1, ("x",), (Value("p", 4), Value("q", 0, alias_of="p", first_only=True))),
        outputs=("q",),
    )
    assert find_storages(graph).frozen_nodes == {"a"}


def test_overwriting_freezes_and_ends_the_old_value() -> None:
    graph = graph_of(
        plain("a", "x"),
        plain("b", "a.out"),
        Node("o", "relu_", 1, ("a.out",), (Value("o.out", 0, overwrites="a.out"),)),
        plain("c", "b.out", "o.out"),
        outputs=("c.out",),
    )
    storages = find_storages(graph)
    assert storages.root_by_value["o.out"] == "a.out"
    assert storages.frozen_nodes == {"a", "o"}
    assert storages.overwritten_values == {"a.out"}
    assert storages.last_stage_by_node == {"b": 2, "o": 2}  # b reads a.out, which is gone after position 2
