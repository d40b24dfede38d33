"""Names in an .onnx model: of values and nodes, each written once."""

from __future__ import annotations

from typing import Any

from lowtide.importers.onnx_file import subgraphs_of

__all__ = ["all_names", "fresh_name"]


def all_names(graph: Any) -> set[str]:
    """Names of values and nodes of a graph, in graphs within it, too: none may be hidden by another."""
    found = {entry.name for entry in (*graph.input, *graph.output, *graph.initializer)}
    for node in graph.node:
        found.update((node.name, *node.input, *node.output))
        for inner in subgraphs_of(node):
            found |= all_names(inner)
    return found


def fresh_name(wanted: str, taken: set[str]) -> str:
    """A name that is not taken, as wanted or numbered; it is taken from now on."""
    name, number = wanted, 1
    while name in taken:
        name, number = f"{wanted}_{number}", number + 1
    taken.add(name)
    return name
