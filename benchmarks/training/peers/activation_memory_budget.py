"""PyTorch's own budget, ``torch._functorch.config.activation_memory_budget``, under backend aot_eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch._functorch.config as functorch_config
from torch import fx, nn
from torch._dynamo.backends.registry import lookup_backend
from torch.optim import Optimizer

from benchmarks.training.peers.setting import Setting

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
    # A backend of its own for each ratio: Dynamo would take code compiled with another ratio for the same.
    def backend(module: fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        with functorch_config.patch(activation_memory_budget=ratio, enable_autograd_cache=False):
            return lookup_backend("aot_eager")(module, example_inputs)

    def prepare(model: nn.Module, _: Optimizer) -> None:
        torch._dynamo.config.recompile_limit = 1024  # all settings share the code of nn.Module's call
        model.compile(backend=backend, fullgraph=True, dynamic=False)

    return prepare
