"""Inputs that nobody reads, as runtimes hold them: the caller has written all inputs before anything runs.

x ──▶ relu ──▶          read: resident from the beginning to its last reader
y ──▶ lowtide.inputs    read by nobody: resident at a node that comes first, computes nothing and reads all inputs
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lowtide.ir import INPUTS_OP, Input, Node

__all__ = ["with_inputs_held"]


def with_inputs_held(inputs: Sequence[Input], nodes: Sequence[Node], outputs: Sequence[str]) -> tuple[Node, ...]:
    """Nodes of a graph, preceded by one that reads all inputs where some are read by no other and are no outputs.

    Without it, a plan could drop those before its first step, and count them nowhere. Where all are read, the first
    node that is computed finds all of them resident, and nothing is added; a graph without nodes needs it, too.

    Args:
        inputs: Inputs of the graph.
        nodes: Its nodes, in order.
        outputs: Values that are resident at the end.
    """
    counted = tuple(entry.name for entry in inputs if entry.is_counted)
    read = {name for node in nodes for name in node.inputs}
    if nodes and read.union(outputs).issuperset(counted):
        return tuple(nodes)
    gate = Node(_free_name(nodes), INPUTS_OP, duration=0, inputs=counted, outputs=(), recomputable=False)
    produced = {value.name for node in nodes for value in node.outputs}
    return (gate, *(_behind(gate, node, produced) for node in nodes))


def _behind(gate: Node, node: Node, produced: set[str]) -> Node:
    """Whatever waits for another node waits for the first one, too."""
    return node if node.after or produced.intersection(node.inputs) else replace(node, after=(gate.name,))


def _free_name(nodes: Sequence[Node]) -> str:
    taken = {node.name for node in nodes}
    name = "all_inputs"
    while name in taken:
        name += "_"
    return name
