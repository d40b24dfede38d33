"""Packages that only reports need."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from lowtide.errors import MissingDependency

__all__ = ["require", "require_found"]


def require(module: str, *, needed_for: str) -> Any:
    """Import a module of an optional package.

    Args:
        module: Its full name.
        needed_for: What cannot be done without it, the beginning of the error's sentence.

    Raises:
        MissingDependency: The package is not installed; the message says what to install.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        raise MissingDependency(package, extra="report", needed_for=needed_for) from error


def require_found(package: str | None, *, needed_for: str) -> None:
    """Find out whether a package could be imported, without importing it.

    Args:
        package: Its name; None needs nothing.
        needed_for: What cannot be done without it, the beginning of the error's sentence.

    Raises:
        MissingDependency: It is not installed; the message says what to install.
    """
    if package is not None and importlib.util.find_spec(package) is None:
        raise MissingDependency(package, extra="report", needed_for=needed_for)
