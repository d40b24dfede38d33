"""How large ExecuTorch's planned buffer is for a model, how small it could be, and by which means."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from lowtide.emit.means import Means, PlanSmallest, try_means
from lowtide.importers.executorch import ExecutorchImport
from lowtide.ir import INPUTS_OP
from lowtide.referee import baseline

__all__ = ["ExecutorchAnalysis", "analyze_executorch"]


@dataclass(frozen=True, slots=True)
class ExecutorchAnalysis:
    """Where the planned buffer of a model goes, and what could make it smaller.

    Attributes:
        model: Its name.
        num_instructions: What the runtime executes; views are none.
        delegate: Who executes them, ``"portable"`` or ``"xnnpack"``.
        buffer_bytes: As ExecuTorch plans it by itself, the padding apart.
        padding_bytes: What ExecuTorch adds for XNNPACK, whatever the plan.
        live_bytes: Most bytes that live at one instruction.
        means: What was found.
    """

    model: str
    num_instructions: int
    delegate: str
    buffer_bytes: int
    padding_bytes: int
    live_bytes: int
    means: Means

    @property
    def is_op_bound(self) -> bool:
        """Whether one instruction alone needs all that lives at the peak: order and recomputation cannot help."""
        return self.means.largest_working_set_bytes >= self.live_bytes

    @property
    def best_bytes(self) -> int:
        """The smallest buffer found."""
        return self.means.by_recompute_bytes

    def as_dict(self) -> dict[str, Any]:
        """The figures as JSON values, under the names of the attributes, flat."""
        document = asdict(self)
        means = document.pop("means")
        return {**document, **means, "is_op_bound": self.is_op_bound, "best_bytes": self.best_bytes}


def analyze_executorch(source: ExecutorchImport, plan_smallest: PlanSmallest) -> ExecutorchAnalysis:
    """Try the means one after the other.

    Args:
        source: The model, imported.
        plan_smallest: Plans for the smallest footprint.
    """
    return ExecutorchAnalysis(
        model=source.graph.name,
        num_instructions=sum(not node.is_view and node.op != INPUTS_OP for node in source.graph.nodes),
        delegate=source.lowering.delegate,
        buffer_bytes=source.buffer_bytes - source.padding_bytes,
        padding_bytes=source.padding_bytes,
        live_bytes=baseline(source.graph).peak_bytes,
        means=try_means(source.graph, plan_smallest),
    )
