"""What to train and what came out of it, as frozen values that fit into JSON.

TrainingRun ── run_training / measure_training ──▶ TrainingResult
                                                   ├── steps: StepResult (loss, bytes, seconds), one per step
                                                   ├── digests: {"step0.gradient.head.weight": TensorDigest, ...}
                                                   └── tensors: the same names, if the run was to keep them
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from lowtide.errors import InputError
from lowtide.measure.numerics import TensorDigest

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["StepResult", "TrainingResult", "TrainingRun"]

OPTIMIZERS = ("sgd", "adamw")
RECORDS = ("none", "digests", "tensors")


@dataclass(frozen=True, kw_only=True)
class TrainingRun:
    """A training of a few steps, described so that a fresh process can repeat it.

    Attributes:
        model: Function that builds ``(model, example_inputs)`` or ``(model, example_inputs,
            loss_function)``, as ``pkg.module:function``. Without a loss function the output itself is the
            loss if it is a scalar, otherwise the mean of its squares.
        model_options: Keyword arguments for it.
        optimizer: ``"sgd"`` (with momentum) or ``"adamw"``.
        num_steps: Number of optimizer steps, all on the same inputs.
        dtype: Type to which weights and floating-point inputs are cast, e.g. ``"float32"`` or ``"bfloat16"``.
        autocast_dtype: Type for ``torch.autocast("cpu")`` around forward and loss; None for no autocast.
        seed: Seed of torch's generator, set just before the first step.
        num_threads: Threads that torch may use within an operation.
        prepare: Function that makes the model ready, as ``pkg.module:function``, called once before the
            first step as ``prepare(model, optimizer=optimizer, **prepare_options)``, returning the module to
            call. It may compile in place. None trains the model as it is. ``"lowtide:compile"`` fits.
        prepare_options: Keyword arguments for it.
        report: Function called without arguments after the last step, as ``pkg.module:function``; the dict
            that it returns becomes the result's `report`. None for no report.
        record: Which bits to keep: ``"none"``, ``"digests"``, or ``"tensors"`` (copies of all, and digests).
    """

    model: str
    model_options: Mapping[str, object] = field(default_factory=dict)
    optimizer: Literal["sgd", "adamw"] = "sgd"
    num_steps: int = 3
    dtype: str = "float32"
    autocast_dtype: str | None = None
    seed: int = 0
    num_threads: int = 1
    prepare: str | None = None
    prepare_options: Mapping[str, object] = field(default_factory=dict)
    report: str | None = None
    record: Literal["none", "digests", "tensors"] = "digests"

    def __post_init__(self) -> None:
        """Refuses what cannot be run."""
        if self.optimizer not in OPTIMIZERS:
            raise InputError(f"unknown optimizer {self.optimizer!r}: use one of {', '.join(OPTIMIZERS)}")
        if self.record not in RECORDS:
            raise InputError(f"unknown record {self.record!r}: use one of {', '.join(RECORDS)}")
        for name in ("num_steps", "num_threads"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}: it must be at least 1")

    def to_json(self) -> dict[str, Any]:
        """Returns the run as a dict from which ``TrainingRun(**...)`` makes it again."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What one step took.

    Attributes:
        loss: Value of the loss.
        wall_seconds: Time from before forward to after backward.
        cpu_seconds: Processor time of all threads over the same span.
        start_bytes: Bytes that the process held from malloc before forward; None without the meter.
        peak_bytes: Most bytes held from before forward to after backward, beyond `start_bytes`; None without
            the meter. Gradients are in it: the step starts without any.
        end_bytes: Bytes held after backward, beyond `start_bytes`: the gradients, the output, and whatever
            was cached.
    """

    loss: float
    wall_seconds: float
    cpu_seconds: float
    start_bytes: int | None
    peak_bytes: int | None
    end_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """What a training gave.

    Attributes:
        run: What was trained.
        steps: One entry per step.
        prepare_seconds: Wall-clock time of `prepare`; what it leaves to the first step is in that step.
        digests: Digest of each recorded tensor by name: ``step{i}.loss``, ``step{i}.gradient.{parameter}``,
            ``step{i}.parameter.{parameter}``, ``step{i}.buffer.{buffer}`` and ``step{i}.rng_state``; the
            last three as they are after the optimizer's step. Empty if the run records nothing.
        tensors: The tensors by the same names, or None unless the run records them.
        report: What the run's report function returned.
    """

    run: TrainingRun
    steps: tuple[StepResult, ...]
    prepare_seconds: float
    digests: Mapping[str, TensorDigest]
    tensors: Mapping[str, Tensor] | None
    report: Mapping[str, Any]

    def peak_bytes(self, *, first_step: int = 1) -> int | None:
        """Returns the largest `peak_bytes` of the steps from `first_step` on (0-based); None without the meter.

        The first step is left out by default: it profiles, compiles and fills caches.
        """
        peaks = [step.peak_bytes for step in self.steps[first_step:] if step.peak_bytes is not None]
        return max(peaks, default=None)

    def to_json(self) -> dict[str, Any]:
        """Returns everything but the tensors as a dict for JSON."""
        return {
            "run": self.run.to_json(),
            "steps": [asdict(step) for step in self.steps],
            "prepare_seconds": self.prepare_seconds,
            "digests": {name: asdict(digest) for name, digest in self.digests.items()},
            "report": dict(self.report),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any], *, tensors: Mapping[str, Tensor] | None = None) -> TrainingResult:
        """Makes the result again from what `to_json` returned, after a round trip through JSON."""
        return cls(
            run=TrainingRun(**document["run"]),
            steps=tuple(StepResult(**step) for step in document["steps"]),
            prepare_seconds=document["prepare_seconds"],
            digests={
                name: TensorDigest(dtype=digest["dtype"], shape=tuple(digest["shape"]), sha256=digest["sha256"])
                for name, digest in document["digests"].items()
            },
            tensors=tensors,
            report=document["report"],
        )
