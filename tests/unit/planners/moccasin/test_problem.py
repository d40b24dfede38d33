"""Graphs in columns."""

from __future__ import annotations

from lowtide.ir import Graph, Input, InputKind, Node, Value
from lowtide.planners.moccasin.problem import problem_from_graph


def graph_of(*nodes: Node, outputs: tuple[str, ...] = (), inputs: tuple[Input, ...] = ()) -> Graph:
    return Graph("g", inputs, nodes, outputs, tuple(node.name for node in nodes), "unit")


def test_a_node_is_recomputed_only_while_something_can_still_use_it() -> None:
    graph = graph_of(
        Node("a", "op", 1, (), (Value("a", 1),)),
        Node("b", "op", 1, ("a",), (Value("b", 1),)),
        Node("c", "op", 1, (), (Value("c", 1),)),
        Node("d", "op", 1, ("b",), (Value("d", 1),)),
        Node("e", "op", 1, ("c",), (Value("e", 1),)),
    )
    columns = problem_from_graph(graph, budget_bytes=9, max_copies=3).columns
    # b is read last in stage 3; a can serve a recomputation of b there; d and e are read by nobody
    assert [column.last_stage for column in columns] == [3, 3, 4, 3, 4]
    assert [column.max_executions for column in columns] == [3, 3, 3, 1, 1]
    assert columns[0].recompute_events == (1, 3, 6)


def test_outputs_are_read_by_the_end_of_the_plan() -> None:
    graph = graph_of(Node("a", "op", 1, (), (Value("a", 1),)), outputs=("a",))
    problem = problem_from_graph(graph, budget_bytes=9, max_copies=2)
    assert [column.node for column in problem.columns] == ["a", None]
    assert problem.value_by_name["a"].readers == (1,)
    assert problem.last_event == 2


def test_what_cannot_come_back_has_one_copy() -> None:
    graph = graph_of(
        Node("a", "op", 1, (), (Value("a", 1),), recomputable=False),
        Node("b", "op", 1, (), (Value("b", 1), Value("state", 1, first_only=True))),
        Node("c", "op", 1, ("a", "b", "state"), (Value("c", 1),)),
    )
    problem = problem_from_graph(graph, budget_bytes=9, max_copies=2)
    assert {value.name: value.max_copies for value in problem.values} == {"a": 1, "b": 2, "state": 1, "c": 1}


def test_parameters_and_aliases_hold_no_bytes() -> None:
    inputs = (Input("w", 7, kind=InputKind.PARAMETER), Input("x", 5))
    view = Node("view", "op", 0, ("x",), (Value("view", 0, alias_of="x"),))
    after = Node("again", "op", 0, ("view",), (Value("again", 0, alias_of="view"),))
    problem = problem_from_graph(graph_of(view, after, inputs=inputs), budget_bytes=9, max_copies=2)
    assert {value.name: value.size_bytes for value in problem.values} == {"w": 0, "x": 5, "view": 0, "again": 0}
    assert problem.root_by_value["again"] == "x"
    assert [value.name for value in problem.sharers_by_root["x"]] == ["view", "again"]


def test_overwriting_an_unevictable_value_makes_the_model_inexact() -> None:
    nodes = (
        Node("a", "op", 1, (), (Value("a", 4, evictable=False),)),
        Node("b", "op", 1, ("a",), (Value("b", 0, overwrites="a"),)),
    )
    assert not problem_from_graph(graph_of(*nodes), budget_bytes=9, max_copies=2).is_exact
    assert problem_from_graph(graph_of(nodes[0]), budget_bytes=9, max_copies=2).is_exact
