"""Training step by step: what the recorder records, for models with a fixed graph and for those with another each step.

program = training_program("tree_lstm")
program.step(0)                                     # once outside: optimizer state comes to be
trace = record(lambda: program.step(1))
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lowtide.errors import InputError
from lowtide.models.common import ExampleModel

__all__ = ["TrainingProgram", "program_of_example", "training_program"]

_LEARNING_RATE = 0.01
_MOMENTUM = 0.9
_HELPERS = frozenset({"cast_example", "program_of_example", "training_program"})
"""Functions of `lowtide.models` that build no model."""


@dataclass(frozen=True)
class TrainingProgram:
    """A model that can be trained step by step.

    Attributes:
        model: In training mode.
        loss_of_step: Forward of one step; its seed decides what the step draws: batch, tree, path, dropout.
    """

    model: nn.Module
    loss_of_step: Callable[[int], Tensor]

    def __post_init__(self) -> None:
        optimizer = torch.optim.SGD(self.model.parameters(), lr=_LEARNING_RATE, momentum=_MOMENTUM)
        object.__setattr__(self, "_optimizer", optimizer)

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """SGD with momentum."""
        optimizer: torch.optim.Optimizer = self._optimizer  # type: ignore[attr-defined]  # set above: frozen
        return optimizer

    def step(self, seed: int) -> None:
        """Forward, backward and optimizer; the gradients stay until the next step.

        Args:
            seed: Seeds torch's generator, too.
        """
        torch.manual_seed(seed)
        self.optimizer.zero_grad(set_to_none=True)
        self.loss_of_step(seed).backward()  # type: ignore[no-untyped-call]  # torch's
        self.optimizer.step()


def program_of_example(example: ExampleModel) -> TrainingProgram:
    """The training of a model with fixed inputs."""
    model, inputs, loss_function = example
    return TrainingProgram(model=model, loss_of_step=lambda _: loss_function(model(*inputs)))


def training_program(name: str) -> TrainingProgram:
    """Build one of `lowtide.models` by name, ready to be trained.

    Args:
        name: Of a function in `lowtide.models`: ``"unet"``, ``"tree_lstm"``, ``"gpt2_tiny"``, ...

    Raises:
        InputError: There is no such model.
    """
    models = importlib.import_module("lowtide.models")
    is_builder = name in models.__all__ and name.islower() and name not in _HELPERS
    built = getattr(models, name)() if is_builder else None
    if isinstance(built, TrainingProgram):
        return built
    if isinstance(built, tuple) and len(built) == 3:
        return program_of_example(built)
    raise InputError(f"there is no model {name!r} in lowtide.models")
