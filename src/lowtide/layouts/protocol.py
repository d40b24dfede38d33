"""What a layouter is: lifespans in, a layout out, with the least footprint that it knows to be needed.

A layouter never grades itself: the referee checks the layout together with the plan. A layouter of your own is a class
with a ``name`` and a ``place`` method.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from lowtide.ir import Layout, Lifespan

__all__ = ["LayoutProposal", "LayoutRequest", "Layouter"]


@dataclass(frozen=True, slots=True)
class LayoutRequest:
    """What to place.

    Attributes:
        lifespans: What needs an address for which steps; sizes in bytes, multiples of the alignment.
        alignment: Every offset is a multiple of it, in bytes.
        capacity_bytes: A footprint up to this is good enough; None: as small as can be.
        time_limit_seconds: Wall-clock cap, or None for a cap in counted work only.
        seed: Same request, same layout, unless the clock ends the search.
        should_stop: Asked now and then; true ends the search with the best found so far, or None.
    """

    lifespans: tuple[Lifespan, ...]
    alignment: int = 1
    capacity_bytes: int | None = None
    time_limit_seconds: float | None = None
    seed: int = 0
    should_stop: Callable[[], bool] | None = None


@dataclass(frozen=True, slots=True)
class LayoutProposal:
    """What a layouter answers: the best layout met, whether or not it keeps within the capacity.

    Attributes:
        layout: One placement per lifespan, in their order.
        lower_bound_bytes: Proven: no layout of these lifespans has a smaller footprint.
    """

    layout: Layout
    lower_bound_bytes: int

    @property
    def is_optimal(self) -> bool:
        """Whether no layout has a smaller footprint."""
        return self.layout.footprint_bytes == self.lower_bound_bytes


@runtime_checkable
class Layouter(Protocol):
    """Something that places lifespans."""

    @property
    def name(self) -> str:
        """The name by which users choose it."""
        ...

    def place(self, request: LayoutRequest) -> LayoutProposal:
        """Give every lifespan an offset so that no two share bytes at a step.

        Raises:
            InputError: A size is no multiple of the alignment.
        """
        ...
