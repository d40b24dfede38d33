"""Runs a .pte file and its rewritten form on the installed ExecuTorch, each in a process of its own.

The planned buffer is read out of the files; what a process really takes is counted in front of malloc: weights stay in
the file's bytes, kernels may want scratch of their own while they run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lowtide.importers.executorch import ExecutorchImport
from lowtide.importers.executorch_lowering import planned_buffer_bytes
from lowtide.measure import measure_in_subprocess

__all__ = ["ExecutorchCheck", "ExecutorchRun", "check_executorch", "random_inputs", "run_on_executorch"]

_TARGET = "lowtide.emit.executorch_child:measure_program"


@dataclass(frozen=True, slots=True)
class ExecutorchRun:
    """A program on ExecuTorch.

    Attributes:
        outputs: Digest of each output's type, shape and bits, by ``set/number``.
        buffer_bytes: Its planned buffer, read out of the file.
        method_bytes: What malloc hands out when the file is opened: the planned buffer and structures.
        run_bytes: On top of that at the peak of a run: scratch of kernels, and the outputs that Python gets.
        seconds: Processor time of a run on one thread, the shortest of several.
    """

    outputs: Mapping[str, str]
    buffer_bytes: int
    method_bytes: int
    run_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ExecutorchCheck:
    """What a check found.

    Attributes:
        before: The file that ExecuTorch makes by itself.
        after: The new file.
        num_different: Outputs that are not the same to the bit, or that one of them lacks.
        num_outputs: Outputs compared, of all sets.
        num_sets: Sets of random inputs.
    """

    before: ExecutorchRun
    after: ExecutorchRun
    num_different: int
    num_outputs: int
    num_sets: int

    @property
    def is_identical(self) -> bool:
        """Whether all outputs agree to the bit."""
        return self.num_different == 0

    @property
    def helps(self) -> bool:
        """Whether the planned buffer, and all that malloc hands out with it, shrinks."""
        before, after = self.before, self.after
        takes_less = after.method_bytes + after.run_bytes < before.method_bytes + before.run_bytes
        return after.buffer_bytes < before.buffer_bytes and takes_less


def check_executorch(
    source: ExecutorchImport, after: bytes, *, num_sets: int = 3, seed: int = 0, repeats: int = 5
) -> ExecutorchCheck:
    """Run the file that ExecuTorch makes by itself and the new one with the same random inputs.

    Args:
        source: The model, imported.
        after: The new file.
        num_sets: Sets of random inputs.
        seed: Of the inputs.
        repeats: Runs that are timed.

    Raises:
        ChildFailed: ExecuTorch refuses one of them or dies of it.
        MeterUnavailable: The malloc meter was not built; it exists on Linux only.
    """
    inputs = [random_inputs(source.lowering.inputs, seed=seed + number) for number in range(num_sets)]
    first = run_on_executorch(source.data, inputs, repeats=repeats)
    second = run_on_executorch(after, inputs, repeats=repeats)
    names = {*first.outputs, *second.outputs}
    return ExecutorchCheck(
        before=first,
        after=second,
        num_different=sum(first.outputs.get(name) != second.outputs.get(name) for name in names),
        num_outputs=len(first.outputs),
        num_sets=num_sets,
    )


def random_inputs(examples: Sequence[Any], *, seed: int = 0) -> list[Any]:
    """Inputs like the examples: normal for floats, within their range for whole numbers, the rest as it is.

    Args:
        examples: Flat inputs of a model.
        seed: Of what is drawn.
    """
    generator = torch.Generator().manual_seed(seed)
    return [_random_like(example, generator) for example in examples]


def _random_like(example: Any, generator: torch.Generator) -> Any:
    if not isinstance(example, torch.Tensor):
        return example
    if example.is_floating_point():
        return torch.randn(example.shape, generator=generator).to(example.dtype)
    if example.dtype == torch.bool or not example.numel():
        return torch.randint(0, 2, example.shape, generator=generator).to(example.dtype)
    low, high = int(example.min()), int(example.max())
    return torch.randint(low, high + 1, example.shape, generator=generator).to(example.dtype)


def run_on_executorch(data: bytes, inputs: Sequence[Sequence[Any]], *, repeats: int = 5) -> ExecutorchRun:
    """Run a program under the malloc meter, on one thread.

    Args:
        data: The .pte file.
        inputs: Sets of flat inputs.
        repeats: Runs that are timed.

    Raises:
        ChildFailed: ExecuTorch refuses the program or dies of it.
        FormatError: It is no .pte file.
        MeterUnavailable: The malloc meter was not built; it exists on Linux only.
    """
    buffer_bytes = planned_buffer_bytes(data)
    with tempfile.TemporaryDirectory(prefix="lowtide-executorch-") as name:
        program_file, inputs_file = Path(name) / "model.pte", Path(name) / "inputs.pt"
        program_file.write_bytes(data)
        torch.save([list(each) for each in inputs], inputs_file)
        answer = measure_in_subprocess(
            _TARGET,
            kwargs={"program_file": str(program_file), "inputs_file": str(inputs_file), "repeats": repeats},
        )
    return ExecutorchRun(
        answer["outputs"], buffer_bytes, answer["method_bytes"], answer["run_bytes"], answer["seconds"]
    )
