"""Runs an .onnx model and its rewritten form on the installed ONNX Runtime, each in a process of its own.

default    the original under ONNX Runtime's own options: what one has today
before     the original under the recipe of options, its optimisations those that were planned on
after      the new file under the recipe: the same nodes in another order, so the same bits as before
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lowtide.emit.rounding import MOST_ROUNDING, relative_difference
from lowtide.importers.onnx import OnnxImport
from lowtide.measure import measure_in_subprocess

__all__ = ["OnnxCheck", "OnnxRun", "check_onnx", "run_on_onnx_runtime"]

_TARGET = "lowtide.emit.onnx_child:measure_model"


@dataclass(frozen=True, slots=True)
class OnnxRun:
    """A model on ONNX Runtime, measured by what it takes from malloc.

    Attributes:
        outputs: By ``set/name``.
        session_bytes: Held by the open session: weights, prepared weights, structures.
        run_bytes: On top of that at the peak of a run: inputs, tensors, scratch; with the arena of the default options,
            what that keeps.
        seconds: Processor time of a run, the shortest of several.
    """

    outputs: Mapping[str, npt.NDArray[Any]]
    session_bytes: int
    run_bytes: int
    seconds: float

    @property
    def total_bytes(self) -> int:
        """Session and run together."""
        return self.session_bytes + self.run_bytes


@dataclass(frozen=True, slots=True)
class OnnxCheck:
    """What a check found.

    Attributes:
        default: The original under ONNX Runtime's own options.
        before: The original under the recipe.
        after: The new file under the recipe.
        num_different: Outputs of ``after`` that are not those of ``before`` to the bit.
        num_outputs: Outputs compared, of all sets.
        num_sets: Sets of random inputs.
        difference: How far they are apart, see ``relative_difference``.
        default_difference: Largest difference between ``after`` and ``default``, which optimises for this machine and
            therefore rounds otherwise; relative to the largest element. 0 where they are identical to the bit.
    """

    default: OnnxRun
    before: OnnxRun
    after: OnnxRun
    num_different: int
    num_outputs: int
    num_sets: int
    difference: float
    default_difference: float

    @property
    def is_identical(self) -> bool:
        """Whether all outputs agree to the bit."""
        return self.num_different == 0

    @property
    def is_same_within_rounding(self) -> bool:
        """Whether they do up to the runtime's own rounding: its convolutions sum as the number of rows has it."""
        return self.difference <= MOST_ROUNDING

    @property
    def helps(self) -> bool:
        """Whether session and run together take less than before, and than under the default options."""
        return self.after.total_bytes < min(self.before.total_bytes, self.default.total_bytes)


def check_onnx(
    source: OnnxImport, after: bytes, *, threads: int = 1, num_sets: int = 3, seed: int = 0, repeats: int = 5
) -> OnnxCheck:
    """Run the original and the new file with the same random inputs.

    Args:
        source: The original.
        after: The new file.
        threads: Threads within a node.
        num_sets: Sets of random inputs.
        seed: Of the inputs.
        repeats: Runs that are timed.

    Raises:
        ChildFailed: ONNX Runtime refuses one of them or dies of it.
        MeterUnavailable: The malloc meter was not built; it exists on Linux only.
    """
    original = source.file.model.SerializeToString()
    options = {"threads": threads, "num_sets": num_sets, "seed": seed, "repeats": repeats}
    default = run_on_onnx_runtime(original, how="default", **options)
    before = run_on_onnx_runtime(original, how=source.level, **options)
    rewritten = run_on_onnx_runtime(after, how="none", **options)
    return OnnxCheck(
        default=default,
        before=before,
        after=rewritten,
        num_different=sum(
            not _is_same(before.outputs.get(name), rewritten.outputs.get(name))
            for name in {*before.outputs, *rewritten.outputs}
        ),
        num_outputs=len(before.outputs),
        num_sets=num_sets,
        difference=max(
            (relative_difference(array, rewritten.outputs.get(name)) for name, array in before.outputs.items()),
            default=0.0,
        ),
        default_difference=max(
            (_difference(array, rewritten.outputs.get(name)) for name, array in default.outputs.items()), default=0.0
        ),
    )


def run_on_onnx_runtime(
    data: bytes, *, how: str, threads: int = 1, num_sets: int = 1, seed: int = 0, repeats: int = 5
) -> OnnxRun:
    """Run a model under the malloc meter.

    Args:
        data: The .onnx file.
        how: ``"default"``, or a level of optimisation, see ``onnx_child``.
        threads: Threads within a node.
        num_sets: Sets of random inputs.
        seed: Of the inputs.
        repeats: Runs that are timed.

    Raises:
        ChildFailed: ONNX Runtime refuses the model or dies of it.
        MeterUnavailable: The malloc meter was not built; it exists on Linux only.
    """
    with tempfile.TemporaryDirectory(prefix="lowtide-onnx-") as name:
        model_file, outputs_file = Path(name) / "model.onnx", Path(name) / "outputs.npz"
        model_file.write_bytes(data)
        answer = measure_in_subprocess(
            _TARGET,
            kwargs={
                "model_file": str(model_file),
                "outputs_file": str(outputs_file),
                "how": how,
                "threads": threads,
                "num_sets": num_sets,
                "seed": seed,
                "repeats": repeats,
            },
        )
        with np.load(outputs_file) as stored:
            outputs = {key: stored[key] for key in stored.files}
    return OnnxRun(outputs, answer["session_bytes"], answer["run_bytes"], answer["seconds"])


def _is_same(before: npt.NDArray[Any] | None, after: npt.NDArray[Any] | None) -> bool:
    if before is None or after is None:
        return False
    return before.dtype == after.dtype and before.shape == after.shape and before.tobytes() == after.tobytes()


def _difference(expected: npt.NDArray[Any], found: npt.NDArray[Any] | None) -> float:
    if _is_same(expected, found):
        return 0.0
    if found is None or found.shape != expected.shape:
        return float("inf")
    wide = expected.astype(np.float64)
    gap = float(np.max(np.abs(wide - found.astype(np.float64)), initial=0.0))
    largest = float(np.max(np.abs(wide), initial=0.0))
    return gap / largest if largest else gap
