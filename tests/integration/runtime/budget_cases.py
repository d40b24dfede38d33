"""Training runs for the tests of ``lowtide.budget``: plain, with memory to spare, and within a budget."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

import lowtide
from lowtide.runtime.stats import SessionStats

AMPLE_BYTES = 2**31
NUM_STEPS = 5


@dataclass
class Training:
    """What is trained, made anew for each run.

    Attributes:
        model: Its parameters, gradients and buffers are compared.
        optimizer: Its state is compared.
        step: One step of training, given its number; returns what a user would look at, the loss first.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    step: Callable[[int], Iterable[Tensor]]


Make = Callable[[], Training]


@dataclass
class Run:
    """What a run leaves behind, and what its session says.

    Attributes:
        values: By name; tensors are copies outside the arena.
        kept_bytes: Alive in the arena after the last step.
        stats: The session's; None for plain runs.
    """

    values: dict[str, Tensor] = field(default_factory=dict)
    kept_bytes: int = 0
    stats: SessionStats | None = None

    def budget_at(self, ratio: float) -> int:
        """Bytes kept after a step + ratio x what a step needs beyond them."""
        assert self.stats is not None
        return int(self.kept_bytes + ratio * (self.stats.peak_bytes - self.kept_bytes))


def train(
    make: Make,
    *,
    budget_bytes: int | None = None,
    is_made_inside: bool = False,
    num_steps: int = NUM_STEPS,
    **options: Any,
) -> Run:
    """Train, within a budget where one is given.

    Args:
        make: Builds model and optimizer.
        budget_bytes: None for plain PyTorch.
        is_made_inside: Whether the model is built inside the block.
        num_steps: Optimizer steps.
        options: Of `lowtide.budget`.
    """
    run = Run()
    training = None if is_made_inside else make_anew(make)
    with contextlib.nullcontext() if budget_bytes is None else lowtide.budget(budget_bytes, **options) as session:
        training = training or make_anew(make)
        for step in range(num_steps):
            seen = training.step(step)
            run.values |= {f"step {step}: seen {index}": _hash(value) for index, value in enumerate(seen)}
            run.values |= {f"step {step}: gradient of {name}": _hash(grad) for name, grad in _gradients(training.model)}
            del seen
        if session is not None:
            gc.collect()
            run.stats = session.stats
            run.kept_bytes = session.stats.resident_bytes
    run.values |= {name: _copy(value) for name, value in _state(training)}
    run.values["random state"] = torch.get_rng_state()
    return run


def differences(one: Run, other: Run) -> list[str]:
    """Names of the values that are not the same to the bit, or that only one run has."""
    names = dict.fromkeys([*one.values, *other.values])
    return [name for name in names if not _are_same(one.values.get(name), other.values.get(name))]


def make_anew(make: Make) -> Training:
    """With the same weights each time, and the generator set."""
    torch.manual_seed(0)
    training = make()
    torch.manual_seed(1)
    return training


def _hash(value: Tensor) -> Tensor:
    """64 bits that depend on every bit of a tensor: an op as any other, so that no address leaves the arena."""
    value = value.detach().contiguous()
    if value.dtype == torch.bfloat16:
        value = value.view(torch.int16)
    return torch.hash_tensor(value).view(torch.int64)


def _copy(value: Tensor) -> Tensor:
    plain = value.detach().contiguous()
    return plain.view(-1).view(torch.uint8).clone() if plain.numel() else plain.clone()


def _are_same(one: Tensor | None, other: Tensor | None) -> bool:
    return one is not None and other is not None and torch.equal(one, other)


def _gradients(model: nn.Module) -> list[tuple[str, Tensor]]:
    return [(name, value.grad) for name, value in model.named_parameters() if value.grad is not None]


def _state(training: Training) -> list[tuple[str, Tensor]]:
    model = training.model
    state = [(f"parameter {name}", value.detach()) for name, value in model.named_parameters()]
    state += [(f"buffer {name}", value) for name, value in model.named_buffers()]
    state += [(f"gradient of {name}", value) for name, value in _gradients(model)]
    for index, values in enumerate(training.optimizer.state.values()):
        state += _tensors(f"optimizer {index}", values)
    return state


def _tensors(prefix: str, values: Mapping[str, object]) -> list[tuple[str, Tensor]]:
    return [(f"{prefix} {name}", value) for name, value in values.items() if isinstance(value, Tensor)]
