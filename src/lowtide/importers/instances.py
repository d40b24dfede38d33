"""Published rematerialization graphs: node-link JSON in two dialects.

    dialect 1   {"nodes": [{"id": 0, "cost_ram": 7, "cost_cpu": 3}, ...], "links": [{"source": 0, "target": 1}, ...]}
    dialect 2   {"nodes": [{"name": "a", "out_cost": 7, "duration": 3}, ...], "links": [{"0": "a", "1": "b"}, ...],
                 "graph": {"order": ["a", "b"]}}

The links may stand under ``edges``, nodes of dialect 2 may have an ``id`` by which links and order name them, and
unknown keys are passed over: these files are other people's. Sizes and durations are taken as given (alignment 1,
duration unit "unit"); every node produces one value of its own name, and nothing has to stay after the last step
(outputs []). A document written from a lowtide graph (see ``networkx``) carries that and gives it back as it was.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lowtide.errors import FormatError
from lowtide.importers.topology import topological_order
from lowtide.ir import Graph, Node, Value
from lowtide.ir.serde import graph_from_document, load_document

__all__ = ["LOSSLESS_KEY", "graph_from_node_link", "load_any_graph"]

LOSSLESS_KEY = "lowtide"
"""Graph attribute under which a node-link document carries the ``lowtide.graph`` document that it was written from."""

_DIALECTS = (("cost_ram", "cost_cpu"), ("out_cost", "duration"))
_LINK_ENDS = (("source", "target"), ("0", "1"))


def load_any_graph(path: str | os.PathLike[str]) -> Graph:
    """Read a graph file of any kind: ``lowtide.graph``, or node-link JSON in either dialect.

    Args:
        path: The file.

    Returns:
        The graph; one without a name of its own is named after the file.

    Raises:
        FormatError: The file cannot be read, is of no known kind, or breaks its format.
        GraphError: The graph contradicts itself.
    """
    where = os.fspath(path)
    document = load_document(path)
    if isinstance(document, dict) and "format" not in document and "nodes" in document:
        return graph_from_node_link(document, where=where, name=Path(where).stem)
    if isinstance(document, dict) and "format" in document:
        return graph_from_document(document, where)
    raise FormatError(
        f"{where}: neither a lowtide.graph (key 'format') nor node-link JSON (keys 'nodes', and 'links' or 'edges')"
    )


def graph_from_node_link(document: Any, *, where: str, name: str = "") -> Graph:
    """Read a graph from node-link JSON in either dialect.

    Args:
        document: The parsed JSON.
        where: Names the document in errors.
        name: Name of the graph where the document has none.

    Returns:
        The graph; its order is ``graph.order``, or else the topological order that takes nodes as early in the file as
        it can.

    Raises:
        FormatError: The document breaks the format.
        GraphError: The graph contradicts itself.
    """
    attributes = _graph_attributes(document, where)
    if LOSSLESS_KEY in attributes:
        return graph_from_document(attributes[LOSSLESS_KEY], f"{where}: graph.{LOSSLESS_KEY}")
    items = _list_under(document, "nodes", where)
    records = [_read_node(item, f"{where}: nodes[{index}]") for index, item in enumerate(items)]
    name_by_key = _name_by_key(records, where)
    inputs_by_name = _read_links(document, name_by_key, where)
    order = _read_order(attributes, name_by_key, inputs_by_name, where)
    nodes = tuple(
        Node(
            name=record.name,
            op="op",
            duration=record.duration,
            inputs=tuple(inputs_by_name[record.name]),
            outputs=(Value(name=record.name, size_bytes=record.size_bytes),),
        )
        for record in records
    )
    own_name = attributes.get("name")
    return Graph(
        name=own_name if isinstance(own_name, str) and own_name else name,
        inputs=(),
        nodes=nodes,
        outputs=(),
        order=order,
        duration_unit="unit",
        alignment=1,
    )


@dataclass(frozen=True, slots=True)
class _Record:
    """One node of the file: ``key`` is what links call it."""

    key: str
    name: str
    size_bytes: int
    duration: int


def _graph_attributes(document: Any, where: str) -> Mapping[str, Any]:
    """The attributes of the graph: an object, or a list of pairs as old networkx wrote it."""
    if not isinstance(document, dict):
        raise FormatError(f"{where}: must be an object with 'nodes' and 'links' or 'edges'")
    if document.get("directed", True) is not True:
        raise FormatError(f"{where}: the graph is undirected: links must lead from what is read to what reads it")
    attributes = document.get("graph", {})
    if isinstance(attributes, list) and all(_is_pair(item) for item in attributes):
        attributes = {item[0]: item[1] for item in attributes}
    if not isinstance(attributes, dict):
        raise FormatError(f"{where}: graph must be an object of attributes")
    return attributes


def _is_pair(item: Any) -> bool:
    return isinstance(item, list) and len(item) == 2 and isinstance(item[0], str)


def _read_node(item: Any, where: str) -> _Record:
    if not isinstance(item, dict):
        raise FormatError(f"{where}: must be an object")
    for size_key, duration_key in _DIALECTS:
        if size_key in item or duration_key in item:
            size_bytes, duration = _whole(item, size_key, where), _whole(item, duration_key, where)
            break
    else:
        raise FormatError(f"{where}: has neither 'cost_ram' and 'cost_cpu' nor 'out_cost' and 'duration'")
    if "id" not in item and "name" not in item:
        raise FormatError(f"{where}: has neither 'id' nor 'name'")
    key = _key(item.get("id", item.get("name")), where)
    name = _key(item["name"], where) if "name" in item else key
    return _Record(key=key, name=name, size_bytes=size_bytes, duration=duration)


def _whole(item: Mapping[str, Any], key: str, where: str) -> int:
    """A size or duration: a whole number, also where it is written as a float."""
    if key not in item:
        raise FormatError(f"{where}: key {key!r} is missing")
    number = item[key]
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise FormatError(f"{where}: {key} must be a whole number, not {str(number)[:40]!r}")
    if isinstance(number, float) and not number.is_integer():
        raise FormatError(f"{where}: {key} {number!r} is no whole number: scale sizes and durations first")
    if number < 0:
        raise FormatError(f"{where}: {key} {number!r} is below 0")
    return int(number)


def _key(value: Any, where: str) -> str:
    """What links call a node: text, or a whole number, which is read as its digits."""
    if isinstance(value, str) and value:
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise FormatError(f"{where}: a node is named by text or a whole number, not {str(value)[:40]!r}")


def _name_by_key(records: Sequence[_Record], where: str) -> dict[str, str]:
    """Which name each key stands for; both are unique."""
    for noun, names in (("id", [record.key for record in records]), ("name", [record.name for record in records])):
        repeated = next((name for name, count in Counter(names).items() if count > 1), None)
        if repeated is not None:
            raise FormatError(f"{where}: node {noun} {repeated[:80]!r} occurs twice: give each node one of its own")
    return {record.key: record.name for record in records}


def _read_links(document: Mapping[str, Any], name_by_key: Mapping[str, str], where: str) -> dict[str, list[str]]:
    """The values each node reads, each once, in the order of the links."""
    if "links" in document and "edges" in document:
        raise FormatError(f"{where}: has both 'links' and 'edges': keep one")
    section = "links" if "links" in document else "edges"
    inputs_by_name: dict[str, dict[str, None]] = {name: {} for name in name_by_key.values()}
    for index, item in enumerate(_list_under(document, section, where)):
        source, target = _read_ends(item, name_by_key, f"{where}: {section}[{index}]")
        inputs_by_name[target][source] = None
    return {name: list(inputs) for name, inputs in inputs_by_name.items()}


def _read_ends(item: Any, name_by_key: Mapping[str, str], where: str) -> tuple[str, str]:
    if isinstance(item, list) and len(item) >= 2:
        ends = (item[0], item[1])
    elif isinstance(item, dict):
        pairs = [(item[first], item[second]) for first, second in _LINK_ENDS if first in item and second in item]
        if not pairs:
            raise FormatError(f"{where}: has neither 'source' and 'target' nor '0' and '1'")
        ends = pairs[0]
    else:
        raise FormatError(f"{where}: must be an object with 'source' and 'target', or '0' and '1'")
    source, target = (_known(end, name_by_key, where) for end in ends)
    return source, target


def _known(end: Any, name_by_key: Mapping[str, str], where: str) -> str:
    key = _key(end, where)
    if key in name_by_key:
        return name_by_key[key]
    raise FormatError(f"{where}: node {key[:80]!r} is not among 'nodes'")


def _read_order(
    attributes: Mapping[str, Any],
    name_by_key: Mapping[str, str],
    inputs_by_name: Mapping[str, Sequence[str]],
    where: str,
) -> tuple[str, ...]:
    given = attributes.get("order")
    if given is None:
        order = topological_order(inputs_by_name)
        if len(order) < len(inputs_by_name):
            done = set(order)
            stuck = next(name for name in inputs_by_name if name not in done)
            raise FormatError(f"{where}: the links form a cycle through, or before, node {stuck[:80]!r}: remove it")
        return order
    if not isinstance(given, list):
        raise FormatError(f"{where}: graph.order must be a list of nodes")
    names = set(name_by_key.values())
    return tuple(
        item
        if isinstance(item, str) and item not in name_by_key and item in names
        else _known(item, name_by_key, f"{where}: graph.order[{index}]")
        for index, item in enumerate(given)
    )


def _list_under(document: Mapping[str, Any], key: str, where: str) -> list[Any]:
    if key not in document:
        raise FormatError(f"{where}: key {key!r} is missing")
    if not isinstance(document[key], list):
        raise FormatError(f"{where}: {key} must be a list")
    return document[key]  # type: ignore[no-any-return]  # a list, checked above
