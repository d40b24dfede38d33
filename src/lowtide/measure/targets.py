"""Finds the function that a text ``pkg.module:function`` names."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from lowtide.errors import InputError

__all__ = ["resolve_target"]


def resolve_target(target: str) -> Callable[..., object]:
    """Imports a module and returns the function in it.

    Args:
        target: ``pkg.module:function``; the function may be an attribute of a class,
            ``pkg.module:Class.method``.

    Raises:
        InputError: The text is not of that form, the module does not exist, or it has no such function.
            Whatever else importing the module raises passes through unchanged.
    """
    module_name, separator, path = target.partition(":")
    if not (separator and module_name and path):
        raise InputError(f"cannot read the target {target!r}: write pkg.module:function")
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module is there; something that it imports is not
        raise InputError(f"target {target!r}: there is no module {error.name!r} on this Python's path") from error
    for name in path.split("."):
        if not hasattr(found, name):
            raise InputError(f"target {target!r}: {module_name!r} has no {path!r}")
        found = getattr(found, name)
    if not callable(found):
        raise InputError(f"target {target!r} is a {type(found).__name__}, not a function")
    return found
