"""A binary Tree-LSTM over another random tree each step: what no graph captured ahead can hold.

Source: Tai, Socher and Manning, "Improved semantic representations from tree-structured long short-term memory
networks" (ACL 2015), the binary Tree-LSTM. Departure: a batch shares one tree, so that nodes are worth their memory.
"""

from __future__ import annotations

from random import Random

import torch
from torch import Tensor, nn
from torch.nn import functional

from lowtide.models.common import seeded
from lowtide.models.programs import TrainingProgram

__all__ = ["TreeLstm", "random_tree", "tree_lstm", "tree_lstm_tiny"]


def random_tree(rng: Random, num_leaves: int) -> list[tuple[int, int]]:
    """A random binary tree, bottom up.

    Args:
        rng: Where chance comes from.
        num_leaves: Leaves, named 0, 1, ...

    Returns:
        For each inner node, named from `num_leaves` on, its left and right child; the root comes last.
    """
    roots = list(range(num_leaves))
    merges: list[tuple[int, int]] = []
    while len(roots) > 1:
        position = rng.randrange(len(roots) - 1)
        merges.append((roots[position], roots[position + 1]))
        roots[position : position + 2] = [num_leaves + len(merges) - 1]
    return merges


class TreeLstm(nn.Module):
    """Maps token ids [num_leaves, batch] and a tree to logits [batch, num_classes] of its root.

    Args:
        vocabulary_size: Number of distinct tokens.
        width: Features of each node.
        num_classes: Number of logits.
    """

    def __init__(self, *, vocabulary_size: int, width: int, num_classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, width)
        self.leaf = nn.Linear(width, 3 * width)
        self.inner = nn.Linear(2 * width, 5 * width)
        self.head = nn.Linear(width, num_classes)

    def forward(self, tokens: Tensor, merges: list[tuple[int, int]]) -> Tensor:
        """Returns the logits of the root.

        Args:
            tokens: Token ids, one row a leaf.
            merges: The children of each inner node, as `random_tree` gives them.
        """
        states = [self._leaf_state(token) for token in self.embedding(tokens)]
        for left, right in merges:
            states.append(self._inner_state(states[left], states[right]))
        logits: Tensor = self.head(states[-1][0])
        return logits

    def _leaf_state(self, token: Tensor) -> tuple[Tensor, Tensor]:
        gate, update, output = self.leaf(token).chunk(3, dim=-1)
        cell = torch.sigmoid(gate) * torch.tanh(update)
        return torch.sigmoid(output) * torch.tanh(cell), cell

    def _inner_state(self, left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        gates = self.inner(torch.cat([left[0], right[0]], dim=-1))
        gate, forget_left, forget_right, update, output = gates.chunk(5, dim=-1)
        kept = torch.sigmoid(forget_left) * left[1] + torch.sigmoid(forget_right) * right[1]
        cell = torch.sigmoid(gate) * torch.tanh(update) + kept
        return torch.sigmoid(output) * torch.tanh(cell), cell


def tree_lstm(
    *,
    vocabulary_size: int = 1000,
    width: int = 128,
    min_leaves: int = 24,
    max_leaves: int = 48,
    batch: int = 32,
    num_classes: int = 5,
    seed: int = 0,
) -> TrainingProgram:
    """Builds a Tree-LSTM that is trained on another random tree of another size each step.

    Args:
        vocabulary_size: Number of distinct tokens.
        width: Features of each node.
        min_leaves: Fewest leaves of a tree.
        max_leaves: Most leaves of a tree.
        batch: Sequences per step, which share the tree.
        num_classes: Number of classes.
        seed: Seed of the weights.

    Returns:
        What can be trained step by step; the step's seed decides tree, tokens and labels.
    """
    with seeded(seed):
        model = TreeLstm(vocabulary_size=vocabulary_size, width=width, num_classes=num_classes).train()

    def loss(step_seed: int) -> Tensor:
        rng = Random(step_seed)
        num_leaves = rng.randint(min_leaves, max_leaves)
        generator = torch.Generator().manual_seed(step_seed)
        tokens = torch.randint(vocabulary_size, (num_leaves, batch), generator=generator)
        labels = torch.randint(num_classes, (batch,), generator=generator)
        return functional.cross_entropy(model(tokens, random_tree(rng, num_leaves)), labels)

    return TrainingProgram(model=model, loss_of_step=loss)


def tree_lstm_tiny(*, seed: int = 0) -> TrainingProgram:
    """Builds a small Tree-LSTM for unit tests."""
    return tree_lstm(vocabulary_size=20, width=8, min_leaves=3, max_leaves=6, batch=2, seed=seed)
