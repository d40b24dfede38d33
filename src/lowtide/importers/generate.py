"""Graphs from a line of text: ``generate:FAMILY?option=number&...``, a SOURCE of the commands.

    generate:layered?n=250&seed=3
    generate:transformer?layers=40
    generate:unet?depth=5&blocks=8
    generate:resnet?blocks=144&keep_gradients=0

Options and their defaults are the fields of the families' option classes.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable
from typing import Any

from lowtide.errors import InputError
from lowtide.importers.generate_layered import LayeredOptions, layered
from lowtide.importers.generate_training import (
    ResNetOptions,
    TransformerOptions,
    UNetOptions,
    resnet,
    transformer,
    unet,
)
from lowtide.ir import Graph

__all__ = ["GENERATE_PREFIX", "graph_from_spec"]

GENERATE_PREFIX = "generate:"
"""What a SOURCE begins with to name a generated graph."""

_OPTIONS_BY_FAMILY: dict[str, type[Any]] = {
    "layered": LayeredOptions,
    "resnet": ResNetOptions,
    "transformer": TransformerOptions,
    "unet": UNetOptions,
}
_GENERATOR_BY_FAMILY: dict[str, Callable[[Any], Graph]] = {
    "layered": layered,
    "resnet": resnet,
    "transformer": transformer,
    "unet": unet,
}
_LONGEST_SPEC = 1000
_WHOLE = re.compile(r"-?[0-9]{1,15}\Z")
_DECIMAL = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?\Z")
_FLAGS = {"0": False, "false": False, "1": True, "true": True}


def graph_from_spec(text: str) -> Graph:
    """Generate the graph that a line of text describes.

    Args:
        text: ``generate:FAMILY`` or ``generate:FAMILY?option=number&...``; the same text gives the same graph on every
            platform.

    Raises:
        InputError: The family or an option is unknown, or a number is out of range.
    """
    spec = text.removeprefix(GENERATE_PREFIX)
    if len(spec) > _LONGEST_SPEC:
        raise InputError(f"{text[:40]!r}...: has {len(spec)} characters, at most {_LONGEST_SPEC} are read")
    family, _, query = spec.partition("?")
    if family not in _OPTIONS_BY_FAMILY:
        raise InputError(f"{text[:80]!r}: unknown family {family[:40]!r}: use one of {', '.join(_OPTIONS_BY_FAMILY)}")
    return _GENERATOR_BY_FAMILY[family](_read_options(family, query, text))


def _read_options(family: str, query: str, text: str) -> Any:
    """The options of a family, from ``option=number&...``."""
    options_type = _OPTIONS_BY_FAMILY[family]
    default_by_name = {field.name: field.default for field in dataclasses.fields(options_type)}
    values: dict[str, Any] = {}
    for item in query.split("&") if query else ():
        name, equals, written = item.partition("=")
        if name not in default_by_name:
            close = difflib.get_close_matches(name, default_by_name, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"use {', '.join(default_by_name)}"
            raise InputError(f"{text[:80]!r}: {family} has no option {name[:40]!r}: {hint}")
        if not equals or name in values:
            raise InputError(f"{text[:80]!r}: write each option once, as {name}={default_by_name[name]}")
        values[name] = _read_value(name, written, default_by_name[name], text)
    return options_type(**values)


def _read_value(name: str, written: str, default: object, text: str) -> bool | int | float:
    """An option's value, of the type of its default."""
    if isinstance(default, bool):
        if written.lower() in _FLAGS:
            return _FLAGS[written.lower()]
        raise InputError(f"{text[:80]!r}: {name} {written[:40]!r} must be 0 or 1")
    if isinstance(default, float):
        if _DECIMAL.match(written):
            return float(written)
        raise InputError(f"{text[:80]!r}: {name} {written[:40]!r} must be a decimal number such as {default}")
    if _WHOLE.match(written):
        return int(written)
    raise InputError(f"{text[:80]!r}: {name} {written[:40]!r} must be a whole number")
