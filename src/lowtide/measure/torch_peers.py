"""What PyTorch itself offers against memory, as ``TrainingRun.prepare`` functions.

- `checkpoint_blocks`: ``torch.utils.checkpoint`` around every block, as tutorials recommend. It takes no budget, and
  forward runs twice, so BatchNorm's running statistics are counted twice.
- `limit_saved_activations`: ``torch._functorch.config.activation_memory_budget``. It is a ratio of saved bytes, not a
  peak; a smaller ratio may give a larger peak.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn
from torch.utils.checkpoint import checkpoint

from lowtide.errors import InputError

__all__ = ["blocks_of", "checkpoint_blocks", "checkpointed", "limit_saved_activations", "require_blocks"]


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The blocks of which a model is made, such as the layers of a transformer or the levels of a U-Net.

    They are the innermost elements of ``ModuleList`` and ``Sequential`` that have modules of their own.
    """
    candidates = {
        id(element): element
        for module in model.modules()
        if isinstance(module, nn.ModuleList | nn.Sequential)
        for element in module
        if any(True for _ in element.children())
    }
    return [
        block
        for block in candidates.values()
        if not isinstance(block, nn.ModuleList)
        and not any(id(inner) in candidates for inner in block.modules() if inner is not block)
    ]


def require_blocks(model: nn.Module) -> list[nn.Module]:
    """As ``blocks_of``, at least one.

    Raises:
        InputError: The model has no blocks.
    """
    blocks = blocks_of(model)
    if not blocks:
        raise InputError(f"{type(model).__name__} has no blocks: no ModuleList or Sequential holds modules with parts")
    return blocks


def checkpoint_blocks(model: nn.Module, *, optimizer: torch.optim.Optimizer) -> nn.Module:
    """Checkpoints every block in place.

    Args:
        model: The model.
        optimizer: Not used; every prepare function is given it.

    Returns:
        The same model.

    Raises:
        InputError: The model has no blocks.
    """
    del optimizer
    for block in require_blocks(model):
        block.forward = checkpointed(block.forward)
    return model


def limit_saved_activations(
    model: nn.Module, *, optimizer: torch.optim.Optimizer, ratio: float, backend: str = "aot_eager"
) -> nn.Module:
    """Compiles in place such that at most a share of the activations is saved for backward.

    Args:
        model: The model.
        optimizer: Not used.
        ratio: From 0 (save as little as it can) to 1 (save what backward reads).
        backend: ``"aot_eager"`` or ``"inductor"``.

    Returns:
        The same model.
    """
    del optimizer
    from torch._dynamo.backends.registry import lookup_backend
    from torch._functorch import config

    # A backend of its own for each call: Dynamo would take code compiled with another ratio for the same.
    def limited(module: fx.GraphModule, example_inputs: list[torch.Tensor]) -> Any:
        # Where it compiles, not where this is called: Dynamo calls it with the first step.
        with config.patch(activation_memory_budget=ratio, enable_autograd_cache=False):
            return lookup_backend(backend)(module, example_inputs)

    model.compile(backend=limited, fullgraph=True, dynamic=False)
    return model


def checkpointed(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A forward function under ``torch.utils.checkpoint``, without reentry and with the state of random numbers."""

    def run(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=True, **kwargs)

    return run
