"""What one compilation came to, as data, and as the two lines that the log says of it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from lowtide.emit.torch_accounting import Counts, StandingBytes
from lowtide.ir import PlanResult
from lowtide.referee import VerifiedPlan
from lowtide.units import format_bytes

__all__ = ["Compilation", "last_compilation", "note_compilation"]

_LOG = logging.getLogger("lowtide")


@dataclass(frozen=True, repr=False)
class Compilation:
    """What one compilation came to. All bytes are counted as the budget is.

    Attributes:
        kind: ``"training"`` or ``"inference"``.
        counts: What the budget counts.
        budget_bytes: Bytes allowed.
        baseline_peak_bytes: Peak of the compiled step without recomputation.
        planned_peak_bytes: Peak of the plan.
        margin_bytes: Bytes kept free for what no plan sees.
        input_bytes: User inputs, held by the caller: in neither of them.
        standing: Bytes beside the compiled step; all 0 where only that counts.
        result: The planner's answer.
        verified: The plan, for the graph in it.
        capture_seconds: Wall-clock time of import and profiling.
    """

    kind: str
    counts: Counts
    budget_bytes: int
    baseline_peak_bytes: int
    planned_peak_bytes: int
    margin_bytes: int
    input_bytes: int
    standing: StandingBytes
    result: PlanResult
    verified: VerifiedPlan
    capture_seconds: float

    def __repr__(self) -> str:
        return (
            f"<Compilation, {self.kind} step: budget {format_bytes(self.budget_bytes)}, peak "
            f"{format_bytes(self.baseline_peak_bytes)} -> {format_bytes(self.planned_peak_bytes)}, TDI "
            f"{self.verified.plan.tdi_percent:.2f} %>"
        )

    def as_dict(self) -> dict[str, Any]:
        """The figures, flat, for logs and tables."""
        return {
            "kind": self.kind,
            "counts": str(self.counts),
            "budget_bytes": self.budget_bytes,
            "baseline_peak_bytes": self.baseline_peak_bytes,
            "planned_peak_bytes": self.planned_peak_bytes,
            "margin_bytes": self.margin_bytes,
            "input_bytes": self.input_bytes,
            "parameter_bytes": self.standing.parameters,
            "buffer_bytes": self.standing.buffers,
            "gradient_bytes": self.standing.gradients,
            "optimizer_bytes": self.standing.optimizer,
            "num_nodes": len(self.verified.graph.nodes),
            "num_recomputes": self.result.num_recomputes,
            "tdi_percent": self.verified.plan.tdi_percent,
            "lower_bound_tdi_percent": self.verified.plan.lower_bound_tdi_percent,
            "capture_seconds": self.capture_seconds,
            "solve_seconds": self.result.solve_seconds,
        }


_last: Compilation | None = None


def last_compilation() -> Compilation | None:
    """The newest compilation in this process, or None."""
    return _last


def note_compilation(compilation: Compilation) -> None:
    """Make a compilation the newest, and say in two INFO lines what it came to."""
    global _last  # noqa: PLW0603 - what last_compilation() returns
    _last = compilation
    _log_compilation(compilation)


def _log_compilation(compilation: Compilation) -> None:
    standing = compilation.standing
    plan = compilation.verified.plan
    bound = plan.lower_bound_tdi_percent
    _LOG.info(
        "%s step planned: peak %s -> %s within %s, TDI %.2f %%%s, %d recomputed, %.1f s",
        compilation.kind,
        format_bytes(compilation.baseline_peak_bytes),
        format_bytes(compilation.planned_peak_bytes),
        format_bytes(compilation.budget_bytes),
        plan.tdi_percent,
        "" if bound is None else f" (bound {bound:.2f} %)",
        compilation.result.num_recomputes,
        compilation.capture_seconds + compilation.result.solve_seconds,
    )
    inputs = format_bytes(compilation.input_bytes)
    if compilation.counts is not Counts.DEVICE:
        _LOG.info("counted: the step, its gradients included; not parameters, buffers, optimizer, inputs %s", inputs)
        return
    _LOG.info(
        "also counted: parameters %s, buffers %s, gradients %s, optimizer %s%s; not inputs %s",
        format_bytes(standing.parameters),
        format_bytes(standing.buffers),
        format_bytes(standing.gradients),
        format_bytes(standing.optimizer),
        "" if standing.is_optimizer_known else " (unknown class)",
        inputs,
    )
