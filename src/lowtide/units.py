"""Bytes and budgets: reading them from people, writing them for people; counts, too.

Decimal units are powers of 1000 (``KB``, ``MB``, ``GB``, ``TB``), binary units powers of 1024 (``KiB``, ``MiB``,
``GiB``, ``TiB``). A budget is a whole number of bytes, text with a unit, or a percentage of the baseline peak.
"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from typing import TypeAlias

from lowtide.errors import UnitError

__all__ = ["MAX_BYTES", "Budget", "Bytes", "align_up", "count_of", "format_bytes", "parse_budget", "parse_bytes"]

Bytes: TypeAlias = int
"""A whole number of bytes, at least 0."""

Budget: TypeAlias = int | str
"""What users may give as a budget: bytes, ``"1.5 GiB"``, or ``"60%"`` of the baseline peak."""

MAX_BYTES = 2**53 - 1
"""Sizes above this are refused: they are no sizes of tensors, and JSON readers elsewhere would round them."""

_FACTOR_BY_UNIT = {
    "": 1,
    "b": 1,
    "byte": 1,
    "bytes": 1,
    **{prefix + "b": 1000**power for power, prefix in enumerate("kmgt", start=1)},
    **{prefix + "ib": 1024**power for power, prefix in enumerate("kmgt", start=1)},
}
_WHOLE = "[0-9]+(?:_[0-9]+)*"
_SIZE = re.compile(rf"\s*(?P<number>{_WHOLE}(?:\.[0-9]+)?)\s*(?P<unit>[A-Za-z]*)\s*\Z")
_PERCENT = re.compile(r"\s*(?P<number>[0-9]+(?:\.[0-9]+)?)\s*%\s*\Z")
_BARE_FRACTION = re.compile(rf"\s*{_WHOLE}\.[0-9]+\s*\Z")
_BARE_WHOLE = re.compile(rf"\s*{_WHOLE}\s*\Z")
_LONGEST_TEXT = 64
_SMALLEST_BARE_NUMBER = 1024


def parse_bytes(text: str) -> Bytes:
    """Read a size such as ``"512"``, ``"512KB"`` (1000), ``"1.5 GiB"`` (1024) as bytes.

    Args:
        text: A decimal number with an optional unit; a fraction of a byte is rounded down.

    Returns:
        The size in bytes.

    Raises:
        UnitError: The text is no size, or the size exceeds :data:`MAX_BYTES`.
    """
    match = _SIZE.match(text) if len(text) <= _LONGEST_TEXT else None
    if match is None or match["unit"].lower() not in _FACTOR_BY_UNIT:
        raise UnitError(f"{_quote(text)} is no size: write a number with KB, MB, GB (1000) or KiB, MiB, GiB (1024)")
    size_bytes = int(Decimal(match["number"].replace("_", "")) * _FACTOR_BY_UNIT[match["unit"].lower()])
    if size_bytes > MAX_BYTES:
        raise UnitError(f"size {_quote(text)} exceeds the largest size that is read, {MAX_BYTES} bytes")
    return size_bytes


def parse_budget(budget: Budget, *, baseline_peak_bytes: Bytes, smallest_bytes: Bytes = _SMALLEST_BARE_NUMBER) -> Bytes:
    """Turn a budget as people write it into bytes.

    Args:
        budget: A whole number of bytes, text with a unit, or a percentage of the baseline peak.
        baseline_peak_bytes: Peak of the given order without recomputation, in bytes; percentages refer to it.
        smallest_bytes: Bare numbers below this are taken for a mistake ("60 bytes? write 60%"). Graphs in abstract
            units, whose whole peak is small, are read with a smaller bound by the caller.

    Returns:
        The budget in bytes; for a percentage, floor(fraction x baseline peak).

    Raises:
        UnitError: The budget is a float, a bare number that is implausibly small, or no budget at all.
    """
    if isinstance(budget, bool) or not isinstance(budget, int | str):
        raise UnitError(
            f"budget {_quote(budget)} is a {type(budget).__name__}: give whole bytes, text such as '1.5GiB', or '60%'"
        )
    if isinstance(budget, str) and (match := _PERCENT.match(budget[:_LONGEST_TEXT])):
        return _percent_of(Fraction(match["number"]), baseline_peak_bytes, budget)
    if isinstance(budget, str) and _BARE_FRACTION.match(budget[:_LONGEST_TEXT]):
        raise UnitError(f"budget {_quote(budget)} has no unit: give whole bytes, '1.5GiB', or '60%'")
    size_bytes = parse_bytes(budget) if isinstance(budget, str) else budget
    is_bare = isinstance(budget, int) or _BARE_WHOLE.match(budget) is not None
    if size_bytes <= 0:
        raise UnitError(f"budget {_quote(budget)} is not above 0 bytes: give bytes, '1.5GiB', or '60%'")
    if is_bare and size_bytes < smallest_bytes:
        raise UnitError(f"budget {size_bytes} bytes? For a share of the plain peak write '{size_bytes}%'")
    if size_bytes > MAX_BYTES:
        raise UnitError(f"budget {_quote(budget)} exceeds the largest size that is read, {MAX_BYTES} bytes")
    return size_bytes


def _percent_of(percent: Fraction, baseline_peak_bytes: Bytes, text: str) -> Bytes:
    if not 0 < percent <= 1000:
        raise UnitError(f"budget {_quote(text)} must be above 0% and at most 1000% of the plain peak")
    return int(percent * baseline_peak_bytes / 100)


def format_bytes(size_bytes: Bytes) -> str:
    """Write a size for people: ``"512 B"``, ``"1.5 KiB"``, ``"1.50 GiB"``, at most four digits."""
    if abs(size_bytes) < 1024:
        return f"{size_bytes} B"
    scaled = float(size_bytes)
    for unit in ("KiB", "MiB", "GiB"):
        scaled /= 1024
        if abs(scaled) < 1023.95:
            return f"{scaled:.2f} {unit}" if abs(scaled) < 9.995 else f"{scaled:.1f} {unit}"
    return f"{scaled / 1024:.2f} TiB"


def count_of(number: int, noun: str) -> str:
    """Write a number of things for people: ``"1 node"``, ``"2 nodes"``, ``"1 search"``, ``"2 searches"``."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun}{'es' if noun.endswith(('s', 'x', 'sh', 'ch')) else 's'}"


def align_up(size_bytes: Bytes, alignment: int) -> Bytes:
    """Round a size up to a multiple of the alignment (both in bytes)."""
    return -(-size_bytes // alignment) * alignment


def _quote(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "..."
