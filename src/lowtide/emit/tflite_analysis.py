"""How much arena a .tflite model needs on TensorFlow Lite Micro, how much it could need, and by which means.

now ──▶ offsets alone ──▶ order, too ──▶ recomputation, too            never below the largest operator
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from lowtide.emit.means import PlanSmallest, footprint_of, try_means
from lowtide.importers.tflite import TfliteImport, import_tflite
from lowtide.importers.tflite_arena import micro_arena
from lowtide.importers.tflite_file import op_name
from lowtide.importers.tflite_schema import CUSTOM

__all__ = ["TfliteAnalysis", "analyze_tflite"]


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
    means = try_means(graph, plan_smallest)
    in_place = plan_smallest(import_tflite(source.file, in_place=True).graph, keep_order=False, max_copies=1)
    return TfliteAnalysis(
        model=graph.name,
        num_operators=len(source.operator_by_node),
        arena_bytes=arena.head_bytes,
        live_bytes=arena.live_bytes,
        largest_working_set_bytes=means.largest_working_set_bytes,
        bottleneck_node=means.bottleneck_node,
        bottleneck_op=means.bottleneck_op,
        by_offsets_bytes=means.by_offsets_bytes,
        by_order_bytes=means.by_order_bytes,
        by_recompute_bytes=means.by_recompute_bytes,
        num_recomputes=means.num_recomputes,
        tdi_percent=means.tdi_percent,
        in_place_bytes=min(footprint_of(in_place), means.by_order_bytes),
        missing_ops=_missing_ops(source),
    )


def _missing_ops(source: TfliteImport) -> tuple[str, ...]:
    operators = source.file.subgraph.operators
    folded = {f"{op_name(source.file.model, operators[position])} of weights" for position in source.folded}
    custom = {node.op for node in source.graph.nodes if node.op.startswith(CUSTOM)}
    return tuple(sorted(folded | custom))
