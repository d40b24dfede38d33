"""A ResNet with bottleneck blocks and BatchNorm, in the layout of ResNet-50: running statistics and in-place ReLU.

Source: He et al., "Deep residual learning" (CVPR 2016). Departures: the number of channels is an option, and
the stem is a 3x3 convolution of stride 2 with max pooling, so that small images keep a resolution worth
measuring.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional

from lowtide.models.common import ExampleModel, image_example

__all__ = ["Bottleneck", "ResNet", "resnet50_like", "resnet50_like_tiny"]

EXPANSION = 4


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions around a shortcut: [batch, num_inputs, h, w] to [batch, 4 * width, h/s, w/s]."""

    def __init__(self, *, num_inputs: int, width: int, stride: int) -> None:
        super().__init__()
        num_outputs = width * EXPANSION
        self.residual = nn.Sequential(
            nn.Conv2d(num_inputs, width, kernel_size=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, kernel_size=3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, num_outputs, kernel_size=1, bias=False),
            nn.BatchNorm2d(num_outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or num_inputs != num_outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(num_inputs, num_outputs, kernel_size=1, stride=stride, bias=False),
                nn.BatchNorm2d(num_outputs),
            )

    def forward(self, value: Tensor) -> Tensor:
        """Returns the block's output; `value` itself is not changed."""
        total = self.residual(value)
        total += self.shortcut(value)
        return functional.relu(total, inplace=True)


class ResNet(nn.Module):
    """Maps images [batch, 3, size, size] to logits [batch, num_classes].

    Args:
        width: Channels inside the first stage's bottlenecks; doubles with each stage.
        blocks_per_stage: Number of bottlenecks in each stage; ResNet-50 has 3, 4, 6, 3.
        num_classes: Number of logits.
        dropout_p: Probability of dropping a pooled feature before the classifier.
    """

    def __init__(
        self, *, width: int, blocks_per_stage: Sequence[int], num_classes: int, dropout_p: float = 0.0
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, kernel_size=3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2, padding=1),
        )
        blocks: list[nn.Module] = []
        num_inputs = width
        for stage, num_blocks in enumerate(blocks_per_stage):
            stage_width = width * 2**stage
            for index in range(num_blocks):
                stride = 2 if stage > 0 and index == 0 else 1
                blocks.append(Bottleneck(num_inputs=num_inputs, width=stage_width, stride=stride))
                num_inputs = stage_width * EXPANSION
        self.blocks = nn.Sequential(*blocks)
        self.dropout = nn.Dropout(dropout_p)
        self.classifier = nn.Linear(num_inputs, num_classes)

    def forward(self, image: Tensor) -> Tensor:
        """Returns the logits [batch, num_classes] of `image`."""
        features = self.blocks(self.stem(image)).mean(dim=(2, 3))
        logits: Tensor = self.classifier(self.dropout(features))
        return logits


def resnet50_like(
    *,
    width: int = 16,
    blocks_per_stage: Sequence[int] = (3, 4, 6, 3),
    batch: int = 8,
    image_size: int = 168,
    num_classes: int = 100,
    dropout_p: float = 0.0,
    dtype: str = "float32",
    seed: int = 0,
) -> ExampleModel:
    """Builds a ResNet-50 of a quarter of its width, whose training step peaks at about 100 MB by default.

    Args:
        width: Channels inside the first stage's bottlenecks (64 in ResNet-50).
        blocks_per_stage: Number of bottlenecks in each stage.
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
        lambda: ResNet(width=width, blocks_per_stage=blocks_per_stage, num_classes=num_classes, dropout_p=dropout_p),
        batch=batch,
        image_size=image_size,
        num_classes=num_classes,
        dtype=dtype,
        seed=seed,
    )


def resnet50_like_tiny(*, dropout_p: float = 0.0, dtype: str = "float32", seed: int = 0) -> ExampleModel:
    """Builds a ResNet of four bottlenecks for unit tests. Options as in `resnet50_like`."""
    return resnet50_like(
        width=8,
        blocks_per_stage=(1, 1, 2),
        batch=2,
        image_size=48,
        num_classes=10,
        dropout_p=dropout_p,
        dtype=dtype,
        seed=seed,
    )
