"""Which values share a storage, and which nodes may be recomputed freely.

The search thinks in storages: a fresh *copy* of a storage per execution of its producer, resident until its last use.
That is exactly what the referee counts as long as

- a *clean view* (a node that only renames one storage, may be executed at any time and takes no scratch) is executed
  again before a use that follows a recomputation of its base: then no old view holds an old copy; and
- a storage that anything else aliases or overwrites keeps its one copy: its producer is *frozen* (never recomputed).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

from lowtide.ir import Graph, Input, Node, Value

__all__ = ["Storages", "find_storages", "storage_size_bytes"]


@dataclass(frozen=True, slots=True)
class Storages:
    """Values grouped by the storage they live in.

    Attributes:
        root_by_value: The value that allocates the storage of each value: a graph input or an output that owns storage.
        clean_views: Names of the nodes that only rename a storage and can be executed again whenever needed.
        frozen_nodes: Names of the nodes that must not be recomputed.
        last_stage_by_node: For nodes that read a value that is later overwritten: the last stage (position in the
            order) in which they can be recomputed.
        overwritten_values: Values that stop being resident because their storage is overwritten later.
    """

    root_by_value: Mapping[str, str]
    clean_views: frozenset[str]
    frozen_nodes: frozenset[str]
    last_stage_by_node: Mapping[str, int]
    overwritten_values: frozenset[str]


def find_storages(graph: Graph) -> Storages:
    """Group the values of a graph by storage."""
    root_by_value = _roots(graph)
    clean_views = frozenset(node.name for node in graph.nodes if _is_clean_view(node, root_by_value))
    frozen = {node.name for node in graph.nodes if not node.recomputable}
    for node in graph.nodes:
        if node.name not in clean_views:
            frozen |= _frozen_by(graph, node, root_by_value)
    overwritten_at = _overwritten_at(graph, root_by_value)
    return Storages(
        root_by_value=root_by_value,
        clean_views=clean_views,
        frozen_nodes=frozenset(frozen),
        last_stage_by_node={
            node.name: min(moments)
            for node in graph.nodes
            if (moments := [overwritten_at[v] for v in (*node.inputs, *node.recompute_inputs) if v in overwritten_at])
        },
        overwritten_values=frozenset(overwritten_at),
    )


def _roots(graph: Graph) -> dict[str, str]:
    roots = {graph_input.name: graph_input.name for graph_input in graph.inputs}
    for name in graph.order:
        outputs = graph.node_by_name[name].outputs
        for value in outputs:
            if value.alias_of is None:
                roots[value.name] = value.name if value.overwrites is None else roots[value.overwrites]
        for value in outputs:
            if value.alias_of is not None:
                roots[value.name] = roots[graph.base_by_value[value.name]]
    return roots


def _is_clean_view(node: Node, roots: Mapping[str, str]) -> bool:
    if not node.is_view or not node.recomputable or node.recompute_inputs or node.workspace_bytes:
        return False
    if any(value.first_only or not value.evictable for value in node.outputs):
        return False
    touched = {roots[name] for name in node.inputs} | {roots[value.name] for value in node.outputs}
    return len(touched) == 1


def _frozen_by(graph: Graph, node: Node, roots: Mapping[str, str]) -> set[str]:
    """Producers that a node freezes by aliasing or overwriting their storage."""
    own = {value.name: value for value in node.outputs if value.owns_storage}
    frozen: set[str] = set()
    for value in node.outputs:
        if value.owns_storage or _follows_sibling(value, own.get(roots[value.name])):
            continue
        producer = graph.producer_by_value.get(roots[value.name])
        if producer is not None:
            frozen.add(producer.name)
        if value.overwrites is not None:
            frozen.add(node.name)
    return frozen


def _follows_sibling(value: Value, root: Value | None) -> bool:
    """Whether a recomputation makes the alias anew together with the storage it refers to."""
    return (
        root is not None
        and value.overwrites is None
        and value.evictable
        and root.evictable
        and (value.first_only == root.first_only)
    )


def _overwritten_at(graph: Graph, roots: Mapping[str, str]) -> dict[str, int]:
    """For each value whose storage is overwritten after it was made: the position of the first such node."""
    position = {name: index for index, name in enumerate(graph.order)}
    moments_by_root: dict[str, list[int]] = {}
    for name in graph.order:
        for value in graph.node_by_name[name].outputs:
            if value.overwrites is not None:
                moments_by_root.setdefault(roots[value.name], []).append(position[name])
    overwritten_at: dict[str, int] = {}
    for name, root in roots.items() if moments_by_root else ():
        producer = graph.producer_by_value.get(name)
        moments = moments_by_root.get(root, [])
        later = bisect_right(moments, -1 if producer is None else position[producer.name])
        if later < len(moments):
            overwritten_at[name] = moments[later]
    return overwritten_at


def storage_size_bytes(graph: Graph, root: str) -> int:
    """Bytes that a storage counts towards the peak."""
    value = graph.value_by_name[root]
    if isinstance(value, Input) and not value.is_counted:
        return 0
    return value.size_bytes
