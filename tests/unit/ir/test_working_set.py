"""The largest working set: what counts, once each, and what is always there beside it."""

from __future__ import annotations

from lowtide.ir import Graph, Input, InputKind, Node, Value
from lowtide.ir.working_set import WorkingSet, largest_working_set, owner_by_value


def graph_of(*nodes: Node, inputs: tuple[Input, ...] = (), outputs: tuple[str, ...] = ()) -> Graph:
    return Graph("g", inputs, nodes, outputs, tuple(node.name for node in nodes), "unit")


def test_inputs_outputs_and_workspace_count() -> None:
    nodes = (
        Node("a", "op", 1, ("x",), (Value("a", 4),)),
        Node("b", "op", 1, ("a",), (Value("b", 5),), workspace_bytes=2),
    )
    assert largest_working_set(graph_of(*nodes, inputs=(Input("x", 3),))) == WorkingSet("b", 4 + 5 + 2)


def test_values_of_one_storage_count_once() -> None:
    nodes = (
        Node("a", "op", 1, (), (Value("a", 4), Value("view", 0, alias_of="a"))),
        Node("b", "op", 1, ("a", "view"), (Value("b", 0, overwrites="a"),)),
    )
    graph = graph_of(*nodes)
    assert owner_by_value(graph) == {"a": "a", "view": "a", "b": "a"}
    assert largest_working_set(graph) == WorkingSet("a", 4)


def test_inputs_that_stay_count_beside_every_node() -> None:
    node = Node("a", "op", 1, ("x",), (Value("a", 4),))
    for kept in (Input("y", 8, evictable=False), Input("y", 8)):
        outputs = ("y",) if kept.evictable else ()
        graph = graph_of(node, inputs=(Input("x", 3), kept), outputs=outputs)
        assert largest_working_set(graph) == WorkingSet("a", 3 + 4 + 8)


def test_an_input_stays_where_something_on_its_storage_does() -> None:
    """The bytes of x must be there for its view, or for what overwrites it, and these stay: x can never leave."""
    for output in (Value("o", 0, alias_of="x"), Value("o", 0, overwrites="x")):
        nodes = (
            Node("a", "op", 1, (), (Value("a", 4),)),
            Node("o", "op", 1, ("x",), (output,)),
        )
        graph = graph_of(*nodes, inputs=(Input("x", 8),), outputs=("o",))
        assert largest_working_set(graph) == WorkingSet("a", 4 + 8)
    pinned = Node("o", "op", 1, ("x",), (Value("o", 0, alias_of="x", evictable=False),))
    graph = graph_of(Node("a", "op", 1, (), (Value("a", 4),)), pinned, inputs=(Input("x", 8),))
    assert largest_working_set(graph) == WorkingSet("a", 4 + 8)


def test_an_input_that_is_overwritten_may_leave() -> None:
    nodes = (
        Node("over", "op", 1, ("x",), (Value("o", 0, overwrites="x"),)),
        Node("a", "op", 1, (), (Value("a", 10),)),
    )
    graph = graph_of(*nodes, inputs=(Input("x", 8, evictable=False),))
    assert largest_working_set(graph) == WorkingSet("a", 10)


def test_parameters_hold_no_bytes() -> None:
    node = Node("a", "op", 1, ("w",), (Value("a", 4),))
    assert largest_working_set(graph_of(node, inputs=(Input("w", 9, kind=InputKind.PARAMETER),))).size_bytes == 4


def test_a_graph_without_nodes_keeps_what_stays() -> None:
    assert largest_working_set(graph_of(inputs=(Input("x", 3),), outputs=("x",))) == WorkingSet(None, 3)
