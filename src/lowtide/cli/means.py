"""The table that says how small a model gets by one means after the other, whatever its runtime."""

from __future__ import annotations

from typing import Protocol

from lowtide.cli.output import count_of
from lowtide.units import format_bytes

__all__ = [
    "TriedMeans",
    "describe_bound",
    "describe_change",
    "describe_less",
    "describe_size",
    "means_row",
    "means_rows",
]


class TriedMeans(Protocol):
    """What was found: ``lowtide.emit.means.Means``, or an analysis with the same figures."""

    @property
    def by_offsets_bytes(self) -> int:
        """With the best offsets in the given order."""
        ...

    @property
    def by_order_bytes(self) -> int:
        """With the best order."""
        ...

    @property
    def by_recompute_bytes(self) -> int:
        """With recomputation."""
        ...

    @property
    def num_recomputes(self) -> int:
        """Nodes that this executes again."""
        ...

    @property
    def tdi_percent(self) -> float:
        """Its total duration increase."""
        ...


def means_rows(tried: TriedMeans, *, now_bytes: int, costs: str) -> list[tuple[str, str, str, str]]:
    """One row per means: bytes, the same for people, what it saves, its name.

    Args:
        tried: What was found.
        now_bytes: What the model needs today.
        costs: Where durations come from: ``"estimated"``, ``"measured here"``.
    """
    return [
        means_row("prescribed offsets alone", tried.by_offsets_bytes, now_bytes),
        means_row("another order, too", tried.by_order_bytes, now_bytes),
        means_row(_describe_recomputation(tried, costs), tried.by_recompute_bytes, now_bytes),
    ]


def means_row(means: str, size_bytes: int, now_bytes: int) -> tuple[str, str, str, str]:
    """One means by its name."""
    saved = "nothing" if size_bytes > now_bytes else f"{_less_percent(now_bytes, size_bytes):.1f} %"
    return (str(size_bytes), format_bytes(size_bytes), saved, means)


def describe_change(before_bytes: int, after_bytes: int) -> str:
    """``"4096 -> 1024 bytes (1.00 KiB), 75.0 % less"``, or how much more."""
    less = describe_less(before_bytes, after_bytes)
    return f"{before_bytes} -> {after_bytes} bytes ({format_bytes(after_bytes)}), {less}"


def describe_less(before_bytes: int, after_bytes: int) -> str:
    """``"75.0 % less"``, or how much more."""
    less_percent = _less_percent(before_bytes, after_bytes)
    return f"{-less_percent:.1f} % more" if less_percent < 0 else f"{less_percent:.1f} % less"


def describe_bound(node: str | None) -> str:
    """Why no order or recomputation can help: one node, or None for the inputs, needs all that lives at the peak."""
    if node is None:
        return (
            "Input-bound: the inputs alone need what lives at the peak, so no order or recomputation can help. Make "
            "them smaller."
        )
    return f"Op-bound: {node} alone needs what lives at the peak, so no order or recomputation can help."


def _less_percent(before_bytes: int, after_bytes: int) -> float:
    return 100 * (1 - after_bytes / before_bytes) if before_bytes else 0.0


def describe_size(size_bytes: int) -> str:
    """A size to the byte, and for people."""
    return f"{size_bytes} bytes = {format_bytes(size_bytes)}"


def _describe_recomputation(tried: TriedMeans, costs: str) -> str:
    if not tried.num_recomputes:
        return "recomputation, too: nothing more"
    return f"{count_of(tried.num_recomputes, 'recomputation')}, too: TDI {tried.tdi_percent:.1f} %, {costs}"
