"""Random ops: which they are, and the generator state that a recomputation needs."""

from __future__ import annotations

import torch
from torch import fx

__all__ = ["RNG_STATE_BYTES", "is_rng", "rng_state_of"]

RNG_STATE_BYTES = 5056
"""Bytes of the CPU generator's state as a tensor."""


def is_rng(fx_node: fx.Node) -> bool:
    """Whether an op draws from a random number generator."""
    return fx_node.op == "call_function" and torch.Tag.nondeterministic_seeded in getattr(fx_node.target, "tags", ())


def rng_state_of(node_name: str) -> str:
    """Name of the value that holds the generator's state before the first execution of a random node."""
    return f"{node_name}.rng_state"
