"""GPT-2 as Hugging Face transformers writes it, with random weights: residual stream, dropout, causal attention.

Source: Radford et al., "Language models are unsupervised multitask learners" (2019), through
`transformers.GPT2LMHeadModel`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lowtide.models.common import ExampleModel, cast_example, import_transformers, loss_itself, seeded

__all__ = ["CausalLanguageModel", "gpt2", "gpt2_eager_attention", "gpt2_tiny"]


class CausalLanguageModel(nn.Module):
    """Maps token ids [batch, length] to the loss of predicting each token from those before it (a scalar).

    Args:
        model: A causal language model of transformers, which takes `input_ids` and `labels`.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor) -> Tensor:
        """Returns the mean cross entropy of the tokens, a scalar."""
        loss: Tensor = self.model(input_ids=input_ids, labels=input_ids, use_cache=False).loss
        return loss


def gpt2(
    *,
    width: int = 256,
    depth: int = 8,
    num_heads: int = 8,
    batch: int = 4,
    sequence_length: int = 192,
    vocabulary_size: int = 6144,
    dropout_p: float = 0.1,
    attention: str = "sdpa",
    dtype: str = "float32",
    seed: int = 0,
) -> ExampleModel:
    """Builds a GPT-2 whose training step peaks at about 350 MB by default.

    Args:
        width: Features per token.
        depth: Number of transformer blocks.
        num_heads: Attention heads; divides `width`.
        batch: Sequences per step.
        sequence_length: Tokens per sequence.
        vocabulary_size: Number of distinct tokens.
        dropout_p: Probability of dropping an element, in embedding, attention and residual alike.
        attention: ``"sdpa"`` (torch's scaled_dot_product_attention) or ``"eager"`` (matmul, softmax, matmul).
        dtype: Type of the weights, a name in `lowtide.models.DTYPES`.
        seed: Seed of weights and tokens.

    Returns:
        The model in training mode, ``(input_ids,)``, and the identity: the model returns its loss.

    Raises:
        MissingDependency: The package transformers is not installed.
    """
    transformers = import_transformers()
    config = transformers.GPT2Config(
        vocab_size=vocabulary_size,
        n_positions=sequence_length,
        n_embd=width,
        n_layer=depth,
        n_head=num_heads,
        resid_pdrop=dropout_p,
        embd_pdrop=dropout_p,
        attn_pdrop=dropout_p,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
        attn_implementation=attention,
    )
    with seeded(seed):
        language_model = transformers.GPT2LMHeadModel(config)
        # Left at None, transformers warns at the first step; Dynamo cannot trace the warning in a whole graph.
        language_model.loss_type = "ForCausalLM"
        model = CausalLanguageModel(language_model).train()
        input_ids = torch.randint(vocabulary_size, (batch, sequence_length))
    model_cast, inputs = cast_example(model, (input_ids,), dtype=dtype)
    return model_cast, inputs, loss_itself


def gpt2_eager_attention() -> ExampleModel:
    """Builds the default `gpt2` with attention written out as matmul, softmax, matmul."""
    return gpt2(attention="eager")


def gpt2_tiny(
    *, depth: int = 2, dropout_p: float = 0.1, attention: str = "sdpa", dtype: str = "float32", seed: int = 0
) -> ExampleModel:
    """Builds a GPT-2 of two blocks for unit tests. Options as in `gpt2`."""
    return gpt2(
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
