"""Durations without running anything: from bytes moved and floating-point operations.

    duration = LAUNCH_NS + max(bytes / BYTES_PER_NS, operations / OPERATIONS_PER_NS)

The constants are those of an ordinary CPU core with wide vectors. They are the same everywhere, on purpose: an estimate
is for graphs that have to come out equal on every machine. Which of two ops costs more matters, not the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

from lowtide.importers.torch_cost_call import OpCall

__all__ = ["BYTES_PER_NS", "LAUNCH_NS", "OPERATIONS_PER_NS", "RNG_STATE_NS", "estimate_duration_ns"]

LAUNCH_NS = 2_000
"""Calling any op at all, in nanoseconds."""

BYTES_PER_NS = 10
"""Memory bandwidth: 10 GB/s."""

OPERATIONS_PER_NS = 50
"""Floating-point operations: 50 GFLOP/s (a multiplication with its addition counts as two)."""

RNG_STATE_NS = 10_000
"""Saving or restoring the generator around a random op, in nanoseconds."""


def estimate_duration_ns(call: OpCall) -> int:
    """Estimate the duration of one execution.

    Args:
        call: What is executed.

    Returns:
        Whole nanoseconds, the same on every machine.
    """
    num_bytes = _num_bytes(call.argument_tensors()) + _num_bytes(call.result_tensors())
    duration_ns = LAUNCH_NS + max(num_bytes // BYTES_PER_NS, _num_operations(call) // OPERATIONS_PER_NS)
    return duration_ns + (RNG_STATE_NS if call.carries_rng_state else 0)


def _num_bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(int(tensor.numel()) * tensor.element_size() for tensor in tensors)


def _num_operations(call: OpCall) -> int:
    """Floating-point operations as torch counts them; 0 for ops that move bytes only."""
    packet = getattr(call.target, "overloadpacket", None)
    count = _ATTENTION_BY_PACKET.get(packet) or flop_registry.get(packet)
    if count is None:
        return 0
    try:
        return int(count(*call.args, **call.kwargs, out_val=call.result))
    except (TypeError, AssertionError, AttributeError, ValueError, IndexError):
        return 0  # arguments that torch's formula does not foresee


def _attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any) -> int:
    count = sdpa_flop_count(query.shape, key.shape, value.shape)  # type: ignore[no-untyped-call]  # torch's
    return int(count)


def _attention_backward(
    gradient: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any
) -> int:
    shapes = (gradient.shape, query.shape, key.shape, value.shape)
    return int(sdpa_backward_flop_count(*shapes))  # type: ignore[no-untyped-call]  # torch's


_ATTENTION_BY_PACKET: Mapping[Any, Callable[..., int]] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}
"""CPU attention, which torch's registry leaves out."""
