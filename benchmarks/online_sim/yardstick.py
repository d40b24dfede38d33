"""The offline optimum for a trace at a budget: the planner's best plan and its bound.

The graph of a trace leaves parameters, buffers, constants and optimizer state out of its budget, the arena does not:
they are taken off. The plan keeps the trace's order, and may drop a value after its last use even where the program
still holds it, which no online policy is told. It counts live bytes, as if addresses did not matter.
"""

from __future__ import annotations

from dataclasses import dataclass

from lowtide import api
from lowtide.importers.trace_graph import graph_of_trace
from lowtide.ir import Graph, Trace

__all__ = ["LARGEST_GRAPH", "Optimum", "optimum_of", "seconds_for", "yardstick_graph"]

LARGEST_GRAPH = 8000
"""Nodes of the largest graph that is planned."""

_LARGE_GRAPH, _LARGE_FACTOR = 3000, 4


@dataclass(frozen=True, slots=True)
class Optimum:
    """Attributes: overhead: of the best plan found; bound: below which no plan of this order can be. None: unknown."""

    budget_bytes: int
    overhead: float | None
    bound: float | None
    status: str
    planner: str


def yardstick_graph(trace: Trace) -> tuple[Graph, int]:
    """The graph of a trace, and the bytes that its budget leaves out."""
    graph = graph_of_trace(trace)
    return graph, sum(graph_input.size_bytes for graph_input in graph.inputs if not graph_input.is_counted)


def seconds_for(graph: Graph, seconds: float) -> float:
    """The planner's time limit: four times the usual for a graph of more than 3,000 nodes."""
    return seconds * _LARGE_FACTOR if len(graph.nodes) > _LARGE_GRAPH else seconds


def optimum_of(graph: Graph, left_out_bytes: int, budget_bytes: int, *, planner: str, seconds: float) -> Optimum:
    """Plan a trace's graph within a budget for the whole arena."""
    result = api.plan(
        graph,
        budget=max(budget_bytes - left_out_bytes, 1024),
        planner=planner,
        keep_order=True,
        time_limit_seconds=seconds,
        threads=1,
        layout=None,
    )
    base = result.baseline_duration
    bound = result.lower_bound_duration
    return Optimum(
        budget_bytes=budget_bytes,
        overhead=None if result.plan is None else result.plan.duration / base,
        bound=None if bound is None else bound / base,
        status=str(result.status),
        planner=planner,
    )
