"""Models and prepare functions for the tests of the harness, with figures that can be worked out by hand."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class _Scale(nn.Module):
    """y = weight * x, weight = 1, with a buffer that counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.register_buffer("num_calls", torch.zeros((), dtype=torch.int64))

    def forward(self, value: Tensor) -> Tensor:
        self.num_calls += 1
        return self.weight * value


def scale(*, value: float = 1.0) -> tuple[nn.Module, tuple[Tensor, ...]]:
    return _Scale(), (torch.full((4,), value),)


def scale_with_loss() -> tuple[nn.Module, tuple[Tensor, ...], Any]:
    model, inputs = scale()
    return model, inputs, lambda output: output.sum()


def drawn_at_random() -> tuple[nn.Module, tuple[Tensor, ...], Any]:
    """A model as users write them: weights from torch, inputs from numpy, a factor from Python, no seed."""
    factor = random.random()
    inputs = torch.from_numpy(np.random.random((2, 4)).astype("float32"))  # noqa: NPY002
    return nn.Linear(4, 4), (inputs,), lambda output: factor * output.sum()


class _Retain(nn.Module):
    """Retains for backward exactly one tensor of `size_bytes`: the output of exp."""

    def __init__(self, *, size_bytes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.num_elements = size_bytes // 4

    def forward(self, value: Tensor) -> Tensor:
        return (self.weight + value).expand(self.num_elements).exp().sum()


def retain(*, size_bytes: int) -> tuple[nn.Module, tuple[Tensor, ...]]:
    return _Retain(size_bytes=size_bytes), (torch.zeros(1),)


class _Unrepeatable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, value: Tensor) -> Tensor:
        import time

        return self.weight * value * float(time.perf_counter_ns() % 1_000_000_007)


def unrepeatable() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return _Unrepeatable(), (torch.ones(1),)


def two_outputs() -> tuple[nn.Module, tuple[Tensor, ...]]:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, value: Tensor) -> tuple[Tensor, Tensor]:
            return value * self.weight, value

    return Two(), (torch.ones(1),)


def not_a_model() -> int:
    return 3


def leave_as_it_is(model: nn.Module, *, optimizer: torch.optim.Optimizer) -> nn.Module:
    assert isinstance(optimizer, torch.optim.Optimizer)
    return model


class _Wrong(nn.Module):
    """Runs the model and adds a gradient of 1 ulp or so where none belongs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, value: Tensor) -> Tensor:
        output: Tensor = self.model(value)
        return output + 1e-6 * (output - output.detach())


def make_gradients_wrong(model: nn.Module, *, optimizer: torch.optim.Optimizer) -> nn.Module:
    return _Wrong(model)


def return_nothing(model: nn.Module, *, optimizer: torch.optim.Optimizer) -> None:
    return None


def report() -> dict[str, object]:
    return {"planned_peak_bytes": 12}


def report_nothing() -> None:
    return None
