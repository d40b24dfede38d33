"""One op call of an fx graph with what it is called with: what is timed, estimated and looked up.

Two calls with the same signature (op, shapes, strides, dtypes, devices, other arguments) cost the same, so each
signature is timed once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

__all__ = ["OpCall", "UnknownArgument", "call_of", "is_free"]

_WITH_RNG_STATE = {
    "run_and_save_rng_state": 0,
    "run_with_rng_state": 1,
    "graphsafe_run_with_rng_state": 0,
}
"""Higher-order ops that save or restore the generator around an op, and the position of that op in their arguments."""


class UnknownArgument(Exception):
    """An argument of a call is nothing that can be made up: a symbolic size, a submodule, an unknown object."""


@dataclass(frozen=True)
class OpCall:
    """A call of an op.

    Attributes:
        target: The op.
        args: Its arguments, fake tensors for tensors.
        kwargs: Its keyword arguments, likewise.
        result: What it returns, fake tensors for tensors.
        carries_rng_state: Whether the generator's state is saved or restored around it.
    """

    target: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    result: Any
    carries_rng_state: bool = False

    @property
    def name(self) -> str:
        """Name of the op, e.g. ``aten.mm.default``."""
        return str(self.target)

    def signature(self) -> str:
        """Text that is equal for two calls exactly if they cost the same.

        Raises:
            UnknownArgument: An argument cannot be told from others.
        """
        state = "rng_state " if self.carries_rng_state else ""
        return f"{state}{self.name} {_text((self.args, dict(self.kwargs)))}"

    def argument_tensors(self) -> list[torch.Tensor]:
        """All fake tensors among the arguments."""
        return _tensors((self.args, dict(self.kwargs)))

    def result_tensors(self) -> list[torch.Tensor]:
        """All fake tensors among the results."""
        return _tensors(self.result)


def call_of(node: fx.Node) -> OpCall:
    """The call that a ``call_function`` node stands for; a random op is taken out of what keeps its generator state.

    Raises:
        UnknownArgument: An argument has no value at planning time.
    """
    args: tuple[Any, ...] = tuple(fx.node.map_arg(argument, _value_of) for argument in node.args)
    kwargs = {key: fx.node.map_arg(argument, _value_of) for key, argument in node.kwargs.items()}
    target: Any = node.target
    result = node.meta.get("val")
    position = _WITH_RNG_STATE.get(getattr(target, "__name__", ""))
    if isinstance(target, torch._ops.HigherOrderOperator) and position is not None and len(args) > position:
        saves = target.__name__ == "run_and_save_rng_state"
        inner_result = result[1] if saves and isinstance(result, tuple | list) else result
        kwargs.pop("rng_state", None)
        inner: Any = args[position]
        return OpCall(inner, args[position + 1 :], kwargs, inner_result, carries_rng_state=True)
    if not callable(target):
        raise UnknownArgument(f"{node.name} calls no function")
    return OpCall(target, args, kwargs, result)


def is_free(node: fx.Node) -> bool:
    """Whether a node moves no bytes: unpacking, arithmetic on sizes, views."""
    if node.op != "call_function" or node.target is operator.getitem:
        return True
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return not _tensors(node.meta.get("val"))
    if target.is_view:
        return True
    results = _tensors(node.meta.get("val"))
    if not results or target._schema.is_mutable:
        return False
    storages = {_storage(tensor) for argument in node.all_input_nodes for tensor in _tensors(argument.meta.get("val"))}
    return all(_storage(tensor) in storages for tensor in results)


def _value_of(node: fx.Node) -> Any:
    if "val" in node.meta:
        return node.meta["val"]
    if node.op == "get_attr" and isinstance(node.target, str):
        value: Any = node.graph.owning_module
        for part in node.target.split("."):
            value = getattr(value, part, None)
        if isinstance(value, torch.Tensor):
            return value
    raise UnknownArgument(f"{node.name} has no fake tensor")


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _text(value: Any) -> str:
    """Text of an argument; floats and names as Python writes them, tensors by their metadata."""
    if isinstance(value, torch.Tensor):
        if not all(isinstance(number, int) for number in (*value.shape, *value.stride())):
            raise UnknownArgument(f"symbolic shape {tuple(value.shape)}")
        dtype = str(value.dtype).removeprefix("torch.")
        return f"{dtype}{list(value.shape)}{list(value.stride())}@{value.device.type}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_text(item)}' for key, item in sorted(value.items()))}}}"
    if value is None or isinstance(value, bool | int | float | complex | str):
        return repr(value)
    if isinstance(value, torch.dtype | torch.device | torch.layout | torch.memory_format):
        return str(value)
    raise UnknownArgument(f"an argument of type {type(value).__name__}")
