"""Recurrent layers as ordinary ops: what oneDNN's LSTM keeps between forward and backward cannot be recomputed.

``torch.nn.GRU`` and ``torch.nn.RNN`` consist of ordinary ops on the CPU anyhow. ``torch.nn.LSTM`` runs as one opaque op
per layer and direction, whose outputs and workspace stay resident until its backward; with oneDNN off while the layer
is called, every gate of every time step is an op. The sums are then added up in another order: results differ from
oneDNN's in the last bits (by 1e-6 of the largest), so this is for the user to choose. They are equal to the bit to
plain PyTorch's with oneDNN off.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

__all__ = ["decomposed_lstm"]


@contextmanager
def decomposed_lstm() -> Iterator[None]:
    """``torch.nn.LSTM`` runs as ordinary ops in the block, in every thread."""
    functions: Any = torch._VF  # what torch.nn.LSTM calls
    inner = functions.lstm

    @functools.wraps(inner)
    def lstm(*args: Any, **kwargs: Any) -> Any:
        with _without_onednn():
            return inner(*args, **kwargs)

    functions.lstm = lstm
    try:
        yield
    finally:
        functions.lstm = inner


@contextmanager
def _without_onednn() -> Iterator[None]:
    """The switch that `torch.backends.mkldnn.flags` would also set TF32, and warn of that where there is none."""
    was_enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)  # noqa: FBT003  (torch takes it by position)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(was_enabled)
