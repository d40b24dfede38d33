"""What the model builders share: the shape of an example, seeding, casting, the optional transformers package."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from lowtide.errors import InputError, MissingDependency
from lowtide.importers.quiet import without_notices

__all__ = [
    "DTYPES",
    "ExampleModel",
    "LossFunction",
    "cast_example",
    "image_example",
    "import_transformers",
    "loss_itself",
    "parse_dtype",
    "seeded",
]

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


def image_example(
    make_model: Callable[[], nn.Module], *, batch: int, image_size: int, num_classes: int, dtype: str, seed: int
) -> ExampleModel:
    """Makes an image classifier with an example: random square images, random labels and their cross entropy.

    Args:
        make_model: Makes a module that maps [batch, 3, image_size, image_size] to logits [batch, num_classes];
            called with torch's generator seeded.
        batch: Images per step.
        image_size: Height and width in pixels.
        num_classes: Number of classes.
        dtype: Type of weights and images, a name in `DTYPES`.
        seed: Seed of weights, images and labels, in this order.

    Returns:
        The model in training mode, ``(image,)``, and the cross entropy against fixed labels.

    Raises:
        InputError: The dtype is not one of `DTYPES`.
    """
    with seeded(seed):
        model = make_model().train()
        image = torch.randn(batch, 3, image_size, image_size)
        labels = torch.randint(num_classes, (batch,))
    model_cast, inputs = cast_example(model, (image,), dtype=dtype)

    def cross_entropy(logits: Tensor) -> Tensor:
        return functional.cross_entropy(logits.float(), labels)

    return model_cast, inputs, cross_entropy


def loss_itself(loss: Tensor) -> Tensor:
    """The loss of a model that returns its loss."""
    return loss


def import_transformers() -> ModuleType:
    """Returns the package transformers, which only the transformer models need.

    Raises:
        MissingDependency: It is not installed.
    """
    try:
        with without_notices():  # torchao, which it imports where it is there, warns of libraries for GPUs
            module = importlib.import_module("transformers")
            importlib.import_module("transformers.modeling_utils")
    except ImportError as error:
        raise MissingDependency("transformers", extra="demo", needed_for="this model of lowtide.models") from error
    # Its one-time warnings would break torch.compile(fullgraph=True), and its advice is not about our models.
    module.logging.set_verbosity_error()
    return module
