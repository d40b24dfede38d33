"""Keeps a compiled model within its plan when it is used in other ways than forward, backward, forward, backward.

A plan frees saved values during backward and expects that no earlier forward pass still holds any. Uses that break
this are let through where they fit all the same, and refused before they allocate where they do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from lowtide.errors import BudgetOverrun
from lowtide.ir import Compute
from lowtide.referee import VerifiedPlan
from lowtide.units import format_bytes

__all__ = ["StepGuard", "retained_peak_bytes"]

_SMALLEST_WATCHED_BYTES = 4096


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


class StepGuard:
    """Watches the forward and backward of one plan.

    Args:
        peak_bytes: Planned peak, counted as the budget is.
        retained_peak_bytes: Peak if backward freed no saved value, counted likewise.
        budget_bytes: What is allowed.
        num_outputs: How many of forward's results come before the saved values.
    """

    def __init__(self, *, peak_bytes: int, retained_peak_bytes: int, budget_bytes: int, num_outputs: int) -> None:
        self._peak_bytes = peak_bytes
        self._retained_peak_bytes = retained_peak_bytes
        self._budget_bytes = budget_bytes
        self._num_outputs = num_outputs
        self._saved: list[tuple[StorageWeakRef, int]] = []

    def forward(self, run: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
        """Wrap forward: refuse it while earlier passes hold too much; note what it saves itself."""

        def guarded(arguments: list[Any]) -> Any:
            self._refuse_overlap()
            given = {_storage_key(argument) for argument in arguments if isinstance(argument, torch.Tensor)}
            results = run(arguments)
            given |= {_storage_key(result) for result in results[: self._num_outputs] if _is_tensor(result)}
            self._watch(results[self._num_outputs :], given)
            return results

        guarded._boxed_call = True  # type: ignore[attr-defined]  # how AOTAutograd knows
        return guarded

    def backward(self, run: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
        """Wrap backward: refuse ``retain_graph=True`` where the saved values it keeps do not fit."""

        def guarded(arguments: list[Any]) -> Any:
            keeps_graph = torch._C._autograd._get_current_graph_task_keep_graph()
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

    def _watch(self, saved: list[Any], given: set[int]) -> None:
        storages = {}
        for tensor in saved:
            if _is_tensor(tensor) and _storage_key(tensor) not in given:
                storage = tensor.untyped_storage()
                if storage.nbytes() >= _SMALLEST_WATCHED_BYTES:
                    storages[storage._cdata] = storage
        for storage in storages.values():
            self._saved.append((StorageWeakRef(storage), storage.nbytes()))  # type: ignore[no-untyped-call]


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


def _storage_key(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
