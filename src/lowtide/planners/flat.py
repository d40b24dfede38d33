"""From a graph to the flat arrays of the native core, and from its answer back to a sequence of executions.

The core sees nodes as positions in the given order and storages as numbers (see ``storages``). Clean views are nodes
that read a storage and are never recomputed there; :func:`sequence_of` executes them again where a use needs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lowtide.ir import Graph, Node
from lowtide.planners.storages import Storages, find_storages, storage_size_bytes

__all__ = ["FlatGraph", "Recomputation", "flatten", "recomputations_in", "sequence_of", "sequence_of_runs"]


@dataclass(frozen=True, slots=True, order=True)
class Recomputation:
    """One execution of a node beyond its first.

    Attributes:
        stage: Position in the order of the node before whose first execution it happens.
        node: Position in the order of the node that is executed again; below ``stage``.
    """

    stage: int
    node: int


@dataclass(frozen=True, slots=True)
class FlatGraph:
    """A graph as arrays over positions in the order and over storages (see ``native/include/lowtide/problem.hpp``).

    Attributes:
        graph: What was flattened.
        storages: How its values share storages.
        nodes: The nodes in the given order.
        roots: The value that allocates each storage.
        duration: Per node.
        recompute_duration: Per node: its duration and that of the views of what it makes.
        workspace_bytes: Per node.
        recompute_workspace_bytes: Per node: outputs that a recomputation allocates only to drop them.
        last_stage: Per node: last stage where it may be recomputed, its own position if never.
        reads: Per node: storages it reads.
        recompute_reads: Per node: storages that only recomputations read.
        size_bytes: Per storage.
        producer: Per storage: position of the node that allocates it, -1 for graph inputs.
        is_recreated: Per storage: whether a recomputation of its producer makes a fresh copy.
        is_kept: Per storage: whether its last copy stays resident to the end.
    """

    graph: Graph
    storages: Storages
    nodes: tuple[Node, ...]
    roots: tuple[str, ...]
    duration: list[int] = field(default_factory=list)
    recompute_duration: list[int] = field(default_factory=list)
    workspace_bytes: list[int] = field(default_factory=list)
    recompute_workspace_bytes: list[int] = field(default_factory=list)
    last_stage: list[int] = field(default_factory=list)
    reads: list[list[int]] = field(default_factory=list)
    recompute_reads: list[list[int]] = field(default_factory=list)
    size_bytes: list[int] = field(default_factory=list)
    producer: list[int] = field(default_factory=list)
    is_recreated: list[bool] = field(default_factory=list)
    is_kept: list[bool] = field(default_factory=list)


def flatten(graph: Graph) -> FlatGraph:
    """Lay out a graph as flat arrays."""
    storages = find_storages(graph)
    nodes = tuple(graph.node_by_name[name] for name in graph.order)
    roots = [graph_input.name for graph_input in graph.inputs]
    roots += [value.name for node in nodes for value in node.outputs if value.owns_storage]
    flat = FlatGraph(graph=graph, storages=storages, nodes=nodes, roots=tuple(roots))
    _add_storages(flat)
    _add_nodes(flat)
    return flat


def _add_storages(flat: FlatGraph) -> None:
    graph, root_by_value = flat.graph, flat.storages.root_by_value
    position = {node.name: index for index, node in enumerate(flat.nodes)}
    overwritten = flat.storages.overwritten_values
    pinned = {
        root_by_value[name]
        for name, value in graph.value_by_name.items()
        if not value.evictable and name not in overwritten
    }
    kept = pinned | {root_by_value[name] for name in graph.outputs}
    first_only = {value.name for node in graph.nodes for value in node.outputs if value.first_only}
    for root in flat.roots:
        producer = graph.producer_by_value.get(root)
        flat.size_bytes.append(storage_size_bytes(graph, root))
        flat.producer.append(-1 if producer is None else position[producer.name])
        flat.is_recreated.append(producer is not None and root not in pinned and root not in first_only)
        flat.is_kept.append(root in kept)


def _add_nodes(flat: FlatGraph) -> None:
    number = {root: index for index, root in enumerate(flat.roots)}
    root_by_value = flat.storages.root_by_value
    view_duration = _view_duration_by_root(flat)
    for position, node in enumerate(flat.nodes):
        reads = list(dict.fromkeys(number[root_by_value[name]] for name in node.inputs))
        again = dict.fromkeys(number[root_by_value[name]] for name in node.recompute_inputs)
        flat.reads.append(reads)
        flat.recompute_reads.append([storage for storage in again if storage not in reads])
        flat.duration.append(node.duration)
        flat.workspace_bytes.append(node.workspace_bytes)
        flat.recompute_workspace_bytes.append(_dropped_bytes(node))
        flat.last_stage.append(_last_stage(flat, node, position))
        flat.recompute_duration.append(
            node.duration + sum(view_duration.get(value.name, 0) for value in node.outputs if value.owns_storage)
        )


def _dropped_bytes(node: Node) -> int:
    """Bytes of outputs that a recomputation allocates although the first copy is still there."""
    return sum(v.size_bytes for v in node.outputs if v.owns_storage and not v.evictable and not v.first_only)


def _last_stage(flat: FlatGraph, node: Node, position: int) -> int:
    is_fixed = node.name in flat.storages.frozen_nodes or node.name in flat.storages.clean_views
    if is_fixed or not any(value.owns_storage for value in node.outputs):
        return position
    return max(position, flat.storages.last_stage_by_node.get(node.name, len(flat.nodes) - 1))


def _view_duration_by_root(flat: FlatGraph) -> dict[str, int]:
    durations: dict[str, int] = {}
    for name in flat.storages.clean_views:
        node = flat.graph.node_by_name[name]
        root = flat.storages.root_by_value[node.outputs[0].name]
        durations[root] = durations.get(root, 0) + node.duration
    return durations


def sequence_of(flat: FlatGraph, recomputations: Iterable[Recomputation]) -> list[str]:
    """The executions of a set of recomputations, in order, with the views that they make necessary.

    Args:
        flat: The graph.
        recomputations: In any order.

    Returns:
        Names of nodes: in each stage its recomputations by position, then the stage's own node.
    """
    runs_by_stage: dict[int, list[int]] = {}
    for recomputation in sorted(set(recomputations)):
        runs_by_stage.setdefault(recomputation.stage, []).append(recomputation.node)
    return sequence_of_runs(flat, runs_by_stage)


def recomputations_in(flat: FlatGraph, sequence: Iterable[str]) -> list[Recomputation]:
    """What a sequence executes again, the inverse of :func:`sequence_of`.

    Args:
        flat: The graph, in the order of the sequence's first executions.
        sequence: Names of nodes.

    Returns:
        Recomputations by stage, each once; views, and what comes after the last first execution, are left out.
    """
    position = {node.name: index for index, node in enumerate(flat.nodes)}
    found: dict[Recomputation, None] = {}
    pending: list[int] = []
    next_stage = 0
    for node in map(position.__getitem__, sequence):
        if node < next_stage:
            pending.append(node)
            continue
        found |= dict.fromkeys(Recomputation(node, again) for again in pending if node <= flat.last_stage[again])
        pending, next_stage = [], node + 1
    return list(found)


def sequence_of_runs(flat: FlatGraph, runs_by_stage: Mapping[int, Sequence[int]]) -> list[str]:
    """The executions of the runs of every stage, in the order in which they are given there, with the views they need.

    Args:
        flat: The graph.
        runs_by_stage: Nodes that run in a stage before its own node; the last stage may lie behind the last node.

    Returns:
        Names of nodes.
    """
    unfolding = _Unfolding(flat)
    for stage in range(len(flat.nodes) + 1):
        for node in runs_by_stage.get(stage, ()):
            unfolding.execute(flat.nodes[node])
        if stage < len(flat.nodes):
            unfolding.execute(flat.nodes[stage])
    unfolding.refresh(flat.graph.outputs)
    return unfolding.sequence


class _Unfolding:
    """Executes nodes in order and, before a use, the clean views whose base has a newer copy than they refer to."""

    def __init__(self, flat: FlatGraph) -> None:
        self.sequence: list[str] = []
        self._graph = flat.graph
        self._storages = flat.storages
        self._recreated = {root for root, again in zip(flat.roots, flat.is_recreated, strict=True) if again}
        self._copies: dict[str, int] = {}
        self._seen_copy: dict[str, int] = {}
        self._computed: set[str] = set()

    def execute(self, node: Node) -> None:
        self.refresh((*node.inputs, *(node.recompute_inputs if node.name in self._computed else ())))
        self._append(node)

    def refresh(self, values: Iterable[str]) -> None:
        waiting = [view for view in map(self._stale_view, values) if view is not None]
        while waiting:  # depth first, so that a view of a view comes after the view it reads
            stale = [view for view in map(self._stale_view, waiting[-1].inputs) if view is not None]
            if stale:
                waiting += stale
                continue
            view = waiting.pop()
            if self._is_stale(view):
                self._append(view)

    def _stale_view(self, value: str) -> Node | None:
        node = self._graph.producer_by_value.get(value)
        if node is None or node.name not in self._storages.clean_views:
            return None
        return node if self._is_stale(node) else None

    def _is_stale(self, view: Node) -> bool:
        root = self._storages.root_by_value[view.outputs[0].name]
        return self._seen_copy[view.name] != self._copies.get(root, 0)

    def _append(self, node: Node) -> None:
        self.sequence.append(node.name)
        if node.name in self._storages.clean_views:
            root = self._storages.root_by_value[node.outputs[0].name]
            self._seen_copy[node.name] = self._copies.get(root, 0)
        for value in node.outputs:
            if value.owns_storage and (node.name not in self._computed or value.name in self._recreated):
                self._copies[value.name] = self._copies.get(value.name, 0) + 1
        self._computed.add(node.name)
