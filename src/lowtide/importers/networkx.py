"""networkx graphs to and from lowtide graphs, lossless both ways.

A node of the networkx graph is a lowtide node, an edge leads from a node to one that reads it. Attributes are those of
the published graphs: nodes ``cost_ram`` (bytes of all outputs) and ``cost_cpu`` (duration), the graph ``order``. They
cannot say everything (several outputs, aliases, inputs), so the graph attribute ``lowtide`` holds the whole
``lowtide.graph`` document; where it is present, it alone counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lowtide.errors import FormatError, MissingDependency
from lowtide.importers.instances import LOSSLESS_KEY, graph_from_node_link
from lowtide.ir import Graph
from lowtide.ir.serde import graph_to_document

if TYPE_CHECKING:
    import networkx as nx  # type: ignore[import-untyped]  # its stubs are a package of their own

__all__ = ["graph_from_networkx", "graph_to_networkx"]


def graph_to_networkx(graph: Graph) -> nx.DiGraph[str]:
    """Write a graph as a networkx digraph over its node names.

    Raises:
        MissingDependency: networkx is not installed.
    """
    networkx = _import_networkx()
    digraph = networkx.DiGraph(name=graph.name, order=list(graph.order), **{LOSSLESS_KEY: graph_to_document(graph)})
    for node in graph.nodes:
        size_bytes = sum(value.size_bytes for value in node.outputs)
        digraph.add_node(node.name, cost_ram=size_bytes, cost_cpu=node.duration, op=node.op)
    for node in graph.nodes:
        producers = (graph.producer_by_value.get(value) for value in node.inputs)
        digraph.add_edges_from((producer.name, node.name) for producer in producers if producer is not None)
    return digraph


def graph_from_networkx(digraph: nx.DiGraph[Any], *, name: str = "") -> Graph:
    """Read a graph from a networkx digraph; node and graph attributes as in either published dialect.

    Args:
        digraph: Nodes with ``cost_ram`` and ``cost_cpu``, or ``out_cost`` and ``duration``; edges from what is read to
            what reads it; optionally the graph attribute ``order``. Of a graph with the attribute ``lowtide`` only
            that counts.
        name: Name of the graph where it has none.

    Raises:
        FormatError: An attribute is missing or no whole number.
        GraphError: The graph contradicts itself.
        MissingDependency: networkx is not installed.
    """
    networkx = _import_networkx()
    if not isinstance(digraph, networkx.Graph) or not digraph.is_directed():
        raise FormatError("networkx graph: must be a networkx.DiGraph: edges lead from what is read to what reads it")
    attributes = {key: list(value) if key == "order" else value for key, value in digraph.graph.items()}
    document = {
        "directed": True,
        "graph": attributes,
        "nodes": [{**data, "id": _plain(key)} for key, data in digraph.nodes(data=True)],
        "links": [{"source": _plain(source), "target": _plain(target)} for source, target in digraph.edges()],
    }
    return graph_from_node_link(document, where="networkx graph", name=name)


def _plain(key: Any) -> str | int:
    """A node of networkx, which may be any object, as a key of node-link JSON."""
    return key if isinstance(key, str | int) and not isinstance(key, bool) else str(key)


def _import_networkx() -> Any:
    try:
        import networkx as nx
    except ImportError as error:
        raise MissingDependency("networkx", extra="torch", needed_for="reading and writing networkx graphs") from error
    return nx
