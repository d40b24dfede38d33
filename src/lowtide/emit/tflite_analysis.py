"""How much arena a .tflite model needs on TensorFlow Lite Micro, how much it could need, and by which means.

now ──▶ offsets alone ──▶ order, too ──▶ recomputation, too            never below the largest operator
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Protocol

from lowtide.importers.tflite import TfliteImport, import_tflite
from lowtide.importers.tflite_arena import micro_arena
from lowtide.importers.tflite_file import op_name
from lowtide.importers.tflite_schema import CUSTOM
from lowtide.ir import Graph, PlanResult

__all__ = ["PlanSmallest", "TfliteAnalysis", "analyze_tflite"]


class PlanSmallest(Protocol):
    """Plans for the smallest footprint."""

    def __call__(self, graph: Graph, *, keep_order: bool, max_copies: int | None) -> PlanResult:
        """Plan a graph; ``max_copies`` is the most executions of one node, None for any number."""
        ...


@dataclass(frozen=True, slots=True)
class TfliteAnalysis:
    """Where the arena of a model goes, and what could make it smaller; bytes of the non-persistent part.

    Attributes:
        model: Name of the model.
        num_operators: Operators, those that only unpack weights left out.
        arena_bytes: As TensorFlow Lite Micro packs the file as it is.
        live_bytes: Most bytes that live at one operator of the file as it is.
        largest_working_set_bytes: No order, recomputation or offsets can be below this.
        bottleneck_node: The operator that needs it, by the name of its output.
        bottleneck_op: What that computes.
        by_offsets_bytes: With prescribed offsets alone.
        by_order_bytes: With the best order found, and offsets.
        by_recompute_bytes: With recomputation, too.
        num_recomputes: Operators that this executes again.
        tdi_percent: Its total duration increase, estimated.
        in_place_bytes: With elementwise operators writing over their inputs, without recomputation.
        missing_ops: Operators for which the stock TensorFlow Lite Micro has no kernel.
    """

    model: str
    num_operators: int
    arena_bytes: int
    live_bytes: int
    largest_working_set_bytes: int
    bottleneck_node: str | None
    bottleneck_op: str | None
    by_offsets_bytes: int
    by_order_bytes: int
    by_recompute_bytes: int
    num_recomputes: int
    tdi_percent: float
    in_place_bytes: int
    missing_ops: tuple[str, ...]

    @property
    def is_op_bound(self) -> bool:
        """Whether one operator alone needs all that lives at the peak: order and recomputation cannot help."""
        return self.largest_working_set_bytes >= self.live_bytes

    @property
    def best_bytes(self) -> int:
        """The smallest arena found, without writing in place."""
        return min(self.by_offsets_bytes, self.by_order_bytes, self.by_recompute_bytes)

    def as_dict(self) -> dict[str, Any]:
        """The figures as JSON values, under the names of the attributes."""
        document = asdict(self) | {"missing_ops": list(self.missing_ops)}
        return {**document, "is_op_bound": self.is_op_bound, "best_bytes": self.best_bytes}


def analyze_tflite(source: TfliteImport, plan_smallest: PlanSmallest) -> TfliteAnalysis:
    """Try the means one after the other.

    Args:
        source: The file, read.
        plan_smallest: Plans for the smallest footprint.
    """
    graph = source.graph
    arena = micro_arena(source.file)
    by_offsets = plan_smallest(graph, keep_order=True, max_copies=1)
    by_order = by_recompute = by_offsets
    if by_offsets.largest_working_set_bytes < _footprint(by_offsets):
        by_order = plan_smallest(graph, keep_order=False, max_copies=1)
    if by_order.largest_working_set_bytes < _footprint(by_order):
        by_recompute = plan_smallest(graph, keep_order=False, max_copies=None)
    in_place = plan_smallest(import_tflite(source.file, in_place=True).graph, keep_order=False, max_copies=1)
    is_recomputed = _footprint(by_recompute) < _footprint(by_order)
    bottleneck = by_offsets.bottleneck_node
    return TfliteAnalysis(
        model=graph.name,
        num_operators=len(graph.nodes),
        arena_bytes=arena.head_bytes,
        live_bytes=arena.live_bytes,
        largest_working_set_bytes=by_offsets.largest_working_set_bytes,
        bottleneck_node=bottleneck,
        bottleneck_op=None if bottleneck is None else graph.node_by_name[bottleneck].op,
        by_offsets_bytes=_footprint(by_offsets),
        by_order_bytes=min(_footprint(by_order), _footprint(by_offsets)),
        by_recompute_bytes=min(_footprint(by_recompute), _footprint(by_order), _footprint(by_offsets)),
        num_recomputes=by_recompute.num_recomputes if is_recomputed else 0,
        tdi_percent=by_recompute.plan.tdi_percent if is_recomputed and by_recompute.plan is not None else 0.0,
        in_place_bytes=min(_footprint(in_place), _footprint(by_order), _footprint(by_offsets)),
        missing_ops=_missing_ops(source),
    )


def _footprint(result: PlanResult) -> int:
    plan = result.plan
    if plan is None:
        return result.smallest_known_peak_bytes
    return plan.peak_bytes if plan.footprint_bytes is None else plan.footprint_bytes


def _missing_ops(source: TfliteImport) -> tuple[str, ...]:
    operators = source.file.subgraph.operators
    folded = {f"{op_name(source.file.model, operators[position])} of weights" for position in source.folded}
    custom = {node.op for node in source.graph.nodes if node.op.startswith(CUSTOM)}
    return tuple(sorted(folded | custom))
