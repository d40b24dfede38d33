"""A model that is called by keyword, as one that is called by position: tracers name inputs by their place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from lowtide.errors import InputError

__all__ = ["by_position"]


class _ByPosition(torch.nn.Module):
    def __init__(self, model: torch.nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model
        self.names = names
        self.training = getattr(model, "training", False)  # a plain function has no mode

    def forward(self, *values: Any) -> Any:
        return self.model(**dict(zip(self.names, values, strict=True)))


def by_position(model: torch.nn.Module, inputs: Mapping[Any, Any]) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    """Wrap a model that takes keyword arguments, as those of transformers do.

    Args:
        model: Called as ``model(**inputs)``.
        inputs: Its keyword arguments, an example.

    Returns:
        A module with the model inside, of a class of the same name, and the values in their order.

    Raises:
        InputError: A key is no text.
    """
    wrong = [key for key in inputs if not isinstance(key, str)]
    if wrong:
        raise InputError(f"inputs: the key {wrong[0]!r:.80} is no name of an argument: write text")
    kind = type(type(model).__name__, (_ByPosition,), {})
    return kind(model, tuple(inputs)), tuple(inputs.values())
