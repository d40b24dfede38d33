"""Units for axes: the one in which the largest figure is a number that people read easily."""

from __future__ import annotations

from dataclasses import dataclass

from lowtide.units import Bytes

__all__ = ["Unit", "byte_unit", "time_unit"]


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit.

    Attributes:
        name: For the axis.
        size: How many of the smallest unit (bytes, nanoseconds, units) it is.
    """

    name: str
    size: int


def byte_unit(largest_bytes: Bytes) -> Unit:
    """The unit for bytes up to a size."""
    units = (Unit("GiB", 2**30), Unit("MiB", 2**20), Unit("KiB", 2**10))
    return next((unit for unit in units if largest_bytes >= unit.size), Unit("bytes", 1))


def time_unit(duration: int, duration_unit: str) -> Unit:
    """The unit for times up to a duration, given in ``"ns"`` or ``"unit"``."""
    if duration_unit != "ns":
        return Unit("units", 1)
    units = (Unit("s", 10**9), Unit("ms", 10**6), Unit("µs", 10**3))
    return next((unit for unit in units if duration >= unit.size), Unit("ns", 1))
