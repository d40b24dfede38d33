"""An Inception net with BatchNorm, in the layout of Inception-V3: parallel branches of different cost, concatenated.

Source: Szegedy et al., "Rethinking the Inception architecture" (CVPR 2016). Departures: the number of channels is an
option, the stem is shorter so that small images keep a resolution worth measuring, and nothing auxiliary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lowtide.models.common import ExampleModel, image_example

__all__ = ["Inception", "inception_v3_like", "inception_v3_like_tiny"]

Kernel = int | tuple[int, int]


def _conv(num_inputs: int, num_outputs: int, kernel_size: Kernel, *, stride: int = 1) -> nn.Sequential:
    padding = kernel_size // 2 if isinstance(kernel_size, int) else (kernel_size[0] // 2, kernel_size[1] // 2)
    return nn.Sequential(
        nn.Conv2d(num_inputs, num_outputs, kernel_size, stride=stride, padding=padding, bias=False),
        nn.BatchNorm2d(num_outputs),
        nn.ReLU(inplace=True),
    )


class Branches(nn.Module):
    """Runs branches on one input and concatenates their channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, value: Tensor) -> Tensor:
        """Returns [batch, sum of the branches' channels, h, w]."""
        return torch.cat([branch(value) for branch in self.branches], dim=1)


def _block_a(num_inputs: int, width: int) -> tuple[nn.Module, int]:
    """1x1; 1x1 and 5x5; 1x1 and twice 3x3; pooling: the 35x35 blocks of Inception-V3."""
    block = Branches(
        _conv(num_inputs, 4 * width, 1),
        nn.Sequential(_conv(num_inputs, 3 * width, 1), _conv(3 * width, 4 * width, 5)),
        nn.Sequential(_conv(num_inputs, 4 * width, 1), _conv(4 * width, 6 * width, 3), _conv(6 * width, 6 * width, 3)),
        nn.Sequential(nn.AvgPool2d(3, stride=1, padding=1), _conv(num_inputs, 4 * width, 1)),
    )
    return block, 18 * width


def _block_b(num_inputs: int, width: int) -> tuple[nn.Module, int]:
    """Factorized 7x7 convolutions: the 17x17 blocks of Inception-V3."""
    block = Branches(
        _conv(num_inputs, 12 * width, 1),
        nn.Sequential(
            _conv(num_inputs, 8 * width, 1), _conv(8 * width, 8 * width, (1, 7)), _conv(8 * width, 12 * width, (7, 1))
        ),
        nn.Sequential(
            _conv(num_inputs, 8 * width, 1),
            _conv(8 * width, 8 * width, (7, 1)),
            _conv(8 * width, 8 * width, (1, 7)),
            _conv(8 * width, 8 * width, (7, 1)),
            _conv(8 * width, 12 * width, (1, 7)),
        ),
        nn.Sequential(nn.AvgPool2d(3, stride=1, padding=1), _conv(num_inputs, 12 * width, 1)),
    )
    return block, 48 * width


def _block_c(num_inputs: int, width: int) -> tuple[nn.Module, int]:
    """Branches that branch again: the 8x8 blocks of Inception-V3."""
    split = Branches(_conv(24 * width, 24 * width, (1, 3)), _conv(24 * width, 24 * width, (3, 1)))
    deep_split = Branches(_conv(24 * width, 24 * width, (1, 3)), _conv(24 * width, 24 * width, (3, 1)))
    block = Branches(
        _conv(num_inputs, 20 * width, 1),
        nn.Sequential(_conv(num_inputs, 24 * width, 1), split),
        nn.Sequential(_conv(num_inputs, 28 * width, 1), _conv(28 * width, 24 * width, 3), deep_split),
        nn.Sequential(nn.AvgPool2d(3, stride=1, padding=1), _conv(num_inputs, 12 * width, 1)),
    )
    return block, 128 * width


def _reduction(num_inputs: int, width: int) -> tuple[nn.Module, int]:
    """Half the resolution, by strided convolutions beside a pooling."""
    block = Branches(
        nn.Sequential(_conv(num_inputs, 8 * width, 1), _conv(8 * width, 16 * width, 3, stride=2)),
        nn.Sequential(
            _conv(num_inputs, 6 * width, 1), _conv(6 * width, 8 * width, 3), _conv(8 * width, 8 * width, 3, stride=2)
        ),
        nn.MaxPool2d(3, stride=2, padding=1),
    )
    return block, num_inputs + 24 * width


class Inception(nn.Module):
    """Maps images [batch, 3, size, size] to logits [batch, num_classes].

    Args:
        width: A sixteenth of the channels of a usual branch; Inception-V3 has 16.
        num_blocks: How many blocks of each of the three kinds; Inception-V3 has 3, 4, 2.
        num_classes: Number of logits.
        dropout_p: Probability of dropping a pooled feature before the classifier.
    """

    def __init__(self, *, width: int, num_blocks: Sequence[int], num_classes: int, dropout_p: float = 0.0) -> None:
        super().__init__()
        stem = [_conv(3, 2 * width, 3, stride=2), _conv(2 * width, 4 * width, 3), nn.MaxPool2d(3, stride=2, padding=1)]
        modules: list[nn.Module] = [*stem, _conv(4 * width, 12 * width, 3)]
        num_channels = 12 * width
        for index, (count, make) in enumerate(zip(num_blocks, (_block_a, _block_b, _block_c), strict=True)):
            for maker in ([_reduction] if index else []) + [make] * count:
                module, num_channels = maker(num_channels, width)
                modules.append(module)
        self.features = nn.Sequential(*modules)
        self.dropout = nn.Dropout(dropout_p)
        self.classifier = nn.Linear(num_channels, num_classes)

    def forward(self, image: Tensor) -> Tensor:
        """Returns the logits [batch, num_classes] of `image`."""
        logits: Tensor = self.classifier(self.dropout(self.features(image).mean(dim=(2, 3))))
        return logits


def inception_v3_like(
    *,
    width: int = 4,
    num_blocks: Sequence[int] = (3, 4, 2),
    batch: int = 8,
    image_size: int = 112,
    num_classes: int = 100,
    dropout_p: float = 0.5,
    dtype: str = "float32",
    seed: int = 0,
) -> ExampleModel:
    """Builds an Inception-V3 of a quarter of its width.

    Args:
        width: A sixteenth of the channels of a usual branch (16 in Inception-V3).
        num_blocks: How many blocks of each of the three kinds.
        batch: Images per step.
        image_size: Height and width in pixels.
        num_classes: Number of classes.
        dropout_p: Probability of dropping a pooled feature before the classifier.
        dtype: Type of weights and images, a name in `lowtide.models.DTYPES`.
        seed: Seed of weights, images and labels.

    Returns:
        The model in training mode, ``(image,)``, and the cross entropy against fixed labels.
    """
    return image_example(
        lambda: Inception(width=width, num_blocks=num_blocks, num_classes=num_classes, dropout_p=dropout_p),
        batch=batch,
        image_size=image_size,
        num_classes=num_classes,
        dtype=dtype,
        seed=seed,
    )


def inception_v3_like_tiny(*, dropout_p: float = 0.0, dtype: str = "float32", seed: int = 0) -> ExampleModel:
    """Builds an Inception net of one block of each kind for unit tests. Options as in `inception_v3_like`."""
    return inception_v3_like(
        width=1,
        num_blocks=(1, 1, 1),
        batch=2,
        image_size=48,
        num_classes=10,
        dropout_p=dropout_p,
        dtype=dtype,
        seed=seed,
    )
