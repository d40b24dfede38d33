import json
from pathlib import Path

import pytest

from lowtide.errors import FormatError, GraphError
from lowtide.importers.instances import graph_from_node_link, load_any_graph
from lowtide.ir import Graph
from lowtide.ir.serde import save_graph

# a diamond: 0 -> 1, 0 -> 2, 1 -> 3, 2 -> 3
DIALECT_1 = {
    "directed": True,
    "multigraph": False,
    "graph": {},
    "nodes": [
        {"id": 0, "cost_ram": 5, "cost_cpu": 0},
        {"id": 1, "cost_ram": 7.0, "cost_cpu": 3},
        {"id": 2, "cost_ram": 2, "cost_cpu": 4},
        {"id": 3, "cost_ram": 1, "cost_cpu": 9.0},
    ],
    "links": [
        {"source": 0, "target": 1},
        {"source": 0, "target": 2},
        {"source": 1, "target": 3},
        {"source": 2, "target": 3},
    ],
}
DIALECT_2 = {
    "graph": {"order": ["a", "c", "b", "d"]},
    "nodes": [
        {"name": "a", "out_cost": 5, "duration": 0},
        {"name": "b", "out_cost": 7, "duration": 3},
        {"name": "c", "out_cost": 2, "duration": 4},
        {"name": "d", "out_cost": 1, "duration": 9},
    ],
    "links": [{"0": "a", "1": "b"}, {"0": "a", "1": "c"}, {"0": "b", "1": "d"}, {"0": "c", "1": "d"}],
}


def read(document: object) -> Graph:
    return graph_from_node_link(document, where="file.json")


def costs_of(graph: Graph) -> list[tuple[int, int]]:
    return [(node.outputs[0].size_bytes, node.duration) for node in graph.nodes]


def test_first_dialect_is_read_as_given() -> None:
    graph = read(DIALECT_1)
    assert costs_of(graph) == [(5, 0), (7, 3), (2, 4), (1, 9)]
    assert [node.inputs for node in graph.nodes] == [(), ("0",), ("0",), ("1", "2")]
    assert (graph.alignment, graph.duration_unit, graph.outputs, graph.inputs) == (1, "unit", (), ())
    assert graph.order == ("0", "1", "2", "3")


def test_second_dialect_is_read_as_given_with_its_order() -> None:
    graph = read(DIALECT_2)
    assert costs_of(graph) == [(5, 0), (7, 3), (2, 4), (1, 9)]
    assert graph.node_by_name["d"].inputs == ("b", "c")
    assert graph.order == ("a", "c", "b", "d")


def test_edges_ids_and_pairs_are_read_like_links() -> None:
    nodes = [{"id": index, **node} for index, node in enumerate(DIALECT_2["nodes"])]  # type: ignore[dict-item]
    by_id = {"nodes": nodes, "graph": [["order", [0, 2, 1, 3]]], "edges": [[0, 1], [0, 2], [1, 3], [2, 3]]}
    assert read(by_id) == read(DIALECT_2)


def test_order_without_one_takes_the_earliest_node_that_can_go() -> None:
    nodes = [{"id": name, "cost_ram": 1, "cost_cpu": 1} for name in "zyxw"]
    graph = read({"nodes": nodes, "links": [{"source": "w", "target": "z"}, {"source": "x", "target": "y"}]})
    assert graph.order == ("x", "y", "w", "z")


def test_a_link_given_twice_counts_once() -> None:
    document = {**DIALECT_1, "links": [*DIALECT_1["links"], {"source": 0, "target": 1}]}  # type: ignore[misc]
    assert read(document) == read(DIALECT_1)


def node(**changes: object) -> dict[str, list[dict[str, object]]]:
    return {"nodes": [{"id": 0, "cost_ram": 1, "cost_cpu": 1, **changes}], "links": []}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "file.json: must be an object with 'nodes' and 'links' or 'edges'"),
        ({"nodes": [], "links": [], "edges": []}, "file.json: has both 'links' and 'edges': keep one"),
        ({"nodes": []}, "file.json: key 'edges' is missing"),
        ({"nodes": {}, "links": []}, "file.json: nodes must be a list"),
        ({"nodes": [3], "links": []}, "file.json: nodes[0]: must be an object"),
        (
            {"nodes": [{"id": 0}], "links": []},
            "file.json: nodes[0]: has neither 'cost_ram' and 'cost_cpu' nor 'out_cost' and 'duration'",
        ),
        ({"nodes": [{"id": 0, "cost_ram": 1}], "links": []}, "file.json: nodes[0]: key 'cost_cpu' is missing"),
        ({"nodes": [{"cost_ram": 1, "cost_cpu": 1}], "links": []}, "file.json: nodes[0]: has neither 'id' nor 'name'"),
        (
            node(cost_ram=1.5),
            "file.json: nodes[0]: cost_ram 1.5 is no whole number: scale sizes and durations first",
        ),
        (node(cost_ram=-1), "file.json: nodes[0]: cost_ram -1 is below 0"),
        (node(cost_cpu=True), "file.json: nodes[0]: cost_cpu must be a whole number, not 'True'"),
        (node(cost_cpu="7"), "file.json: nodes[0]: cost_cpu must be a whole number, not '7'"),
        (
            node(cost_cpu=float("inf")),
            "file.json: nodes[0]: cost_cpu inf is no whole number: scale sizes and durations first",
        ),
        (node(id=[1]), "file.json: nodes[0]: a node is named by text or a whole number, not '[1]'"),
        ({**node(), "links": [{"source": 0, "target": 7}]}, "file.json: links[0]: node '7' is not among 'nodes'"),
        (
            {**node(), "links": [{"source": 0}]},
            "file.json: links[0]: has neither 'source' and 'target' nor '0' and '1'",
        ),
        (
            {**node(), "links": ["0-1"]},
            "file.json: links[0]: must be an object with 'source' and 'target', or '0' and '1'",
        ),
        (
            {**node(), "directed": False},
            "file.json: the graph is undirected: links must lead from what is read to what reads it",
        ),
        ({**node(), "graph": 3}, "file.json: graph must be an object of attributes"),
        ({**node(), "graph": {"order": 3}}, "file.json: graph.order must be a list of nodes"),
        ({**node(), "graph": {"order": [9]}}, "file.json: graph.order[0]: node '9' is not among 'nodes'"),
        (
            {"nodes": node()["nodes"] * 2, "links": []},
            "file.json: node id '0' occurs twice: give each node one of its own",
        ),
        (
            {"nodes": [{"id": i, "name": "a", "cost_ram": 1, "cost_cpu": 1} for i in (0, 1)], "links": []},
            "file.json: node name 'a' occurs twice: give each node one of its own",
        ),
        ({**node(), "graph": {"lowtide": 5}}, "file.json: graph.lowtide: must be an object, not 5"),
    ],
)
def test_hostile_documents_end_in_one_line(document: object, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        read(document)
    assert str(caught.value) == message


def test_a_cycle_is_named() -> None:
    document = {**DIALECT_1, "links": [*DIALECT_1["links"], {"source": 3, "target": 1}]}  # type: ignore[misc]
    with pytest.raises(FormatError, match=r"file.json: the links form a cycle through, or before, node '1': remove it"):
        read(document)


def test_an_order_against_the_links_is_refused() -> None:
    with pytest.raises(GraphError, match="reads 'b' before node 'b' computes it"):
        read({**DIALECT_2, "graph": {"order": ["a", "c", "d", "b"]}})


def test_loading_recognises_all_three_kinds(tmp_path: Path) -> None:
    for name, document in (("one", DIALECT_1), ("two", DIALECT_2)):
        (tmp_path / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
    graph = load_any_graph(tmp_path / "two.json")
    save_graph(graph, tmp_path / "three.json")
    assert load_any_graph(tmp_path / "three.json") == graph
    assert graph.name == "two"
    assert costs_of(load_any_graph(tmp_path / "one.json")) == costs_of(graph)


@pytest.mark.parametrize("text", ["3", "{}", "[]", '{"links": []}'])
def test_loading_refuses_other_json(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FormatError, match=r"neither a lowtide.graph"):
        load_any_graph(path)


def test_a_hundred_thousand_nodes_in_a_cycle_are_refused_at_once() -> None:
    num = 100_000
    nodes = [{"id": index, "cost_ram": 1, "cost_cpu": 1} for index in range(num)]
    links = [{"source": index, "target": (index + 1) % num} for index in range(num)]
    with pytest.raises(FormatError, match="the links form a cycle"):
        read({"nodes": nodes, "links": links})
