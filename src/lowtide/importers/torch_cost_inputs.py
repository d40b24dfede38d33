"""Real tensors that an op can be timed on, made up from the metadata of fake ones.

Floating-point values lie between 0.25 and 0.75: whatever takes a logarithm, a root, a quotient or a probability stays
finite and at its usual speed. Integers are 0, an index that is in range everywhere, except where the op tells how far
its indices may go: there they are spread, so that memory is read as in a real step. The same metadata gives the same
values.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch.utils import _pytree as pytree

from lowtide.importers.torch_cost_call import OpCall

__all__ = ["make_arguments"]

_BLOCK_ELEMENTS = 65536
_SPREAD_STEP = 7919
"""Distance between neighbouring spread indices, a prime: neighbours are far apart, as words of a text are."""


def make_arguments(call: OpCall) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Make up real arguments for a call.

    Args:
        call: Its tensors are fake.

    Returns:
        Arguments and keyword arguments with real tensors of the same shapes, strides, dtypes and devices.
    """
    bound = _index_bound(call)

    def make(leaf: Any) -> Any:
        return _make_tensor(leaf, bound=bound) if isinstance(leaf, torch.Tensor) else leaf

    args, kwargs = pytree.tree_map(make, (call.args, dict(call.kwargs)))
    return args, kwargs


def _make_tensor(fake: torch.Tensor, *, bound: int) -> torch.Tensor:
    last_element = sum((size - 1) * stride for size, stride in zip(fake.shape, fake.stride(), strict=True))
    num_elements = 0 if 0 in fake.shape else last_element + 1
    flat = torch.empty(num_elements, dtype=fake.dtype, device=fake.device)
    if fake.dtype.is_floating_point or fake.dtype.is_complex or fake.dtype is torch.bool:
        _fill_repeating(flat, _random_block(fake.dtype))
    elif bound > 1:
        indices = torch.arange(num_elements, dtype=torch.int64, device=fake.device).mul_(_SPREAD_STEP)
        flat.copy_(indices.remainder_(bound))
    else:
        flat.zero_()
    return flat.as_strided(fake.shape, fake.stride())


def _fill_repeating(flat: torch.Tensor, block: torch.Tensor) -> None:
    num_whole = flat.numel() // _BLOCK_ELEMENTS
    flat[: num_whole * _BLOCK_ELEMENTS].view(num_whole, _BLOCK_ELEMENTS).copy_(block)
    flat[num_whole * _BLOCK_ELEMENTS :].copy_(block[: flat.numel() % _BLOCK_ELEMENTS])


@lru_cache(maxsize=16)
def _random_block(dtype: torch.dtype) -> torch.Tensor:
    block = torch.rand(
        _BLOCK_ELEMENTS, generator=torch.Generator("cpu").manual_seed(0), dtype=torch.float32, device="cpu"
    )
    return block > 0.5 if dtype is torch.bool else block.mul_(0.5).add_(0.25).to(dtype)


def _index_bound(call: OpCall) -> int:
    """How far the integers among a call's tensors may go (exclusive); 1 where only 0 is safe."""
    aten, args = torch.ops.aten, call.args
    packet = getattr(call.target, "overloadpacket", None)
    if packet is aten.embedding:
        return int(args[0].shape[0])
    if packet is aten.embedding_dense_backward:
        return int(args[2])
    if packet in (aten.gather, aten.index_select) and args[0].dim() > 0:
        return int(args[0].shape[args[1]])
    if packet is aten.max_pool2d_with_indices_backward:
        return int(args[1].shape[-1] * args[1].shape[-2])
    return 1
