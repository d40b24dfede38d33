"""A DenseNet with BatchNorm, in the layout of DenseNet-121: every layer reads the concatenation of all before it.

Source: Huang et al., "Densely connected convolutional networks" (CVPR 2017). Departures: the growth rate is an option,
and the stem is a 3x3 convolution of stride 2, so that small images keep a resolution worth measuring.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lowtide.models.common import ExampleModel, image_example

__all__ = ["DenseNet", "densenet121_like", "densenet121_like_tiny"]

BOTTLENECK = 4


class DenseLayer(nn.Module):
    """BatchNorm, 1x1 and 3x3 convolution: [batch, num_inputs, h, w] to [batch, growth, h, w]."""

    def __init__(self, *, num_inputs: int, growth: int, dropout_p: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.BatchNorm2d(num_inputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(num_inputs, BOTTLENECK * growth, kernel_size=1, bias=False),
            nn.BatchNorm2d(BOTTLENECK * growth),
            nn.ReLU(inplace=True),
            nn.Conv2d(BOTTLENECK * growth, growth, kernel_size=3, padding=1, bias=False),
        )
        self.dropout = nn.Dropout(dropout_p)

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        """Returns the new features, computed from the concatenation of all before."""
        fresh: Tensor = self.dropout(self.layers(torch.cat(list(features), dim=1)))
        return fresh


class DenseBlock(nn.Module):
    """Layers of which each adds `growth` channels: [batch, num_inputs, h, w] to [batch, num_outputs, h, w]."""

    def __init__(self, *, num_inputs: int, num_layers: int, growth: int, dropout_p: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            DenseLayer(num_inputs=num_inputs + index * growth, growth=growth, dropout_p=dropout_p)
            for index in range(num_layers)
        )

    def forward(self, value: Tensor) -> Tensor:
        """Returns the input's channels and those of all layers, concatenated."""
        features = [value]
        for layer in self.layers:
            features.append(layer(features))
        return torch.cat(features, dim=1)


class DenseNet(nn.Module):
    """Maps images [batch, 3, size, size] to logits [batch, num_classes].

    Args:
        growth: Channels that each layer adds; DenseNet-121 has 32.
        layers_per_block: Number of layers in each block; DenseNet-121 has 6, 12, 24, 16.
        num_classes: Number of logits.
        dropout_p: Probability of dropping an element after each layer.
    """

    def __init__(
        self, *, growth: int, layers_per_block: Sequence[int], num_classes: int, dropout_p: float = 0.0
    ) -> None:
        super().__init__()
        width = 2 * growth
        modules: list[nn.Module] = [
            nn.Conv2d(3, width, kernel_size=3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
        ]
        for index, num_layers in enumerate(layers_per_block):
            if index:  # a transition: half the channels, half the resolution
                modules += [nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
                modules += [nn.Conv2d(width, width // 2, kernel_size=1, bias=False), nn.AvgPool2d(2)]
                width //= 2
            modules.append(DenseBlock(num_inputs=width, num_layers=num_layers, growth=growth, dropout_p=dropout_p))
            width += num_layers * growth
        self.features = nn.Sequential(*modules, nn.BatchNorm2d(width), nn.ReLU(inplace=True))
        self.classifier = nn.Linear(width, num_classes)

    def forward(self, image: Tensor) -> Tensor:
        """Returns the logits [batch, num_classes] of `image`."""
        logits: Tensor = self.classifier(self.features(image).mean(dim=(2, 3)))
        return logits


def densenet121_like(
    *,
    growth: int = 12,
    layers_per_block: Sequence[int] = (6, 12, 24, 16),
    batch: int = 4,
    image_size: int = 96,
    num_classes: int = 100,
    dropout_p: float = 0.0,
    dtype: str = "float32",
    seed: int = 0,
) -> ExampleModel:
    """Builds a DenseNet-121 of three eighths of its growth rate.

    Args:
        growth: Channels that each layer adds (32 in DenseNet-121).
        layers_per_block: Number of layers in each block.
        batch: Images per step.
        image_size: Height and width in pixels, a multiple of 16.
        num_classes: Number of classes.
        dropout_p: Probability of dropping an element after each layer.
        dtype: Type of weights and images, a name in `lowtide.models.DTYPES`.
        seed: Seed of weights, images and labels.

    Returns:
        The model in training mode, ``(image,)``, and the cross entropy against fixed labels.
    """
    return image_example(
        lambda: DenseNet(
            growth=growth, layers_per_block=layers_per_block, num_classes=num_classes, dropout_p=dropout_p
        ),
        batch=batch,
        image_size=image_size,
        num_classes=num_classes,
        dtype=dtype,
        seed=seed,
    )


def densenet121_like_tiny(*, dropout_p: float = 0.0, dtype: str = "float32", seed: int = 0) -> ExampleModel:
    """Builds a DenseNet of two blocks for unit tests. Options as in `densenet121_like`."""
    return densenet121_like(
        growth=4,
        layers_per_block=(2, 3),
        batch=2,
        image_size=32,
        num_classes=10,
        dropout_p=dropout_p,
        dtype=dtype,
        seed=seed,
    )
