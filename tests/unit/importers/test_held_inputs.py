import itertools

from lowtide import api
from lowtide.importers.held_inputs import INPUTS_OP, with_inputs_held
from lowtide.ir import Graph, Input, InputKind, Node, Value
from lowtide.referee import baseline

X, UNREAD, WEIGHT = Input("x", 64), Input("unread", 640), Input("weight", 9999, kind=InputKind.CONSTANT)


def node(name: str, *inputs: str, size_bytes: int = 16, after: tuple[str, ...] = ()) -> Node:
    return Node(name, "op", 1, inputs, (Value(f"{name}.out", size_bytes),), after=after)


def graph_of(inputs: tuple[Input, ...], nodes: tuple[Node, ...], outputs: tuple[str, ...]) -> Graph:
    held = with_inputs_held(inputs, nodes, outputs)
    return Graph("small", inputs, held, outputs, tuple(each.name for each in held))


def test_where_all_inputs_are_read_or_returned_nothing_is_added() -> None:
    nodes = (node("a", "x", "weight"),)
    assert with_inputs_held((X, WEIGHT), nodes, ("a.out",)) == nodes
    assert with_inputs_held((X, UNREAD), nodes, ("a.out", "unread")) == nodes


def test_an_input_that_nobody_reads_counts_before_anything_runs() -> None:
    nodes = (node("a", "x", size_bytes=100), node("b", "a.out"), node("free"), node("late", after=("b",)))
    graph = graph_of((X, UNREAD, WEIGHT), nodes, ("b.out",))
    first, a, b, free, late = graph.nodes
    assert (first.op, first.inputs, first.outputs, first.duration) == (INPUTS_OP, ("x", "unread"), (), 0)
    assert (a.after, b.after, free.after, late.after) == ((first.name,), (), (first.name,), ("b",))
    assert baseline(graph).peak_bytes == 64 + 640
    assert baseline(graph).num_recomputes == 0


def test_no_planner_gets_around_it() -> None:
    nodes = (node("a", "x", size_bytes=400), node("b", "a.out"), node("c", "a.out", "b.out"))
    graph = graph_of((X, UNREAD), nodes, ("c.out",))
    for planner, keep_order in itertools.product(("search", "greedy", "sqrt"), (True, False)):
        result = api.plan(graph, budget="min", planner=planner, keep_order=keep_order, time_limit_seconds=1, threads=1)
        assert result.plan is not None
        assert (result.plan.peak_bytes, result.plan.footprint_bytes) == (704, 704)


def test_inputs_of_a_graph_without_nodes_count() -> None:
    graph = graph_of((X,), (), ("x",))
    assert [each.op for each in graph.nodes] == [INPUTS_OP]
    assert baseline(graph).peak_bytes == 64


def test_a_name_of_its_own() -> None:
    assert with_inputs_held((X, UNREAD), (node("all_inputs", "x"),), ())[0].name == "all_inputs_"
