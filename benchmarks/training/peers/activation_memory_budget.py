"""PyTorch's own budget, ``torch._functorch.config.activation_memory_budget``, under backend aot_eager."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.optim import Optimizer

from benchmarks.training.peers.setting import Setting
from lowtide.measure.torch_peers import limit_saved_activations

__all__ = ["ActivationMemoryBudget"]

_RATIOS = (1.0, 0.9, 0.7, 0.5, 0.3, 0.1, 0.0)


class ActivationMemoryBudget:
    name = "activation_memory_budget"
    limits = (
        "Its budget is a ratio of the saved bytes, not a peak in bytes, and a smaller ratio may give a larger peak "
        "(pytorch#197838). AOTAutograd's dropout rounds otherwise than eager's, so models with dropout are equal to "
        "the bit by luck only (p = 0.1 in float32, as here, has it); the tables say at which ratios they were not."
    )

    def settings(self) -> tuple[Setting, ...]:
        return tuple(
            Setting(peer=self.name, label=f"ratio {ratio:g}", prepare=_prepare_with(ratio)) for ratio in _RATIOS
        )


def _prepare_with(ratio: float) -> Callable[[nn.Module, Optimizer], None]:
    def prepare(model: nn.Module, optimizer: Optimizer) -> None:
        torch._dynamo.config.recompile_limit = 1024  # all settings share the code of nn.Module's call
        limit_saved_activations(model, optimizer=optimizer, ratio=ratio)

    return prepare
