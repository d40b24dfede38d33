"""Dropout as eager PyTorch computes it on the CPU.

AOTAutograd traces ``aten.dropout`` through a decomposition into ``native_dropout``, whose rounding differs from what
eager runs on the CPU (``x * (bernoulli(1 - p) / (1 - p))``, gradient ``g * noise``), and traces ``bernoulli_`` as an op
that fills memory in another order where a tensor is not contiguous. So a compiled model would not be equal to the bit.
While :func:`eager_dropout` is active, dropout is traced as ops of our own, with the same random numbers in the same
places and the same rounding.

Source: ``_dropout_impl`` in ATen/native/Dropout.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

__all__ = ["eager_dropout"]

_LIBRARY = torch.library.Library("lowtide", "FRAGMENT")  # type: ignore[no-untyped-call]
_SEEDED = (torch.Tag.nondeterministic_seeded,)
_LIBRARY.define("bernoulli_like(Tensor like, float probability) -> Tensor", tags=_SEEDED)  # type: ignore[no-untyped-call]
_LIBRARY.define("dropout_noise(Tensor like, float keep_probability) -> Tensor", tags=_SEEDED)  # type: ignore[no-untyped-call]


def _bernoulli_like(like: torch.Tensor, probability: float) -> torch.Tensor:
    """Random zeros and ones in the memory layout of ``like``."""
    return torch.empty_like(like).bernoulli_(probability)


def _dropout_noise(like: torch.Tensor, keep_probability: float) -> torch.Tensor:
    """What dropout multiplies with: 0, or 1 / ``keep_probability``."""
    return torch.empty_like(like).bernoulli_(keep_probability).div_(keep_probability)


def _like(like: torch.Tensor, probability: float) -> torch.Tensor:  # noqa: ARG001 - the signature of the op
    return torch.empty_like(like)


for _name, _kernel in (("bernoulli_like", _bernoulli_like), ("dropout_noise", _dropout_noise)):
    _LIBRARY.impl(_name, _kernel, "CPU")  # type: ignore[no-untyped-call]
    _LIBRARY.impl(_name, _like, "Meta")  # type: ignore[no-untyped-call]

_SELU_ALPHA = 1.7580993408473766


def _is_identity(x: torch.Tensor, p: float, train: bool | None) -> bool:  # noqa: FBT001 - ATen's signature
    return p == 0 or not train or x.numel() == 0


def _noise(x: torch.Tensor, p: float) -> torch.Tensor:
    if p == 1:
        return torch.zeros((), dtype=x.dtype, device=x.device)
    noise: torch.Tensor = torch.ops.lowtide.dropout_noise.default(x.detach(), 1 - p)
    return noise


def _alpha_noise(x: torch.Tensor, p: float) -> tuple[torch.Tensor, torch.Tensor]:
    scale = 1.0 / math.sqrt((_SELU_ALPHA * _SELU_ALPHA * p + 1) * (1 - p))
    mask = torch.ops.lowtide.bernoulli_like.default(x.detach(), 1 - p)
    shift = mask.add(-1).mul(_SELU_ALPHA * scale).add(_SELU_ALPHA * scale * p)
    return mask.mul(scale), shift


def _dropout(input: torch.Tensor, p: float, train: bool | None) -> torch.Tensor:  # noqa: A002, FBT001
    if _is_identity(input, p, train):
        return input
    if input.device.type != "cpu":  # devices with a fused kernel run native_dropout in eager, too
        result: torch.Tensor = torch.ops.aten.native_dropout.default(input, p, train)[0]
        return result
    return input * _noise(input, p)


def _dropout_inplace(input: torch.Tensor, p: float, train: bool | None) -> torch.Tensor:  # noqa: A002, FBT001
    return input if _is_identity(input, p, train) else input.mul_(_noise(input, p))


def _alpha_dropout(input: torch.Tensor, p: float, train: bool | None) -> torch.Tensor:  # noqa: A002, FBT001
    if _is_identity(input, p, train):
        return input
    if p == 1:
        return input * _noise(input, p)
    noise, shift = _alpha_noise(input, p)
    return (input * noise).add_(shift)


def _alpha_dropout_inplace(input: torch.Tensor, p: float, train: bool | None) -> torch.Tensor:  # noqa: A002, FBT001
    if _is_identity(input, p, train):
        return input
    if p == 1:
        return input.mul_(_noise(input, p))
    noise, shift = _alpha_noise(input, p)
    return input.mul_(noise).add_(shift)


_TRACED_AS: dict[Any, Callable[..., torch.Tensor]] = {
    torch.ops.aten.dropout.default: _dropout,
    torch.ops.aten.dropout_.default: _dropout_inplace,
    torch.ops.aten.alpha_dropout.default: _alpha_dropout,
    torch.ops.aten.alpha_dropout_.default: _alpha_dropout_inplace,
}
_KEYS = (torch._C.DispatchKey.CompositeImplicitAutograd, torch._C.DispatchKey.Autograd)


@contextmanager
def eager_dropout() -> Iterator[None]:
    """Trace dropout as eager computes it, for as long as the context lasts."""
    previous = {op: dict(op.py_kernels) for op in _TRACED_AS}
    try:
        for op, traced_as in _TRACED_AS.items():
            op.py_kernels.update(dict.fromkeys(_KEYS, traced_as))
            op._dispatch_cache.clear()
        yield
    finally:
        for op, kernels in previous.items():
            op.py_kernels.clear()
            op.py_kernels.update(kernels)
            op._dispatch_cache.clear()
