"""BERT as Hugging Face transformers writes it, with random weights: dropout nearly everywhere, attention both ways.

Source: Devlin et al., "BERT" (NAACL 2019), through `transformers.BertForMaskedLM`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lowtide.models.common import ExampleModel, cast_example, import_transformers, loss_itself, seeded

__all__ = ["MaskedLanguageModel", "bert", "bert_tiny"]


class MaskedLanguageModel(nn.Module):
    """Maps token ids [batch, length] and labels [batch, length] to the loss of the labelled tokens (a scalar).

    Args:
        model: A masked language model of transformers, which takes `input_ids` and `labels`.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, labels: Tensor) -> Tensor:
        """Returns the mean cross entropy over the tokens whose label is not -100, a scalar."""
        loss: Tensor = self.model(input_ids=input_ids, labels=labels).loss
        return loss


def bert(
    *,
    width: int = 256,
    depth: int = 6,
    num_heads: int = 8,
    batch: int = 4,
    sequence_length: int = 128,
    vocabulary_size: int = 8192,
    dropout_p: float = 0.1,
    attention: str = "sdpa",
    dtype: str = "float32",
    seed: int = 0,
) -> ExampleModel:
    """Builds a BERT with a masked-language-model head.

    Args:
        width: Features per token.
        depth: Number of transformer blocks.
        num_heads: Attention heads; divides `width`.
        batch: Sequences per step.
        sequence_length: Tokens per sequence.
        vocabulary_size: Number of distinct tokens.
        dropout_p: Probability of dropping an element, in embedding, attention and residual alike.
        attention: ``"sdpa"`` or ``"eager"``.
        dtype: Type of the weights, a name in `lowtide.models.DTYPES`.
        seed: Seed of weights and tokens.

    Returns:
        The model in training mode, ``(input_ids, labels)``, and the identity: the model returns its loss.

    Raises:
        MissingDependency: The package transformers is not installed.
    """
    transformers = import_transformers()
    config = transformers.BertConfig(
        vocab_size=vocabulary_size,
        hidden_size=width,
        num_hidden_layers=depth,
        num_attention_heads=num_heads,
        intermediate_size=4 * width,
        max_position_embeddings=sequence_length,
        hidden_dropout_prob=dropout_p,
        attention_probs_dropout_prob=dropout_p,
        attn_implementation=attention,
    )
    with seeded(seed):
        model = MaskedLanguageModel(transformers.BertForMaskedLM(config)).train()
        labels = torch.randint(1, vocabulary_size, (batch, sequence_length))
        is_masked = torch.rand(batch, sequence_length) < 0.15
    is_masked[:, 0] = True  # a batch without any masked token would have no loss
    input_ids = labels.masked_fill(is_masked, 0)
    model_cast, inputs = cast_example(model, (input_ids, labels.masked_fill(~is_masked, -100)), dtype=dtype)
    return model_cast, inputs, loss_itself


def bert_tiny(
    *, depth: int = 2, dropout_p: float = 0.1, attention: str = "sdpa", dtype: str = "float32", seed: int = 0
) -> ExampleModel:
    """Builds a BERT of two blocks for unit tests. Options as in `bert`."""
    return bert(
        width=32,
        depth=depth,
        num_heads=2,
        batch=2,
        sequence_length=32,
        vocabulary_size=128,
        dropout_p=dropout_p,
        attention=attention,
        dtype=dtype,
        seed=seed,
    )
