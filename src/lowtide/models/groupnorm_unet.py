"""A U-Net with GroupNorm: long skip connections, the textbook case of activations that wait for their use.

    image ─▶ block ──────────────────── skip ────────────────────▶ concat ─▶ block ─▶ 1x1 convolution
               └▶ halve ─▶ block ────── skip ──────▶ concat ─▶ block ─▶ double ┘
                             └▶ halve ─▶ block ─▶ double ┘                          (depth = 2)

Source: Ronneberger et al., "U-Net" (MICCAI 2015). Departures: padded convolutions, GroupNorm in place of no
normalisation, SiLU, optional dropout after each block.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from lowtide.models.common import ExampleModel, cast_example, seeded

__all__ = ["UNet", "unet", "unet_tiny"]

NUM_GROUPS = 4


def _block(num_inputs: int, num_outputs: int, *, dropout_p: float) -> nn.Sequential:
    layers: list[nn.Module] = []
    for num_channels in (num_inputs, num_outputs):
        layers += [
            nn.Conv2d(num_channels, num_outputs, kernel_size=3, padding=1, bias=False),
            nn.GroupNorm(NUM_GROUPS, num_outputs),
            nn.SiLU(),
        ]
    if dropout_p > 0:
        layers.append(nn.Dropout(dropout_p))
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Maps images [batch, 3, size, size] to images of the same shape.

    Args:
        width: Channels of the first block; each level below has twice as many.
        depth: Number of times the resolution is halved.
        dropout_p: Probability of dropping an element after each block.
    """

    def __init__(self, *, width: int, depth: int, dropout_p: float = 0.0) -> None:
        super().__init__()
        channels = [width * 2**level for level in range(depth + 1)]
        self.down = nn.ModuleList(
            _block(num_inputs, num_outputs, dropout_p=dropout_p)
            for num_inputs, num_outputs in zip([3, *channels[:-2]], channels[:-1], strict=True)
        )
        self.bottom = _block(channels[-2], channels[-1], dropout_p=dropout_p)
        self.upsample = nn.ModuleList(
            nn.ConvTranspose2d(channels[level + 1], channels[level], kernel_size=2, stride=2)
            for level in reversed(range(depth))
        )
        self.up = nn.ModuleList(
            _block(2 * channels[level], channels[level], dropout_p=dropout_p) for level in reversed(range(depth))
        )
        self.head = nn.Conv2d(width, 3, kernel_size=1)

    def forward(self, image: Tensor) -> Tensor:
        """Returns the image that the net makes of `image`, in the same shape."""
        skips = []
        value = image
        for block in self.down:
            value = block(value)
            skips.append(value)
            value = functional.max_pool2d(value, 2)
        value = self.bottom(value)
        for upsample, block in zip(self.upsample, self.up, strict=True):
            value = block(torch.cat([skips.pop(), upsample(value)], dim=1))
        output: Tensor = self.head(value)
        return output


def unet(
    *,
    width: int = 16,
    depth: int = 3,
    batch: int = 2,
    image_size: int = 136,
    dropout_p: float = 0.0,
    dtype: str = "float32",
    seed: int = 0,
) -> ExampleModel:
    """Builds a U-Net whose training step peaks at about 70 MB of activations by default.

    Args:
        width: Channels of the first block, a multiple of 4 (GroupNorm has 4 groups).
        depth: Number of halvings of the resolution.
        batch: Images per step.
        image_size: Height and width in pixels, a multiple of ``2 ** depth``.
        dropout_p: Probability of dropping an element after each block.
        dtype: Type of weights and images, a name in `lowtide.models.DTYPES`.
        seed: Seed of weights, images and targets.

    Returns:
        The model in training mode, ``(image,)``, and the mean squared distance to fixed target images.
    """
    with seeded(seed):
        model = UNet(width=width, depth=depth, dropout_p=dropout_p).train()
        image = torch.randn(batch, 3, image_size, image_size)
        target = torch.randn(batch, 3, image_size, image_size)
    model_cast, inputs = cast_example(model, (image,), dtype=dtype)

    def mean_squared_distance(output: Tensor) -> Tensor:
        return functional.mse_loss(output.float(), target)

    return model_cast, inputs, mean_squared_distance


def unet_tiny(*, dropout_p: float = 0.0, dtype: str = "float32", seed: int = 0) -> ExampleModel:
    """Builds a U-Net for unit tests: a training step of some hundredths of a second. Options as in `unet`."""
    return unet(width=8, depth=2, batch=1, image_size=32, dropout_p=dropout_p, dtype=dtype, seed=seed)
