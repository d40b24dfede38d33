"""Keeps a compiled model within its plan when it is used in other ways than forward, backward, forward, backward.

A plan frees saved values during backward and expects that no earlier forward pass still holds any. Uses that break
this are let through where they fit all the same, and refused before they allocate where they do not.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.multiprocessing.reductions import StorageWeakRef

from lowtide.errors import BudgetOverrun, CompileError
from lowtide.importers.torch_joint import JointCapture
from lowtide.ir import Compute
from lowtide.referee import VerifiedPlan
from lowtide.units import format_bytes

__all__ = ["StepGuard", "retained_peak_bytes", "watched_results"]

_SMALLEST_WATCHED_BYTES = 4096
_FRAMES_ABOVE_BACKWARD = 24


def retained_peak_bytes(verified: VerifiedPlan, boundary_name: str, saved: frozenset[str]) -> int:
    """Peak of a joint plan if backward freed none of the saved values (``retain_graph=True``), in bytes.

    Args:
        verified: The plan.
        boundary_name: Name of its boundary node.
        saved: Names of the values that forward saves for backward.
    """
    steps, memory = verified.plan.steps, verified.replay.memory_bytes
    boundary = steps.index(Compute(boundary_name))
    released = [0] * (len(steps) + 1)
    base_by_value = verified.graph.base_by_value
    bases = {base_by_value[value] for value in saved}
    for lifespan in verified.replay.lifespans:
        if lifespan.name in bases and boundary in lifespan.interval:
            released[lifespan.interval.end] += lifespan.size_bytes
    kept, peak = 0, verified.replay.peak_bytes
    for step in range(boundary, len(steps)):
        kept += released[step]
        peak = max(peak, memory[step] + kept)
    return peak


def watched_results(capture: JointCapture, saved: Sequence[str]) -> Mapping[int, int]:
    """Which of forward's results stay resident only for backward: what it saves of its own making.

    Args:
        capture: The joint graph.
        saved: Names of the values that forward saves, in their order behind its outputs.

    Returns:
        Bytes by the position of a result; of each storage once, without inputs, outputs and small change.
    """
    graph, value_by_fx_node = capture.imported.graph, capture.imported.value_by_fx_node
    outputs = (value_by_fx_node.get(node) for node in capture.forward_outputs if isinstance(node, fx.Node))
    seen = {graph.base_by_value[value] for value in outputs if value is not None}
    seen |= {graph_input.name for graph_input in graph.inputs}
    watched = {}
    for position, value in enumerate(saved, start=len(capture.forward_outputs)):
        base = graph.base_by_value[value]
        size_bytes = graph.value_by_name[base].size_bytes
        if base not in seen and size_bytes >= _SMALLEST_WATCHED_BYTES:
            watched[position] = size_bytes
        seen.add(base)
    return watched


class StepGuard:
    """Watches the forward and backward of one plan.

    Args:
        peak_bytes: Planned peak, counted as the budget is.
        retained_peak_bytes: Peak if backward freed no saved value, counted likewise.
        budget_bytes: What is allowed.
        watched: Bytes of each of forward's results that stays resident only for backward, by its position.
    """

    def __init__(
        self, *, peak_bytes: int, retained_peak_bytes: int, budget_bytes: int, watched: Mapping[int, int]
    ) -> None:
        self._peak_bytes = peak_bytes
        self._retained_peak_bytes = retained_peak_bytes
        self._budget_bytes = budget_bytes
        self._watched = tuple(watched.items())
        self._saved: list[tuple[StorageWeakRef, int]] = []

    def forward(self, run: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
        """Wrap forward: refuse it while earlier passes hold too much; note what it saves itself."""

        def guarded(arguments: list[Any]) -> Any:
            self._refuse_overlap()
            results = run(arguments)
            for position, size_bytes in self._watched:
                storage = results[position].untyped_storage()
                self._saved.append((StorageWeakRef(storage), size_bytes))  # type: ignore[no-untyped-call]
            return results

        guarded._boxed_call = True  # type: ignore[attr-defined]  # how AOTAutograd knows
        return guarded

    def backward(self, run: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
        """Wrap backward: refuse ``retain_graph=True`` where the saved values it keeps do not fit."""

        def guarded(arguments: list[Any]) -> Any:
            keeps_graph = torch._C._autograd._get_current_graph_task_keep_graph()
            if keeps_graph and _creates_graph():
                raise CompileError(
                    "backward(create_graph=True) asks for second derivatives, which a compiled model does not have: "
                    "leave create_graph out, or use the model without lowtide.compile for them"
                )
            if keeps_graph and self._retained_peak_bytes > self._budget_bytes:
                raise BudgetOverrun(
                    f"backward(retain_graph=True) keeps all saved values, which takes "
                    f"{format_bytes(self._retained_peak_bytes)} of a budget of {format_bytes(self._budget_bytes)}: "
                    "call backward once per forward, or raise the budget",
                    needed_bytes=self._retained_peak_bytes,
                    budget_bytes=self._budget_bytes,
                )
            return run(arguments)

        guarded._boxed_call = True  # type: ignore[attr-defined]  # how AOTAutograd knows
        return guarded

    def _refuse_overlap(self) -> None:
        self._saved = [saved for saved in self._saved if not saved[0].expired()]  # type: ignore[no-untyped-call]
        held = sum(size for _, size in self._saved)
        if held and held + self._peak_bytes > self._budget_bytes:
            raise BudgetOverrun(
                f"an earlier forward pass still holds {format_bytes(held)} for its backward; with this one that is "
                f"{format_bytes(held + self._peak_bytes)} of a budget of {format_bytes(self._budget_bytes)}: call "
                "backward first, drop the earlier output, use torch.no_grad(), or raise the budget",
                needed_bytes=held + self._peak_bytes,
                budget_bytes=self._budget_bytes,
            )


def _creates_graph() -> bool:
    """Whether autograd runs this backward with ``create_graph=True``: AOTAutograd then calls it from a node."""
    frame: types.FrameType | None = sys._getframe()
    for _ in range(_FRAMES_ABOVE_BACKWARD):
        frame = frame.f_back if frame is not None else None
        if frame is not None and "CompiledFunctionBackward" in frame.f_code.co_qualname:
            return True
    return False
