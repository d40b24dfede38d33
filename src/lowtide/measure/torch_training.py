"""Trains a model for a few steps and reports bytes, seconds and bits: the judge of every compiled model.

    zero_grad ─ gc ─▶│ start_bytes     peak_bytes │─▶ record gradients ─ optimizer.step ─ record the rest
                     │ forward ─ loss ─ backward  │
                     ╰── bytes, seconds ──────────╯

`run_training` trains in this process, `measure_training` in a fresh one under the malloc meter,
`compare_with_plain` trains twice plainly and once prepared, and says where the bits part.
"""

from __future__ import annotations

import gc
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lowtide.errors import InputError
from lowtide.importers.torch_keywords import by_position
from lowtide.measure.errors import NotRepeatable
from lowtide.measure.meter import Meter, active_meter, is_meter_active
from lowtide.measure.numerics import Difference, TensorDigest, compare_digests, compare_tensors, digest_tensor
from lowtide.measure.subprocesses import measure_in_subprocess
from lowtide.measure.targets import resolve_target
from lowtide.measure.training_types import StepResult, TrainingResult, TrainingRun

__all__ = [
    "Comparison",
    "StepResult",
    "TrainingResult",
    "TrainingRun",
    "compare_results",
    "compare_with_plain",
    "compile_with_backend",
    "measure_training",
    "run_training",
]

LEARNING_RATE_BY_OPTIMIZER = {"sgd": 0.01, "adamw": 0.001}


def compile_with_backend(
    model: nn.Module,
    *,
    optimizer: torch.optim.Optimizer,
    backend: str = "aot_eager",
    options: dict[str, Any] | None = None,
) -> nn.Module:
    """A `TrainingRun.prepare` that compiles in place as one graph with any backend of torch.compile.

    Args:
        model: The model to compile.
        optimizer: Not used; every prepare function is given it.
        backend: Name of the backend.
        options: Its options.

    Returns:
        The same model.
    """
    del optimizer
    model.compile(backend=backend, fullgraph=True, dynamic=False, options=options)
    return model


def run_training(run: TrainingRun) -> TrainingResult:
    """Trains in this process. Bytes are measured only if the malloc meter is active here.

    All random numbers, those of the function that makes the model included, are drawn from the run's seed: the same run
    is the same training in every process. Generators and torch's number of threads are as before afterwards.

    Args:
        run: What to train.

    Returns:
        What it took, and its bits as far as the run records them.

    Raises:
        InputError: The run names something that does not exist or does not fit.
    """
    with _quiet_torch(num_threads=run.num_threads), _seeded(run.seed):
        trainer = _build_trainer(run)
        prepare_seconds = trainer.prepare()
        torch.manual_seed(run.seed)
        steps = tuple(trainer.train_step(index) for index in range(run.num_steps))
        report = resolve_target(run.report)() if run.report else {}
    if not isinstance(report, Mapping):
        raise InputError(
            f"the report function {run.report!r} returned a {type(report).__name__}: it must return a dict"
        )
    return TrainingResult(
        run=run,
        steps=steps,
        prepare_seconds=prepare_seconds,
        digests=trainer.digests,
        tensors=trainer.tensors if run.record == "tensors" else None,
        report=report,
    )


def measure_training(
    run: TrainingRun,
    *,
    timeout_seconds: float = 600.0,
    env: Mapping[str, str] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> TrainingResult:
    """Trains in a fresh process under the malloc meter, as `run_training` does.

    Args:
        run: What to train.
        timeout_seconds: Wall-clock time after which the process is killed.
        env: Environment variables to set in it.
        should_stop: Asked all the time; true kills the process at once.

    Returns:
        The result, bytes included. Tensors, if the run records them, come over a temporary file.

    Raises:
        MeterUnavailable: The meter was not built.
        ChildFailed: The training raised, or was stopped; the child's traceback is kept.
    """
    with tempfile.TemporaryDirectory(prefix="lowtide-training-") as folder:
        tensors_path = Path(folder) / "tensors.pt"
        document = measure_in_subprocess(
            f"{__name__}:_train_for_parent",
            kwargs={"run": run.to_json(), "tensors_path": str(tensors_path)},
            env=env,
            timeout_seconds=timeout_seconds,
            should_stop=should_stop,
        )
        tensors = torch.load(tensors_path, weights_only=True) if run.record == "tensors" else None
    return TrainingResult.from_json(document, tensors=tensors)


def _train_for_parent(*, run: dict[str, Any], tensors_path: str) -> dict[str, Any]:
    """Runs in the child of `measure_training`."""
    result = run_training(TrainingRun(**run))
    if result.tensors is not None:
        torch.save(dict(result.tensors), tensors_path)
    return result.to_json()


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A prepared training beside the plain one.

    Attributes:
        plain: The model trained as it is.
        prepared: The same, prepared.
        differences: Where their bits differ; empty if nowhere.
    """

    plain: TrainingResult
    prepared: TrainingResult
    differences: tuple[Difference, ...]


def compare_results(left: TrainingResult, right: TrainingResult) -> tuple[Difference, ...]:
    """Compares the bits of two trainings: by tensors if both have them, otherwise by digests.

    Raises:
        InputError: One of them recorded nothing.
    """
    for result in (left, right):
        if result.run.record == "none":
            raise InputError("a training with record='none' has no bits to compare: use 'digests' or 'tensors'")
    if left.tensors is not None and right.tensors is not None:
        return tuple(compare_tensors(left.tensors, right.tensors))
    return tuple(compare_digests(left.digests, right.digests))


def compare_with_plain(
    run: TrainingRun, *, train: Callable[[TrainingRun], TrainingResult] = run_training
) -> Comparison:
    """Trains plainly twice and prepared once, and compares.

    Args:
        run: The prepared training.
        train: `run_training`, or `measure_training` for figures in bytes.

    Raises:
        NotRepeatable: The two plain trainings differ, so plain torch itself does not repeat here.
    """
    plain_run = replace(run, prepare=None, prepare_options={}, report=None)
    plain = train(plain_run)
    own_differences = compare_results(plain, train(plain_run))
    if own_differences:
        raise NotRepeatable(
            f"plain torch does not repeat {run.model!r} ({run.dtype}, {run.num_threads} threads): "
            f"{len(own_differences)} tensors differ between two plain runs, the first is {own_differences[0]}"
        )
    prepared = train(run)
    return Comparison(plain=plain, prepared=prepared, differences=compare_results(plain, prepared))


@contextmanager
def _quiet_torch(*, num_threads: int) -> Iterator[None]:
    """Sets the number of threads and stops the garbage collector, which frees tensors at moments of its own."""
    previous_threads = torch.get_num_threads()
    was_collecting = gc.isenabled()
    torch.set_num_threads(num_threads)
    gc.disable()
    try:
        yield
    finally:
        torch.set_num_threads(previous_threads)
        if was_collecting:
            gc.enable()


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seeds the generators of Python, numpy and torch: models are made with either."""
    python_state = random.getstate()
    numpy_state = np.random.get_state()  # noqa: NPY002  (the generator that models draw from)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002


def _build_trainer(run: TrainingRun) -> _Trainer:
    # Imported here: models are a sibling that the harness needs for its dtypes only.
    from lowtide.models.common import cast_example

    example = resolve_target(run.model)(**run.model_options)
    if not (isinstance(example, tuple) and len(example) in (2, 3) and isinstance(example[0], nn.Module)):
        raise InputError(f"{run.model!r} must return (model, example_inputs) or (model, example_inputs, loss_function)")
    model, given = example[0], example[1]
    if isinstance(given, Mapping):
        model, given = by_position(model, given)
    model, inputs = cast_example(model, tuple(given), dtype=run.dtype)
    return _Trainer(
        run=run, model=model, inputs=inputs, loss_function=example[2] if len(example) == 3 else _default_loss
    )


def _default_loss(output: Tensor) -> Tensor:
    if not isinstance(output, Tensor):
        raise InputError(f"the model returns a {type(output).__name__}: let its builder return a loss_function, too")
    return output if output.dim() == 0 else output.float().square().mean()


def _build_optimizer(name: str, parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
    learning_rate = LEARNING_RATE_BY_OPTIMIZER[name]
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=learning_rate, momentum=0.9)
    return torch.optim.AdamW(parameters, lr=learning_rate)


def _autocast(dtype_name: str | None) -> AbstractContextManager[object]:
    from lowtide.models.common import parse_dtype

    if dtype_name is None:
        return nullcontext()
    return torch.autocast("cpu", dtype=parse_dtype(dtype_name))


class _Trainer:
    """One training under way: a model, its optimizer, and the bits recorded so far."""

    def __init__(
        self,
        *,
        run: TrainingRun,
        model: nn.Module,
        inputs: tuple[Tensor, ...],
        loss_function: Callable[[Tensor], Tensor],
    ) -> None:
        self.run = run
        self.model = model
        self.callable_model = model
        self.inputs = inputs
        self.loss_function = loss_function
        self.optimizer = _build_optimizer(run.optimizer, model.parameters())
        self.meter: Meter | None = active_meter() if is_meter_active() else None
        self.digests: dict[str, TensorDigest] = {}
        self.tensors: dict[str, Tensor] = {}

    def prepare(self) -> float:
        """Applies the run's prepare function; returns the seconds it took."""
        if self.run.prepare is None:
            return 0.0
        start_seconds = time.perf_counter()
        prepared = resolve_target(self.run.prepare)(self.model, optimizer=self.optimizer, **self.run.prepare_options)
        if not isinstance(prepared, nn.Module):
            raise InputError(
                f"{self.run.prepare!r} returned a {type(prepared).__name__}: it must return the module to call"
            )
        self.callable_model = prepared
        return time.perf_counter() - start_seconds

    def train_step(self, index: int) -> StepResult:
        """Runs one step and records its bits."""
        self.optimizer.zero_grad(set_to_none=True)
        gc.collect()
        start_bytes = self.meter.reset_peak() if self.meter else None
        start_seconds, start_cpu_seconds = time.perf_counter(), time.process_time()
        loss = self._forward_backward()
        wall_seconds, cpu_seconds = time.perf_counter() - start_seconds, time.process_time() - start_cpu_seconds
        peak_bytes = end_bytes = None
        if self.meter is not None and start_bytes is not None:
            peak_bytes = self.meter.peak_bytes() - start_bytes
            end_bytes = self.meter.live_bytes() - start_bytes
        self._record_gradients(index, loss=loss)
        self.optimizer.step()
        self._record_state(index)
        return StepResult(
            loss=loss.item(),
            wall_seconds=wall_seconds,
            cpu_seconds=cpu_seconds,
            start_bytes=start_bytes,
            peak_bytes=peak_bytes,
            end_bytes=end_bytes,
        )

    def _forward_backward(self) -> Tensor:
        with _autocast(self.run.autocast_dtype):
            output = self.callable_model(*self.inputs)
            loss = self.loss_function(output)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def _record_gradients(self, index: int, *, loss: Tensor) -> None:
        self._record(f"step{index}.loss", loss)
        for name, parameter in self.model.named_parameters():
            if parameter.grad is not None:
                self._record(f"step{index}.gradient.{name}", parameter.grad)

    def _record_state(self, index: int) -> None:
        for name, parameter in self.model.named_parameters():
            self._record(f"step{index}.parameter.{name}", parameter)
        for name, buffer in self.model.named_buffers():
            self._record(f"step{index}.buffer.{name}", buffer)
        self._record(f"step{index}.rng_state", torch.get_rng_state())

    def _record(self, name: str, tensor: Tensor) -> None:
        if self.run.record == "none":
            return
        self.digests[name] = digest_tensor(tensor)
        if self.run.record == "tensors":
            self.tensors[name] = tensor.detach().clone()
