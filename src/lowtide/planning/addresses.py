"""Addresses for a plan's lifespans, as one planning needs them: within its time, the baseline's only once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lowtide.errors import InputError
from lowtide.ir import Layout
from lowtide.layouts.protocol import Layouter, LayoutRequest
from lowtide.layouts.table import LAYOUTERS, layouter_named
from lowtide.planning.facts import Facts
from lowtide.referee import Replay
from lowtide.units import Bytes

__all__ = ["AUTO_LAYOUT", "NO_LAYOUT", "Addresses", "choose_layouter"]

AUTO_LAYOUT = "auto"
"""Addresses by best_fit where they fit the budget; else a plan without, whose live bytes do."""

NO_LAYOUT = "none"
"""As None: no addresses."""

_AUTO_LAYOUTER = "best_fit"

_MOST_SECONDS = 5.0
_MOST_EXACT_SECONDS = 2.0
_EXACT_SHARE = 0.1  # of the time that is left: planning for less memory is the other way
_MOST_EXACT_LIFESPANS = 4000
_LEAST_SECONDS = 0.2  # even when the time is over: a plan without addresses is no plan


def choose_layouter(layout: str | Layouter | None) -> Layouter | None:
    """The layouter itself, the one of a name or of ``"auto"``, or None for plans without addresses (``"none"``).

    Raises:
        InputError: There is none of that name, or the object is no layouter.
    """
    if layout in (None, NO_LAYOUT):
        return None
    if layout == AUTO_LAYOUT:
        return layouter_named(_AUTO_LAYOUTER)
    if isinstance(layout, str):
        if layout not in LAYOUTERS:
            names = ", ".join((AUTO_LAYOUT, *sorted(LAYOUTERS), NO_LAYOUT))
            raise InputError(f"layout {layout!r:.80} is not known: choose one of {names}")
        return layouter_named(layout)
    if not isinstance(layout, Layouter):
        raise InputError(f"layout {layout!r} has no name and place: give a name, a Layouter, or None")
    return layout


@dataclass(slots=True)
class Addresses:
    """Gives plans of one graph their addresses.

    Attributes:
        facts: Of the graph.
        layouter: Who places.
        seed: Of the layouter.
        seconds_left: Wall-clock time left, or None.
        should_stop: True ends the placing with the best met, or None.
    """

    facts: Facts
    layouter: Layouter
    seed: int
    seconds_left: Callable[[], float | None]
    should_stop: Callable[[], bool] | None
    _baseline: Layout | None = field(default=None, init=False)

    @property
    def baseline(self) -> Layout:
        """Of the plan without recomputation: as low as the layouter gets it, whatever the budget."""
        if self._baseline is None:
            self._baseline = self.place(self.facts.baseline, capacity_bytes=None)
        return self._baseline

    def place(self, replayed: Replay, *, capacity_bytes: Bytes | None, most_seconds: float = _MOST_SECONDS) -> Layout:
        """Addresses for a plan; the footprint may exceed the capacity."""
        return self._ask(self.layouter, replayed, capacity_bytes, most_seconds)

    def place_exactly(self, replayed: Replay, *, capacity_bytes: Bytes) -> Layout | None:
        """Addresses within the capacity by an exact search of a moment, or None."""
        if self.layouter.name == "exact" or len(replayed.lifespans) > _MOST_EXACT_LIFESPANS:
            return None
        seconds_left = self.seconds_left()
        seconds = _MOST_EXACT_SECONDS if seconds_left is None else min(_MOST_EXACT_SECONDS, _EXACT_SHARE * seconds_left)
        layout = self._ask(layouter_named("exact"), replayed, capacity_bytes, seconds)
        return layout if layout.footprint_bytes <= capacity_bytes else None

    def _ask(self, layouter: Layouter, replayed: Replay, capacity_bytes: Bytes | None, most_seconds: float) -> Layout:
        seconds_left = self.seconds_left()
        request = LayoutRequest(
            lifespans=replayed.lifespans,
            alignment=self.facts.graph.alignment,
            capacity_bytes=capacity_bytes,
            time_limit_seconds=most_seconds
            if seconds_left is None
            else max(_LEAST_SECONDS, min(most_seconds, seconds_left)),
            seed=self.seed,
            should_stop=self.should_stop,
        )
        return layouter.place(request).layout
