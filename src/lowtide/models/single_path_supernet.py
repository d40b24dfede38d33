"""A supernet of which each step trains another single path: architecture search as dynamic as training gets.

Source: Guo et al., "Single path one-shot neural architecture search with uniform sampling" (ECCV 2020). Departures:
plain residual convolution blocks of four kernel shapes instead of ShuffleNet units, and fewer of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import torch
from torch import Tensor, nn
from torch.nn import functional

from lowtide.models.common import seeded
from lowtide.models.programs import TrainingProgram

__all__ = ["Supernet", "supernet", "supernet_tiny"]

NUM_CHOICES = 4


def _choices(num_inputs: int, num_outputs: int, stride: int) -> nn.ModuleList:
    """Kernels of 3, 5 and 7, and two separable ones of 3 in a row: four ways to the same shape."""

    def conv(channels: int, kernel_size: int, *, step: int = 1, groups: int = 1) -> nn.Conv2d:
        padding = kernel_size // 2
        return nn.Conv2d(channels, num_outputs, kernel_size, stride=step, padding=padding, groups=groups, bias=False)

    plain = [
        nn.Sequential(conv(num_inputs, size, step=stride), nn.BatchNorm2d(num_outputs), nn.ReLU(inplace=True))
        for size in (3, 5, 7)
    ]
    separable = nn.Sequential(
        conv(num_inputs, 1, step=stride),
        nn.BatchNorm2d(num_outputs),
        nn.ReLU(inplace=True),
        conv(num_outputs, 3, groups=num_outputs),
        conv(num_outputs, 3, groups=num_outputs),
        nn.BatchNorm2d(num_outputs),
        nn.ReLU(inplace=True),
    )
    return nn.ModuleList([*plain, separable])


class Supernet(nn.Module):
    """Maps images [batch, 3, size, size] and a path to logits [batch, num_classes].

    Args:
        width: Channels of the first stage; doubles with each stage.
        blocks_per_stage: Number of choice blocks in each stage.
        num_classes: Number of logits.
    """

    def __init__(self, *, width: int, blocks_per_stage: Sequence[int], num_classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        blocks: list[nn.ModuleList] = []
        channels = width
        for stage, num_blocks in enumerate(blocks_per_stage):
            for index in range(num_blocks):
                stride = 2 if index == 0 else 1
                blocks.append(_choices(channels, width * 2**stage, stride))
                channels = width * 2**stage
        self.blocks = nn.ModuleList(blocks)
        self.classifier = nn.Linear(channels, num_classes)

    def forward(self, image: Tensor, path: Sequence[int]) -> Tensor:
        """Returns the logits along one path.

        Args:
            image: Images.
            path: For each block, which of its choices is taken.
        """
        value = self.stem(image)
        for block, choice in zip(self.blocks, path, strict=True):
            result = block[choice](value)  # type: ignore[index]  # a ModuleList
            value = result + value if result.shape == value.shape else result
        logits: Tensor = self.classifier(value.mean(dim=(2, 3)))
        return logits


def supernet(
    *,
    width: int = 16,
    blocks_per_stage: Sequence[int] = (4, 4, 8, 4),
    batch: int = 8,
    image_size: int = 96,
    num_classes: int = 100,
    seed: int = 0,
) -> TrainingProgram:
    """Builds a supernet of twenty choice blocks.

    Args:
        width: Channels of the first stage.
        blocks_per_stage: Number of choice blocks in each stage.
        batch: Images per step.
        image_size: Height and width in pixels.
        num_classes: Number of classes.
        seed: Seed of the weights.

    Returns:
        What can be trained step by step; the step's seed decides path, images and labels.
    """
    with seeded(seed):
        model = Supernet(width=width, blocks_per_stage=blocks_per_stage, num_classes=num_classes).train()

    def loss(step_seed: int) -> Tensor:
        rng = Random(step_seed)
        path = [rng.randrange(NUM_CHOICES) for _ in range(sum(blocks_per_stage))]
        generator = torch.Generator().manual_seed(step_seed)
        image = torch.randn(batch, 3, image_size, image_size, generator=generator)
        labels = torch.randint(num_classes, (batch,), generator=generator)
        return functional.cross_entropy(model(image, path), labels)

    return TrainingProgram(model=model, loss_of_step=loss)


def supernet_tiny(*, seed: int = 0) -> TrainingProgram:
    """Builds a supernet of four choice blocks for unit tests."""
    return supernet(width=4, blocks_per_stage=(2, 2), batch=2, image_size=16, num_classes=5, seed=seed)
