"""Nodes of an optimised model in the order of the file it was made of; ONNX Runtime's own may differ from run to run.

file        a ──▶ b ──▶ c                      positions 0, 1, 2
optimised   a ──▶ reorder ──▶ b' ──▶ c         a: 0, c: 2; what the file does not make comes after what it reads: 0
"""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import Any

from lowtide.importers.onnx_ops import captured_names
from lowtide.importers.onnx_run import OptimisedModel

__all__ = ["in_order_of_file"]


def in_order_of_file(file_model: Any, optimised: OptimisedModel) -> OptimisedModel:
    """Sort an optimised model's nodes as the file has what they make, as far as what they read allows.

    Args:
        file_model: The ``ModelProto`` that was optimised.
        optimised: What became of it.
    """
    nodes = list(optimised.model.graph.node)
    order = _order(nodes, {name: rank for rank, node in enumerate(file_model.graph.node) for name in node.output})
    model = type(optimised.model)()
    model.CopyFrom(optimised.model)
    del model.graph.node[:]
    model.graph.node.extend(nodes[position] for position in order)
    durations = {
        new: optimised.duration_by_node[old] for new, old in enumerate(order) if old in optimised.duration_by_node
    }
    return replace(optimised, model=model, duration_by_node=durations)


def _order(nodes: list[Any], rank_by_value: dict[str, int]) -> list[int]:
    """Positions of nodes, the ready one of the lowest rank first; a topological order."""
    producer_by_value = {name: position for position, node in enumerate(nodes) for name in node.output if name}
    sources = [
        {producer_by_value[name] for name in (*node.input, *captured_names(node)) if name in producer_by_value}
        for node in nodes
    ]
    readers: list[list[int]] = [[] for _ in nodes]
    for position, read in enumerate(sources):
        for source in read:
            readers[source].append(position)
    num_missing = [len(read) for read in sources]
    ranks = [0] * len(nodes)
    ready: list[tuple[int, str, int]] = []

    def announce(position: int) -> None:
        own = [rank_by_value[name] for name in nodes[position].output if name in rank_by_value]
        ranks[position] = min(own) if own else max((ranks[source] for source in sources[position]), default=0)
        heapq.heappush(ready, (ranks[position], "".join(nodes[position].output), position))

    for position, count in enumerate(num_missing):
        if not count:
            announce(position)
    order = []
    while ready:
        position = heapq.heappop(ready)[2]
        order.append(position)
        for reader in readers[position]:
            num_missing[reader] -= 1
            if not num_missing[reader]:
                announce(reader)
    return order
