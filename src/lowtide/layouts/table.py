"""Layouters by name. Importing this module imports no layouter; one is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

from lowtide.errors import InputError
from lowtide.layouts.protocol import Layouter

__all__ = ["LAYOUTERS", "layouter_named"]

LAYOUTERS: Mapping[str, str] = MappingProxyType(
    {
        "best_fit": "lowtide.layouts.best_fit:BestFitLayouter",
        "exact": "lowtide.layouts.exact:ExactLayouter",
    }
)
"""Where each name's class is."""


def layouter_named(name: str) -> Layouter:
    """Make the layouter of a name.

    Raises:
        InputError: There is none.
    """
    if name not in LAYOUTERS:
        raise InputError(f"layout {name!r:.80} is not known: choose one of {', '.join(sorted(LAYOUTERS))}")
    module_name, _, class_name = LAYOUTERS[name].partition(":")
    layouter = getattr(import_module(module_name), class_name)()
    assert isinstance(layouter, Layouter)
    return layouter
