"""What a session tells while it runs: evictions, recomputations, moves and thrashing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

__all__ = ["EventCallback", "Told", "batch_of"]

EventCallback = Callable[[str, Mapping[str, Any]], None]
"""Called with an event's name and its figures:

    "evict"      {"value": number, "size_bytes": bytes}
    "move"       {"value": number, "size_bytes": bytes}
    "recompute"  {"op": name}
    "thrash"     once, see `lowtide.runtime.thrash.Thrash.as_dict`
"""

Told = tuple[str, int, int, str]
"""Kind, value, bytes, op: what the shim says of an event."""


def batch_of(told: Iterable[Told]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What the shim says, as callbacks have it."""
    for kind, value, size_bytes, op in told:
        if kind == "recompute":
            yield kind, {"op": op}
        else:
            yield kind, {"value": value, "size_bytes": size_bytes}
