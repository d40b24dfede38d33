"""What makes a graph well-formed; each rule is one small function and one line of error.

Runs when a :class:`~lowtide.ir.graph.Graph` is constructed, whoever constructs it, so files are never trusted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from lowtide.errors import GraphError
from lowtide.units import MAX_BYTES

if TYPE_CHECKING:
    from lowtide.ir.graph import Graph, Node, Value

__all__ = ["DURATION_UNITS", "MAX_ALIGNMENT", "MAX_DURATION", "MAX_NAME_LENGTH", "check_graph"]

DURATION_UNITS = ("ns", "unit")
MAX_DURATION = 2**53 - 1
MAX_ALIGNMENT = 2**30
MAX_NAME_LENGTH = 4096
_MAX_TOTAL = 2**60


def check_graph(graph: Graph) -> None:
    """Check every rule of a well-formed graph.

    Raises:
        GraphError: The first rule that is broken, with the node or value at fault.
    """
    _check_header(graph)
    _check_names(graph)
    _check_numbers(graph)
    _check_references(graph)
    for node in graph.nodes:
        _check_storages(graph, node)
    _check_boundary(graph)
    _check_order(graph)


def _check_header(graph: Graph) -> None:
    if graph.duration_unit not in DURATION_UNITS:
        raise GraphError(f"graph {graph.name!r}: duration_unit {graph.duration_unit!r} must be 'ns' or 'unit'")
    if not _is_int(graph.alignment) or not 1 <= graph.alignment <= MAX_ALIGNMENT:
        raise GraphError(f"graph {graph.name!r}: alignment {graph.alignment!r} must be from 1 to {MAX_ALIGNMENT} bytes")


def _check_names(graph: Graph) -> None:
    _check_unique("node", (node.name for node in graph.nodes))
    values = [graph_input.name for graph_input in graph.inputs]
    values += [value.name for node in graph.nodes for value in node.outputs]
    _check_unique("value", values)


def _check_unique(noun: str, names: Iterable[object]) -> None:
    for name, count in Counter(names).items():
        if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME_LENGTH:
            raise GraphError(f"{noun} name {str(name)[:40]!r} must be text of 1 to {MAX_NAME_LENGTH} characters")
        if count > 1:
            raise GraphError(f"{noun} name {name!r} occurs {count} times: give each {noun} a name of its own")


def _check_numbers(graph: Graph) -> None:
    total_bytes = total_duration = 0
    for graph_input in graph.inputs:
        _check_size(f"input {graph_input.name!r}", graph_input.size_bytes, graph.alignment)
        total_bytes += graph_input.size_bytes
    for node in graph.nodes:
        if not _is_int(node.duration) or not 0 <= node.duration <= MAX_DURATION:
            raise GraphError(
                f"node {node.name!r}: duration {node.duration!r:.40} must be a whole number from 0 to 2^53-1"
            )
        _check_size(f"node {node.name!r}: workspace", node.workspace_bytes, graph.alignment)
        total_duration += node.duration
        total_bytes += node.workspace_bytes
        for value in node.outputs:
            _check_size(f"value {value.name!r}", value.size_bytes, graph.alignment)
            total_bytes += value.size_bytes
    if total_bytes > _MAX_TOTAL or total_duration > _MAX_TOTAL:
        raise GraphError(f"graph {graph.name!r}: sizes or durations add up to more than 2^60")


def _check_size(where: str, size_bytes: int, alignment: int) -> None:
    if not _is_int(size_bytes) or not 0 <= size_bytes <= MAX_BYTES:
        raise GraphError(f"{where}: size {size_bytes!r:.40} must be a whole number of bytes from 0 to 2^53-1")
    if size_bytes % alignment:
        raise GraphError(f"{where}: size {size_bytes} is no multiple of the alignment {alignment}: round it up")


def _check_references(graph: Graph) -> None:
    nodes, values = graph.node_by_name, graph.value_by_name
    for node in graph.nodes:
        for role, names in (("input", node.inputs), ("recompute_inputs", node.recompute_inputs)):
            _check_known(f"node {node.name!r}: {role}", names, values)
        _check_known(f"node {node.name!r}: after", node.after, nodes)
        if len(set(node.inputs)) != len(node.inputs):
            raise GraphError(f"node {node.name!r} lists an input twice: list each value once")
        own = {value.name for value in node.outputs}
        if looped := own.intersection(node.inputs):
            raise GraphError(f"node {node.name!r} reads its own output {min(looped)!r}: a graph has no cycles")
    _check_known("graph outputs", graph.outputs, values)
    if len(set(graph.outputs)) != len(graph.outputs):
        raise GraphError("graph outputs list a value twice: list each value once")


def _check_known(where: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise GraphError(f"{where} {name!r} is not in the graph: add it or remove the reference")


def _check_storages(graph: Graph, node: Node) -> None:
    siblings = {value.name: value for value in node.outputs}
    overwritten: set[str] = set()
    for value in node.outputs:
        if value.alias_of is not None:
            _check_alias(node, value, siblings)
        if value.overwrites is not None:
            _check_overwrite(node, value, overwritten)
            overwritten.add(value.overwrites)
    if overwritten.intersection(graph.outputs):
        raise GraphError(
            f"node {node.name!r} overwrites {min(overwritten.intersection(graph.outputs))!r}, a graph output: "
            "name the new value as the output instead"
        )


def _check_alias(node: Node, value: Value, siblings: dict[str, Value]) -> None:
    where = f"value {value.name!r} of node {node.name!r}"
    if value.overwrites is not None:
        raise GraphError(f"{where} has both alias_of and overwrites: it can have one of them")
    if value.size_bytes != 0:
        raise GraphError(f"{where} is an alias of {value.alias_of!r} with size {value.size_bytes}: an alias has size 0")
    seen = {value.name}
    target = value.alias_of
    while target in siblings:
        if target in seen:
            raise GraphError(
                f"{where} is an alias of itself through {value.alias_of!r}: name a value that owns storage"
            )
        seen.add(target)
        if siblings[target].first_only and not value.first_only:
            raise GraphError(f"{where} is an alias of {target!r}, which is first_only: mark it first_only too")
        target = siblings[target].alias_of
        if target is None:
            return
    if target not in node.inputs:
        raise GraphError(f"{where}: alias_of {target!r} is neither an input nor a sibling output of that node")


def _check_overwrite(node: Node, value: Value, overwritten: set[str]) -> None:
    if value.overwrites not in node.inputs:
        raise GraphError(f"value {value.name!r}: overwrites {value.overwrites!r} is not an input of node {node.name!r}")
    if value.overwrites in overwritten:
        raise GraphError(f"node {node.name!r} overwrites {value.overwrites!r} twice")


def _check_boundary(graph: Graph) -> None:
    boundaries = [node for node in graph.nodes if node.is_boundary]
    if len(boundaries) > 1:
        raise GraphError(f"nodes {boundaries[0].name!r} and {boundaries[1].name!r} are both lowtide.boundary: keep one")
    for node in boundaries:
        if node.recomputable or node.duration:
            raise GraphError(f"boundary node {node.name!r} must have duration 0 and recomputable false")


def _check_order(graph: Graph) -> None:
    position = {name: index for index, name in enumerate(graph.order)}
    if len(graph.order) != len(graph.nodes) or position.keys() != graph.node_by_name.keys():
        missing = sorted(graph.node_by_name.keys() - position.keys())
        unknown = sorted(position.keys() - graph.node_by_name.keys())
        what = f"lacks {missing[0]!r}" if missing else f"names {unknown[0]!r}" if unknown else "repeats a node"
        raise GraphError(f"graph order {what}: it must list every node once")
    producer = graph.producer_by_value
    for node in graph.nodes:
        for value in node.inputs:
            before = producer.get(value)
            if before is not None and position[before.name] > position[node.name]:
                raise GraphError(
                    f"node {node.name!r} reads {value!r} before node {before.name!r} computes it in the given order: "
                    "reorder, or remove the cycle"
                )
        for name in node.after:
            if position[name] >= position[node.name]:
                raise GraphError(f"node {node.name!r} comes before {name!r} in the given order, but is marked after it")


def _is_int(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)
