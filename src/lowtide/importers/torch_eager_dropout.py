"""Dropout, and what else AOTAutograd would trace through a decomposition, as eager PyTorch computes it on the CPU.

AOTAutograd traces ``aten.dropout`` through a decomposition into ``native_dropout``, whose rounding differs from what
eager runs on the CPU (``x * (bernoulli(1 - p) / (1 - p))``, gradient ``g * noise``), and traces ``bernoulli_`` as an op
that fills memory in another order where a tensor is not contiguous. So a compiled model would not be equal to the bit.
While :func:`eager_dropout` is active, dropout is traced as ops of our own, with the same random numbers in the same
places and the same rounding. Resizing an image and a few losses and activations have decompositions of the same kind,
which round differently or lose the sign of a zero: they are traced as the kernels that eager runs.

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
"""Ops that are traced as a function of ours."""

_KERNELS = (
    "_upsample_bicubic2d_aa.vec",
    "_upsample_bilinear2d_aa.vec",
    "_upsample_lanczos2d_aa.vec",
    *(f"_upsample_nearest_exact{n}d.{overload}" for n in (1, 2, 3) for overload in ("default", "vec")),
    *(f"upsample_nearest{n}d.{overload}" for n in (1, 2, 3) for overload in ("default", "vec")),
    "upsample_bicubic2d.default",
    "upsample_bicubic2d.vec",
    "upsample_bilinear2d.default",
    "upsample_bilinear2d.vec",
    "upsample_linear1d.vec",
    "upsample_trilinear3d.vec",
    "hardshrink.default",
    "softshrink.default",
    "multi_margin_loss.default",
    "multilabel_margin_loss_forward.default",
    "matmul.default",
)
"""Ops that are traced as the kernel that eager runs; one that this version of torch lacks is passed over."""

_KEYS = (torch._C.DispatchKey.CompositeImplicitAutograd, torch._C.DispatchKey.Autograd)


@contextmanager
def eager_dropout() -> Iterator[None]:
    """Trace dropout and its like as eager computes them, for as long as the context lasts."""
    kernels = [op for name in _KERNELS if (op := _find_op(name)) is not None]
    previous = {op: dict(op.py_kernels) for op in (*_TRACED_AS, *kernels)}
    try:
        for op, traced_as in _TRACED_AS.items():
            op.py_kernels.update(dict.fromkeys(_KEYS, traced_as))
            op._dispatch_cache.clear()
        for op in kernels:
            for key in _KEYS:
                op.py_kernels.pop(key, None)
            op._dispatch_cache.clear()
        yield
    finally:
        for op, python_kernels in previous.items():
            op.py_kernels.clear()
            op.py_kernels.update(python_kernels)
            op._dispatch_cache.clear()


def _find_op(name: str) -> Any:
    packet, overload = name.split(".")
    return getattr(getattr(torch.ops.aten, packet, None), overload, None)
