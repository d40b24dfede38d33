"""What the model builders share: the shape of an example, seeding, casting, the optional transformers package."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TypeAlias

import torch
from torch import Tensor, nn

from lowtide.errors import InputError, MissingDependency

__all__ = ["DTYPES", "ExampleModel", "LossFunction", "cast_example", "import_transformers", "parse_dtype", "seeded"]

LossFunction: TypeAlias = Callable[[Tensor], Tensor]
"""Takes what the model returned, gives a scalar to call ``backward()`` on."""

ExampleModel: TypeAlias = tuple[nn.Module, tuple[Tensor, ...], LossFunction]
"""A model in training mode, inputs it accepts as ``model(*inputs)``, and a loss for what it returns."""

DTYPES: dict[str, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
"""The floating-point types that builders and the measuring harness accept, by name."""


def parse_dtype(name: str) -> torch.dtype:
    """Returns the floating-point type of that name.

    Raises:
        InputError: The name is not one of `DTYPES`.
    """
    if name not in DTYPES:
        raise InputError(f"unknown dtype {name!r}: use one of {', '.join(DTYPES)}")
    return DTYPES[name]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Runs its block with torch's generator seeded, and puts the caller's generator back afterwards.

    A builder inside it gives the same weights for the same seed and does not disturb the program around it.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def cast_example(model: nn.Module, inputs: tuple[Tensor, ...], *, dtype: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Casts a model's weights and its floating-point inputs; integer inputs (token ids) stay as they are.

    Raises:
        InputError: The dtype is not one of `DTYPES`.
    """
    target = parse_dtype(dtype)
    cast = tuple(value.to(target) if value.is_floating_point() else value for value in inputs)
    return model.to(target), cast


def import_transformers() -> ModuleType:
    """Returns the package transformers, which only the transformer models need.

    Raises:
        MissingDependency: It is not installed.
    """
    try:
        module = importlib.import_module("transformers")
    except ImportError as error:
        raise MissingDependency("transformers", extra="demo", needed_for="this model of lowtide.models") from error
    # Its one-time warnings would break torch.compile(fullgraph=True), and its advice is not about our models.
    module.logging.set_verbosity_error()
    return module
