"""Which of the runtime's overwritings a graph should tell.

ONNX Runtime writes over a dead input by itself, whether the graph says so or not: a graph that says less promises more
bytes than are used. Planners keep a storage that is overwritten as a whole, though, and neither drop nor recompute a
part of it. So the graph says only what must be said: that of a node which, with an output of its own, would need more
than the largest node does.

    floor  ──────────────────────────── largest working set, every overwriting told
    node   ■■■■ inputs ■■ output        above the floor: told          below: a block of its own, free to be planned
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lowtide.ir import Graph, Node, Value
from lowtide.ir.working_set import largest_working_set, owner_by_value

__all__ = ["tell_needed_overwritings"]


def tell_needed_overwritings(graph: Graph) -> Graph:
    """Give outputs that overwrite an input a block of their own, unless a larger working set would come of it."""
    floor_bytes = largest_working_set(graph).size_bytes
    owners = owner_by_value(graph)
    bytes_by_value = {
        name: graph.value_by_name[owner].size_bytes if _is_counted(graph, owner) else 0
        for name, owner in owners.items()
    }
    nodes = tuple(
        _freed(node, bytes_by_value) if _bytes_when_freed(graph, node, bytes_by_value) <= floor_bytes else node
        for node in graph.nodes
    )
    return replace(graph, nodes=nodes)


def _bytes_when_freed(graph: Graph, node: Node, bytes_by_value: Mapping[str, int]) -> int:
    held = {*node.inputs, *graph.input_by_name}
    return node.workspace_bytes + sum(bytes_by_value[name] for name in (*held, *(out.name for out in node.outputs)))


def _freed(node: Node, bytes_by_value: Mapping[str, int]) -> Node:
    return replace(node, outputs=tuple(_freed_value(value, bytes_by_value) for value in node.outputs))


def _freed_value(value: Value, bytes_by_value: Mapping[str, int]) -> Value:
    if value.overwrites is None:
        return value
    return replace(value, overwrites=None, size_bytes=bytes_by_value[value.name])


def _is_counted(graph: Graph, name: str) -> bool:
    return name not in graph.input_by_name or graph.input_by_name[name].is_counted
