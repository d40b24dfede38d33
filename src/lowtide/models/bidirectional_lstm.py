"""A bidirectional LSTM that tags tokens: `torch.nn.LSTM`, as one opaque op per direction or as ordinary ops.

Source: Graves and Schmidhuber, "Framewise phoneme classification with bidirectional LSTM" (2005). The opaque op keeps a
workspace of its own between forward and backward, so nothing inside it can be recomputed; decomposed, every gate of
every time step is an op.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

from lowtide.models.common import ExampleModel, cast_example, seeded

__all__ = ["BiLstm", "bilstm", "bilstm_decomposed", "bilstm_decomposed_tiny", "bilstm_tiny"]


class BiLstm(nn.Module):
    """Maps token ids [length, batch] to logits [length, batch, num_tags].

    Args:
        vocabulary_size: Number of distinct tokens.
        width: Features per token and direction.
        num_layers: Layers, each of both directions.
        num_tags: Number of logits per token.
        dropout_p: Probability of dropping a feature between layers.
        decomposed: Whether torch computes the layers by ordinary ops instead of oneDNN's.
    """

    def __init__(
        self,
        *,
        vocabulary_size: int,
        width: int,
        num_layers: int,
        num_tags: int,
        dropout_p: float,
        decomposed: bool,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, width)
        self.layers = nn.LSTM(
            width, width, num_layers=num_layers, bidirectional=True, dropout=dropout_p if num_layers > 1 else 0.0
        )
        self.head = nn.Linear(2 * width, num_tags)
        self.decomposed = decomposed

    def forward(self, tokens: Tensor) -> Tensor:
        """Returns the logits of each token."""
        embedded = self.embedding(tokens)
        if self.decomposed:
            with _without_onednn():
                features, _ = self.layers(embedded)
        else:
            features, _ = self.layers(embedded)
        logits: Tensor = self.head(features)
        return logits


@contextmanager
def _without_onednn() -> Iterator[None]:
    """The switch `torch.backends.mkldnn.flags` would also set TF32, and warn of that where there is none."""
    was_enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)  # noqa: FBT003  (torch takes it by position)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(was_enabled)


def bilstm(
    *,
    vocabulary_size: int = 1000,
    width: int = 128,
    num_layers: int = 2,
    sequence_length: int = 48,
    batch: int = 32,
    num_tags: int = 20,
    dropout_p: float = 0.0,
    decomposed: bool = False,
    dtype: str = "float32",
    seed: int = 0,
) -> ExampleModel:
    """Builds a bidirectional LSTM of two layers.

    Args:
        vocabulary_size: Number of distinct tokens.
        width: Features per token and direction.
        num_layers: Layers, each of both directions.
        sequence_length: Tokens per sequence.
        batch: Sequences per step.
        num_tags: Number of classes per token.
        dropout_p: Probability of dropping a feature between layers.
        decomposed: Whether torch computes the layers by ordinary ops instead of oneDNN's.
        dtype: Type of the weights, a name in `lowtide.models.DTYPES`.
        seed: Seed of weights, tokens and tags.

    Returns:
        The model in training mode, ``(tokens,)``, and the cross entropy against fixed tags.
    """
    with seeded(seed):
        model = BiLstm(
            vocabulary_size=vocabulary_size,
            width=width,
            num_layers=num_layers,
            num_tags=num_tags,
            dropout_p=dropout_p,
            decomposed=decomposed,
        ).train()
        tokens = torch.randint(vocabulary_size, (sequence_length, batch))
        tags = torch.randint(num_tags, (sequence_length * batch,))
    model_cast, inputs = cast_example(model, (tokens,), dtype=dtype)

    def cross_entropy(logits: Tensor) -> Tensor:
        return functional.cross_entropy(logits.float().flatten(0, 1), tags)

    return model_cast, inputs, cross_entropy


def bilstm_decomposed() -> ExampleModel:
    """Builds the default `bilstm` of ordinary ops."""
    return bilstm(decomposed=True)


def bilstm_tiny(
    *, dropout_p: float = 0.0, decomposed: bool = False, dtype: str = "float32", seed: int = 0
) -> ExampleModel:
    """Builds a small bidirectional LSTM for unit tests. Options as in `bilstm`."""
    return bilstm(
        vocabulary_size=50,
        width=8,
        num_layers=2,
        sequence_length=6,
        batch=3,
        num_tags=5,
        dropout_p=dropout_p,
        decomposed=decomposed,
        dtype=dtype,
        seed=seed,
    )


def bilstm_decomposed_tiny() -> ExampleModel:
    """Builds the `bilstm_tiny` of ordinary ops."""
    return bilstm_tiny(decomposed=True)
