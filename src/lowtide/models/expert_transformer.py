"""Transformer blocks with a mixture of experts: which tokens an expert gets depends on the data, and so do all shapes.

Source: Shazeer et al., "Outrageously large neural networks: the sparsely-gated mixture-of-experts layer" (ICLR 2017),
top-2 routing. Departures: no noise, no balancing loss and no capacity, so no token is dropped.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from lowtide.models.common import seeded
from lowtide.models.programs import TrainingProgram

__all__ = ["ExpertLayer", "MixtureTransformer", "mixture_of_experts", "mixture_of_experts_tiny"]


class ExpertLayer(nn.Module):
    """Sends each token to its best experts: [tokens, width] to [tokens, width].

    Args:
        width: Features per token.
        num_experts: Number of experts, each a perceptron with one hidden layer of ``4 * width``.
        num_chosen: How many experts a token is sent to.
    """

    def __init__(self, *, width: int, num_experts: int, num_chosen: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, num_experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(num_experts)
        )
        self.num_chosen = num_chosen

    def forward(self, tokens: Tensor) -> Tensor:
        """Returns the experts' outputs, weighted by the router and added up."""
        weights, chosen = self.router(tokens).softmax(dim=-1).topk(self.num_chosen, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        total = torch.zeros_like(tokens)
        for index, expert in enumerate(self.experts):
            rows, ranks = torch.where(chosen == index)
            if rows.numel() == 0:
                continue
            share = expert(tokens[rows]) * weights[rows, ranks].unsqueeze(-1)
            total.index_add_(0, rows, share)
        return total


class MixtureTransformer(nn.Module):
    """Maps token ids [batch, length] to logits [batch, length, vocabulary_size].

    Args:
        vocabulary_size: Number of distinct tokens.
        width: Features per token.
        depth: Number of blocks of attention and experts.
        num_heads: Attention heads; divides `width`.
        num_experts: Experts per block.
    """

    def __init__(self, *, vocabulary_size: int, width: int, depth: int, num_heads: int, num_experts: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, width)
        self.attention_norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.projections = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(depth))
        self.expert_norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.experts = nn.ModuleList(
            ExpertLayer(width=width, num_experts=num_experts, num_chosen=2) for _ in range(depth)
        )
        self.head = nn.Linear(width, vocabulary_size)
        self.num_heads = num_heads

    def forward(self, tokens: Tensor) -> Tensor:
        """Returns the logits of each token."""
        value = self.embedding(tokens)
        blocks = zip(self.attention_norms, self.projections, self.expert_norms, self.experts, strict=True)
        for attention_norm, projection, expert_norm, experts in blocks:
            value = value + self._attend(projection(attention_norm(value)))
            routed = experts(expert_norm(value).flatten(0, 1))
            value = value + routed.view_as(value)
        logits: Tensor = self.head(value)
        return logits

    def _attend(self, projected: Tensor) -> Tensor:
        batch, length, _ = projected.shape
        heads = projected.view(batch, length, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
        return attended.transpose(1, 2).reshape(batch, length, -1)


def mixture_of_experts(
    *,
    vocabulary_size: int = 1000,
    width: int = 128,
    depth: int = 4,
    num_heads: int = 4,
    num_experts: int = 8,
    batch: int = 8,
    sequence_length: int = 96,
    seed: int = 0,
) -> TrainingProgram:
    """Builds a transformer of four blocks with eight experts each.

    Args:
        vocabulary_size: Number of distinct tokens.
        width: Features per token.
        depth: Number of blocks.
        num_heads: Attention heads.
        num_experts: Experts per block.
        batch: Sequences per step.
        sequence_length: Tokens per sequence.
        seed: Seed of the weights.

    Returns:
        What can be trained step by step; the step's seed decides the tokens, and with them the routing.
    """
    with seeded(seed):
        model = MixtureTransformer(
            vocabulary_size=vocabulary_size,
            width=width,
            depth=depth,
            num_heads=num_heads,
            num_experts=num_experts,
        ).train()

    def loss(step_seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(step_seed)
        tokens = torch.randint(vocabulary_size, (batch, sequence_length), generator=generator)
        logits = model(tokens)
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())

    return TrainingProgram(model=model, loss_of_step=loss)


def mixture_of_experts_tiny(*, seed: int = 0) -> TrainingProgram:
    """Builds a transformer of two blocks with three experts each for unit tests."""
    return mixture_of_experts(
        vocabulary_size=30, width=16, depth=2, num_heads=2, num_experts=3, batch=2, sequence_length=8, seed=seed
    )
