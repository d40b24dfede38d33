"""Graphs as ``lowtide.graph`` JSON (version 1), and the hash by which a plan knows its graph.

Optional keys are written only where they differ from their default, so that equal graphs have equal documents.
"""

from __future__ import annotations

import hashlib
from typing import Any

from lowtide.errors import FormatError
from lowtide.ir.graph import Graph, Input, InputKind, Node, Value
from lowtide.ir.serde.fields import Fields
from lowtide.ir.serde.files import compact_json

__all__ = ["GRAPH_VERSION", "graph_from_document", "graph_sha256", "graph_to_document"]

GRAPH_VERSION = 1
_FORMAT = "lowtide.graph"
_NOT_HASHED = {"name", "order", "duration_unit", "meta"}


def graph_to_document(graph: Graph) -> dict[str, Any]:
    """The JSON document of a graph."""
    return {
        "format": _FORMAT,
        "version": GRAPH_VERSION,
        "name": graph.name,
        "duration_unit": graph.duration_unit,
        "alignment": graph.alignment,
        "inputs": [_input_to_document(graph_input) for graph_input in graph.inputs],
        "nodes": [_node_to_document(node) for node in graph.nodes],
        "outputs": list(graph.outputs),
        "order": list(graph.order),
        **({"meta": dict(graph.meta)} if graph.meta else {}),
    }


def graph_from_document(document: Any, where: str) -> Graph:
    """Read a graph from its JSON document.

    Args:
        document: The parsed JSON.
        where: Names the document in errors.

    Raises:
        FormatError: The document breaks the format.
        GraphError: The graph contradicts itself.
    """
    with Fields(document, where) as fields:
        check_header(fields, expected_format=_FORMAT, newest_version=GRAPH_VERSION)
        return Graph(
            name=fields.text("name", ""),
            duration_unit=fields.text("duration_unit", "ns"),
            alignment=fields.whole("alignment", 1),
            inputs=fields.items("inputs", _read_input),
            nodes=fields.items("nodes", _read_node),
            outputs=fields.texts("outputs"),
            order=fields.texts("order"),
            meta=fields.meta(),
        )


def graph_sha256(graph: Graph) -> str:
    """SHA-256 over compact key-sorted JSON of the graph without name, order, durations and meta.

    A new profile of the same model gives the same hash, so that it does not orphan a plan.
    """
    document = {key: value for key, value in graph_to_document(graph).items() if key not in _NOT_HASHED}
    document["inputs"] = [_without(item, {"meta"}) for item in document["inputs"]]
    document["nodes"] = [_without(item, {"meta", "duration"}) for item in document["nodes"]]
    for node in document["nodes"]:
        node["outputs"] = [_without(value, {"meta"}) for value in node["outputs"]]
    return hashlib.sha256(compact_json(document).encode()).hexdigest()


def check_header(fields: Fields, *, expected_format: str, newest_version: int) -> int:
    """Check ``format`` and ``version`` of a document; return the version."""
    found = fields.raw("format", None)
    if found != expected_format:
        raise FormatError(f"{fields.where}: format is {str(found)[:40]!r}, expected {expected_format!r}")
    version = fields.whole("version")
    if not 1 <= version <= newest_version:
        raise FormatError(
            f"{fields.where}: version {version} of {expected_format} is not known, the newest here is "
            f"{newest_version}: upgrade lowtide"
        )
    return version


def _input_to_document(graph_input: Input) -> dict[str, Any]:
    return {
        "name": graph_input.name,
        "size_bytes": graph_input.size_bytes,
        "kind": str(graph_input.kind),
        "evictable": graph_input.evictable,
        **({"meta": dict(graph_input.meta)} if graph_input.meta else {}),
    }


def _node_to_document(node: Node) -> dict[str, Any]:
    return {
        "name": node.name,
        "op": node.op,
        "duration": node.duration,
        "inputs": list(node.inputs),
        "outputs": [_value_to_document(value) for value in node.outputs],
        **({"workspace_bytes": node.workspace_bytes} if node.workspace_bytes else {}),
        **({} if node.recomputable else {"recomputable": False}),
        **({"after": list(node.after)} if node.after else {}),
        **({"recompute_inputs": list(node.recompute_inputs)} if node.recompute_inputs else {}),
        **({"meta": dict(node.meta)} if node.meta else {}),
    }


def _value_to_document(value: Value) -> dict[str, Any]:
    return {
        "name": value.name,
        "size_bytes": value.size_bytes,
        **({"alias_of": value.alias_of} if value.alias_of is not None else {}),
        **({"overwrites": value.overwrites} if value.overwrites is not None else {}),
        **({"first_only": True} if value.first_only else {}),
        **({} if value.evictable else {"evictable": False}),
        **({"meta": dict(value.meta)} if value.meta else {}),
    }


def _read_input(document: Any, where: str) -> Input:
    with Fields(document, where) as fields:
        kind = fields.text("kind", "user")
        if kind not in set(InputKind):
            raise FormatError(f"{where}: kind {kind[:40]!r} must be one of {', '.join(InputKind)}")
        return Input(
            name=fields.text("name"),
            size_bytes=fields.whole("size_bytes"),
            kind=InputKind(kind),
            evictable=fields.flag("evictable", default=None),
            meta=fields.meta(),
        )


def _read_node(document: Any, where: str) -> Node:
    with Fields(document, where) as fields:
        return Node(
            name=fields.text("name"),
            op=fields.text("op"),
            duration=fields.whole("duration"),
            inputs=fields.texts("inputs"),
            outputs=fields.items("outputs", _read_value),
            workspace_bytes=fields.whole("workspace_bytes", 0),
            recomputable=fields.flag("recomputable", default=True),
            after=fields.texts("after", ()),
            recompute_inputs=fields.texts("recompute_inputs", ()),
            meta=fields.meta(),
        )


def _read_value(document: Any, where: str) -> Value:
    with Fields(document, where) as fields:
        return Value(
            name=fields.text("name"),
            size_bytes=fields.whole("size_bytes"),
            alias_of=fields.optional_text("alias_of"),
            overwrites=fields.optional_text("overwrites"),
            first_only=fields.flag("first_only", default=False),
            evictable=fields.flag("evictable", default=True),
            meta=fields.meta(),
        )


def _without(document: dict[str, Any], keys: set[str]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in keys}
