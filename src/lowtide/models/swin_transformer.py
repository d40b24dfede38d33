"""Swin as Hugging Face transformers writes it, with random weights: shifted windows (rolls, many views) and drop path.

Drop path leaves out whole residual branches of single samples at random, so a recomputation must draw the
same numbers.

Source: Liu et al., "Swin transformer" (ICCV 2021), through `transformers.SwinForImageClassification`.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from lowtide.models.common import ExampleModel, image_example, import_transformers

__all__ = ["ImageClassifier", "swin", "swin_tiny"]


class ImageClassifier(nn.Module):
    """Maps images [batch, 3, size, size] to logits [batch, num_classes].

    Args:
        model: An image classifier of transformers, which takes `pixel_values`.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: Tensor) -> Tensor:
        """Returns the logits [batch, num_classes] of `image`."""
        logits: Tensor = self.model(pixel_values=image).logits
        return logits


def swin(
    *,
    width: int = 48,
    blocks_per_stage: Sequence[int] = (2, 2, 4),
    heads_per_stage: Sequence[int] = (3, 6, 12),
    window_size: int = 7,
    batch: int = 4,
    image_size: int = 112,
    num_classes: int = 100,
    dropout_p: float = 0.0,
    drop_path_p: float = 0.2,
    dtype: str = "float32",
    seed: int = 0,
) -> ExampleModel:
    """Builds a Swin transformer with drop path.

    Args:
        width: Features per patch in the first stage; doubles with each stage.
        blocks_per_stage: Number of blocks in each stage.
        heads_per_stage: Attention heads in each stage.
        window_size: Patches along one side of an attention window.
        batch: Images per step.
        image_size: Height and width in pixels.
        num_classes: Number of classes.
        dropout_p: Probability of dropping an element, in the hidden states and in attention.
        drop_path_p: Probability of leaving out the last block's branch for a sample; smaller for earlier
            blocks.
        dtype: Type of weights and images, a name in `lowtide.models.DTYPES`.
        seed: Seed of weights, images and labels.

    Returns:
        The model in training mode, ``(image,)``, and the cross entropy against fixed labels.

    Raises:
        MissingDependency: The package transformers is not installed.
    """
    transformers = import_transformers()
    config = transformers.SwinConfig(
        image_size=image_size,
        patch_size=4,
        embed_dim=width,
        depths=list(blocks_per_stage),
        num_heads=list(heads_per_stage),
        window_size=window_size,
        hidden_dropout_prob=dropout_p,
        attention_probs_dropout_prob=dropout_p,
        drop_path_rate=drop_path_p,
        num_labels=num_classes,
    )
    return image_example(
        lambda: ImageClassifier(transformers.SwinForImageClassification(config)),
        batch=batch,
        image_size=image_size,
        num_classes=num_classes,
        dtype=dtype,
        seed=seed,
    )


def swin_tiny(
    *, dropout_p: float = 0.0, drop_path_p: float = 0.3, dtype: str = "float32", seed: int = 0
) -> ExampleModel:
    """Builds a Swin of four blocks for unit tests. Options as in `swin`."""
    return swin(
        width=16,
        blocks_per_stage=(2, 2),
        heads_per_stage=(2, 4),
        window_size=4,
        batch=2,
        image_size=32,
        num_classes=10,
        dropout_p=dropout_p,
        drop_path_p=drop_path_p,
        dtype=dtype,
        seed=seed,
    )
