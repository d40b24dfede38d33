"""What is trained: small nets in the size of the prototype's, SGD with momentum, other numbers drawn each step."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from benchmarks.training.peers.checkpoint_per_block import CheckpointPerBlock
from lowtide import models
from lowtide.models.common import ExampleModel

__all__ = ["PROGRAMS", "Program", "build"]

PROGRAMS: Mapping[str, Callable[[], ExampleModel]] = {
    "gpt2 6x128": lambda: models.gpt2(
        width=128, depth=6, num_heads=4, batch=8, sequence_length=128, vocabulary_size=1024
    ),
    "resnet with batch norm": lambda: models.resnet50_like(
        width=16, blocks_per_stage=(2, 2, 3, 2), batch=8, image_size=96, num_classes=10
    ),
}


class Program:
    """A model with its optimizer, trained step by step."""

    def __init__(self, example: ExampleModel) -> None:
        self.model: nn.Module
        self.model, self._inputs, self._loss = example
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)

    def step(self, seed: int) -> None:
        """Forward, backward, optimizer."""
        torch.manual_seed(seed)
        self.optimizer.zero_grad(set_to_none=True)
        self._loss(self.model(*self._inputs)).backward()
        self.optimizer.step()

    def state(self) -> list[Tensor]:
        """Parameters, buffers, gradients and momenta, copied."""
        parameters = list(self.model.parameters())
        momenta = [state["momentum_buffer"] for state in self.optimizer.state.values()]
        gradients = [item.grad for item in parameters if item.grad is not None]
        return [item.detach().clone() for item in (*parameters, *self.model.buffers(), *gradients, *momenta)]


def build(name: str, *, is_checkpointed: bool = False) -> Program:
    """The same weights each time.

    Args:
        name: In `PROGRAMS`.
        is_checkpointed: With ``torch.utils.checkpoint`` around every block.
    """
    torch.manual_seed(0)
    program = Program(PROGRAMS[name]())
    if is_checkpointed:
        (setting,) = CheckpointPerBlock().settings()
        setting.prepare(program.model, program.optimizer)
    return program
