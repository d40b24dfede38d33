"""What holds of a graph whatever the plan, and what a budget as people write it means for it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from lowtide.errors import GraphError, RefereeError
from lowtide.ir import INPUTS_OP, Graph
from lowtide.planning.merging import MergedGraph, merge_in_place
from lowtide.referee import Replay, baseline, largest_working_set
from lowtide.units import Budget, Bytes, parse_budget

__all__ = ["Facts", "gather_facts", "read_budget"]

_SMALLEST_REAL_PEAK_BYTES = 1024
_LARGEST_ABSTRACT_PEAK = 2**20


@dataclass(frozen=True)
class Facts:
    """What holds of a graph whatever the plan.

    Attributes:
        graph: The graph.
        baseline: Its given order without recomputation, replayed.
        bottleneck_node: The node with the largest working set, or None where the graph's inputs need more together,
            before anything is computed, and in a graph without nodes.
        largest_working_set_bytes: What that node, or the inputs, need; no plan can be below it.
    """

    graph: Graph
    baseline: Replay
    bottleneck_node: str | None
    largest_working_set_bytes: Bytes

    @cached_property
    def merged(self) -> MergedGraph | None:
        """The graph with in-place operations merged into what they overwrite, or None where there are none to merge."""
        return merge_in_place(self.graph)


def gather_facts(graph: Graph) -> Facts:
    """Replay the baseline and look for the largest working set.

    Raises:
        GraphError: The given order cannot be executed, e.g. it reads a value after it was overwritten.
    """
    bottleneck = largest_working_set(graph)
    try:
        plain = baseline(graph)
    except RefereeError as error:
        raise GraphError(f"graph {graph.name!r} cannot be executed in its given order: {error}") from error
    first_step_bytes = _first_step_bytes(graph)
    if first_step_bytes > bottleneck.size_bytes:
        return Facts(graph, plain, None, first_step_bytes)
    is_of_inputs = bottleneck.node is not None and graph.node_by_name[bottleneck.node].op == INPUTS_OP
    return Facts(graph, plain, None if is_of_inputs else bottleneck.node, bottleneck.size_bytes)


def _first_step_bytes(graph: Graph) -> Bytes:
    """The least that any plan's first step needs where inputs that no node reads leave one by one; 0 elsewhere.

    All inputs are resident before it: at best, it evicts the largest of those.
    """
    read = {name for node in graph.nodes for name in (*node.inputs, *node.recompute_inputs)}
    counted = [graph_input for graph_input in graph.inputs if graph_input.is_counted]
    leaving = [
        graph_input.size_bytes
        for graph_input in counted
        if graph_input.evictable and graph_input.name not in read and graph_input.name not in graph.outputs
    ]
    if len(leaving) < 2:
        return 0
    return sum(graph_input.size_bytes for graph_input in counted) - max(leaving)


def read_budget(facts: Facts, budget: Budget) -> Bytes:
    """A budget in bytes; for a percentage, floor(fraction x baseline peak).

    A bare number below 1024 is taken for a forgotten percent sign, except where the whole graph is that small or counts
    abstract units.

    Raises:
        UnitError: The budget cannot be read.
    """
    peak_bytes = facts.baseline.peak_bytes
    is_abstract = facts.graph.duration_unit == "unit" and peak_bytes < _LARGEST_ABSTRACT_PEAK
    smallest_bytes = 1 if is_abstract or peak_bytes < _SMALLEST_REAL_PEAK_BYTES else _SMALLEST_REAL_PEAK_BYTES
    return parse_budget(budget, baseline_peak_bytes=peak_bytes, smallest_bytes=smallest_bytes)
