import sys

import networkx as nx
import pytest

from lowtide.errors import FormatError, MissingDependency
from lowtide.importers.generate import graph_from_spec
from lowtide.importers.instances import graph_from_node_link
from lowtide.importers.networkx import graph_from_networkx, graph_to_networkx
from lowtide.ir import Graph, Input, Node, Value


def graph_with_everything() -> Graph:
    nodes = (
        Node(
            name="a", op="op", duration=3, inputs=("x",), outputs=(Value("a.0", 4), Value("a.1", 8)), workspace_bytes=2
        ),
        Node(name="b", op="view", duration=0, inputs=("a.0",), outputs=(Value("b", 0, alias_of="a.0"),)),
        Node(
            name="c",
            op="op",
            duration=7,
            inputs=("b", "a.1"),
            outputs=(Value("c", 2),),
            recomputable=False,
            after=("b",),
        ),
    )
    return Graph(
        "g", (Input("x", 16, meta={"shape": [4]}),), nodes, ("c",), ("a", "b", "c"), alignment=2, meta={"k": 1}
    )


@pytest.mark.parametrize(
    "graph", [graph_with_everything(), graph_from_spec("layered?n=40"), graph_from_spec("unet?depth=2&blocks=1")]
)
def test_there_and_back_is_the_same_graph(graph: Graph) -> None:
    assert graph_from_networkx(graph_to_networkx(graph)) == graph


def test_attributes_are_those_of_the_published_graphs() -> None:
    digraph = graph_to_networkx(graph_with_everything())
    assert digraph.nodes["a"] == {"cost_ram": 12, "cost_cpu": 3, "op": "op"}
    assert sorted(digraph.edges) == [("a", "b"), ("a", "c"), ("b", "c")]
    assert digraph.graph["order"] == ["a", "b", "c"]


def test_networkx_own_json_can_be_read() -> None:
    graph = graph_from_spec("layered?n=40")
    document = nx.node_link_data(graph_to_networkx(graph), edges="links")
    assert graph_from_node_link(document, where="x") == graph
    del document["graph"]["lowtide"]
    plain = graph_from_node_link(document, where="x")
    assert plain.order == graph.order
    assert [(n.name, n.duration, sorted(n.inputs), n.outputs) for n in plain.nodes] == [
        (n.name, n.duration, sorted(n.inputs), n.outputs) for n in graph.nodes
    ]


def test_graph_of_ones_own_is_read() -> None:
    digraph = nx.DiGraph()
    digraph.add_node((0, 1), cost_ram=3, cost_cpu=1)
    digraph.add_node("end", cost_ram=4, cost_cpu=2)
    digraph.add_edge((0, 1), "end")
    graph = graph_from_networkx(digraph, name="mine")
    assert graph.name == "mine"
    assert graph.order == ("(0, 1)", "end")
    assert graph.node_by_name["end"].inputs == ("(0, 1)",)


def test_undirected_graphs_and_other_objects_are_refused() -> None:
    for wrong in (nx.Graph(), 3):
        with pytest.raises(FormatError, match=r"must be a networkx.DiGraph"):
            graph_from_networkx(wrong)


def test_without_networkx_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(
        MissingDependency, match=r"needs the package 'networkx': pip install -c constraints.txt '.\[torch\]'"
    ):
        graph_to_networkx(graph_with_everything())
