"""What one op call of eager PyTorch reads, writes and costs, as far as its schema and its arguments tell."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.utils import _pytree as pytree

from lowtide.importers.torch_cost_call import OpCall
from lowtide.importers.torch_cost_estimate import LAUNCH_NS, estimate_duration_ns

__all__ = ["COST_MODEL", "EagerCall", "estimate_cost_ns", "has_storage", "tensors_in", "view_of"]

COST_MODEL = "bytes-flops-1"
"""Name of the cost model of recordings: bytes moved and floating-point operations, the same on every machine."""

_STATISTICS = ("running_mean", "running_var")
_TOUCH_NOTHING = frozenset({"aten.empty", "aten.empty_like", "aten.empty_strided", "aten.new_empty"}) | {
    "aten.new_empty_strided",
    "aten.empty_permuted",
}


@dataclass(frozen=True)
class EagerCall:
    """One call that reached the dispatch mode.

    Attributes:
        target: The op.
        args: Its arguments.
        kwargs: Its keyword arguments.
    """

    target: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Name of the op, e.g. ``aten.mm``."""
        return str(self.target).removesuffix(".default")

    @property
    def draws_random_numbers(self) -> bool:
        """Whether the op may draw from a random number generator."""
        return torch.Tag.nondeterministic_seeded in getattr(self.target, "tags", ())

    @property
    def is_opaque(self) -> bool:
        """Whether the op keeps a workspace of its own between forward and backward, so that it must run once only."""
        return "_rnn" in self.name or "lstm" in self.name

    def silent_writes(self) -> tuple[str, ...]:
        """Names of the arguments that the op mutates and that a recording leaves out: running statistics."""
        if "batch_norm" not in self.name or "backward" in self.name:
            return ()
        arguments = dict(self._arguments())
        is_training = arguments.get("training", "update" in self.name)
        return tuple(name for name in _STATISTICS if is_training and arguments.get(name) is not None)

    def reads(self) -> list[torch.Tensor]:
        """All tensors among the arguments, in order, without silently written ones."""
        left_out = set(self.silent_writes())
        return tensors_in([value for name, value in self._arguments() if name not in left_out])

    def writes(self) -> list[torch.Tensor]:
        """The tensors that the op mutates, as its schema says, without silently written ones."""
        written = _written_arguments(self.target)
        if not written:
            return []
        left_out = set(self.silent_writes())
        return tensors_in([value for name, value in self._arguments() if name in written and name not in left_out])

    def _arguments(self) -> Iterator[tuple[str, Any]]:
        names = _argument_names(self.target)
        for position, value in enumerate(self.args):
            yield (names[position] if position < len(names) else f"#{position}"), value
        yield from self.kwargs.items()


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """All tensors in nested lists, tuples and dicts."""
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def has_storage(tensor: torch.Tensor) -> bool:
    """Whether a tensor's bytes are one storage that can be watched: no sparse, opaque or meta tensor."""
    if tensor.layout is not torch.strided or tensor.device.type == "meta":
        return False
    return torch._C._has_storage(tensor)


def view_of(tensor: torch.Tensor) -> Hashable:
    """How a tensor looks at its storage: equal for two tensors exactly if they read the same bytes in the same way."""
    return (
        tensor.dtype,
        tuple(tensor.shape),
        tensor.stride(),
        tensor.storage_offset(),
        tensor.is_conj(),
        tensor.is_neg(),
    )


def estimate_cost_ns(call: EagerCall, result: Any) -> int:
    """Modelled duration of a call in nanoseconds; views cost nothing."""
    target = call.target
    if isinstance(target, torch._ops.OpOverload):
        if target.is_view:
            return 0
        if str(target.overloadpacket) in _TOUCH_NOTHING:
            return LAUNCH_NS
    return estimate_duration_ns(OpCall(target, call.args, call.kwargs, result))


@cache
def _argument_names(target: Callable[..., Any]) -> tuple[str, ...]:
    schema = getattr(target, "_schema", None)
    return () if schema is None else tuple(argument.name for argument in schema.arguments)


@cache
def _written_arguments(target: Callable[..., Any]) -> frozenset[str]:
    schema = getattr(target, "_schema", None)
    arguments = () if schema is None else schema.arguments
    return frozenset(
        argument.name for argument in arguments if argument.alias_info is not None and argument.alias_info.is_write
    )
