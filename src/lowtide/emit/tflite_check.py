"""Runs a .tflite model and its rewritten form on the installed runtimes, compares what comes out and what it took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from lowtide.emit.tflite_run import LitertRun, MicroRun, RuntimeRefused, random_inputs, run_on_litert, run_on_micro
from lowtide.errors import MissingDependency
from lowtide.importers.tflite_arena import micro_arena
from lowtide.importers.tflite_file import TfliteFile, op_name, parse_tflite

__all__ = ["RuntimeCheck", "TfliteCheck", "check_tflite"]


@dataclass(frozen=True, slots=True)
class RuntimeCheck:
    """Two models on one runtime, or why there is nothing to compare.

    Attributes:
        runtime: Its name.
        before: The original model's run, or None.
        after: The rewritten model's run, or None.
        num_different: Outputs that are not identical to the bit; 0 without runs.
        refusal: Why it does not run the original, or None.
    """

    runtime: str
    before: MicroRun | LitertRun | None
    after: MicroRun | LitertRun | None
    num_different: int
    refusal: str | None

    @property
    def is_identical(self) -> bool:
        """Whether both ran and agree to the bit."""
        return self.after is not None and self.num_different == 0


@dataclass(frozen=True, slots=True)
class TfliteCheck:
    """What a check found.

    Attributes:
        micro: TensorFlow Lite Micro.
        litert: LiteRT with its own kernels, no delegate.
        num_sets: Sets of random inputs.
        num_outputs: Outputs compared per runtime, of all sets.
        ops: Operators that the resolver needs, sorted.
        new_ops: Those of them that the original did not need.
        flash_delta_bytes: How much larger the file is.
        scratch_bytes: What of the new arena is scratch of kernels: the highest address, less that of the tensors.
    """

    micro: RuntimeCheck
    litert: RuntimeCheck
    num_sets: int
    num_outputs: int
    ops: tuple[str, ...]
    new_ops: tuple[str, ...]
    flash_delta_bytes: int
    scratch_bytes: int

    @property
    def micro_totals(self) -> tuple[int, int] | None:
        """What the arena of TensorFlow Lite Micro holds in all, before and after; None where it did not run."""
        before, after = self.micro.before, self.micro.after
        if isinstance(before, MicroRun) and isinstance(after, MicroRun):
            return before.total_bytes, after.total_bytes
        return None

    @property
    def is_passed(self) -> bool:
        """Whether at least one runtime ran both, and all that did agree to the bit."""
        ran = [check for check in (self.micro, self.litert) if check.refusal is None]
        return bool(ran) and all(check.is_identical for check in ran)


def check_tflite(before: bytes, after: bytes, *, num_sets: int = 3, seed: int = 0, repeats: int = 5) -> TfliteCheck:
    """Run both models with the same random inputs.

    Args:
        before: The original file.
        after: The rewritten one.
        num_sets: Sets of random inputs.
        seed: Of the inputs.
        repeats: Inferences that are timed.

    Raises:
        RuntimeRefused: A runtime takes the original and not the rewritten model.
    """
    original, rewritten = parse_tflite(before, "the original"), parse_tflite(after, "the new file")
    inputs = random_inputs(original, num_sets=num_sets, seed=seed)
    ops_before = {op_name(original.model, operator) for operator in original.subgraph.operators}
    ops_after = {op_name(rewritten.model, operator) for operator in rewritten.subgraph.operators}

    def on_micro(data: bytes) -> MicroRun:
        return run_on_micro(data, inputs, repeats=repeats, find_smallest=True)

    def on_litert(data: bytes) -> LitertRun:
        return run_on_litert(data, inputs, repeats=repeats)

    micro = _compare("TensorFlow Lite Micro", on_micro, before, after)
    return TfliteCheck(
        micro=micro,
        litert=_compare("LiteRT", on_litert, before, after),
        num_sets=num_sets,
        num_outputs=num_sets * len(original.subgraph.outputs),
        ops=tuple(sorted(ops_after)),
        new_ops=tuple(sorted(ops_after - ops_before)),
        flash_delta_bytes=len(after) - len(before),
        scratch_bytes=_scratch_bytes(rewritten, micro.after),
    )


def _scratch_bytes(file: TfliteFile, run: MicroRun | LitertRun | None) -> int:
    if not isinstance(run, MicroRun):
        return 0
    return max(0, run.head_bytes - micro_arena(file).tensors_bytes)


def _compare(name: str, run: Any, before: bytes, after: bytes) -> RuntimeCheck:
    try:
        original = run(before)
    except (RuntimeRefused, MissingDependency) as error:
        return RuntimeCheck(name, None, None, 0, str(error))
    rewritten = run(after)
    return RuntimeCheck(name, original, rewritten, _num_different(original.outputs, rewritten.outputs), None)


def _num_different(before: Mapping[str, npt.NDArray[Any]], after: Mapping[str, npt.NDArray[Any]]) -> int:
    """Outputs of another type, shape or bit pattern; those that one of them lacks count, too."""
    return sum(
        name not in before or name not in after or not _is_same(before[name], after[name]) for name in {*before, *after}
    )


def _is_same(before: npt.NDArray[Any], after: npt.NDArray[Any]) -> bool:
    return before.dtype == after.dtype and before.shape == after.shape and before.tobytes() == after.tobytes()
