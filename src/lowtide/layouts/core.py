"""The native core as the layouters see it: lifespans that need bytes, in units of the alignment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lowtide import _layout
from lowtide.errors import InputError
from lowtide.ir import Layout, Placement
from lowtide.layouts.protocol import LayoutProposal, LayoutRequest

__all__ = ["PackingProblem", "packing_problem"]


@dataclass(frozen=True, slots=True)
class PackingProblem:
    """A request for the native core: without what needs no bytes or no step, in units of the alignment.

    Attributes:
        request: The request.
        placed: Which lifespans the core places, as positions in the request.
        spans: These, for the core.
        loose_units: Largest size of a lifespan without steps: it may lie anywhere, so it lies at 0.
    """

    request: LayoutRequest
    placed: tuple[int, ...]
    spans: _layout.Spans
    loose_units: int

    @property
    def capacity_units(self) -> int | None:
        """The capacity, rounded down: all tops are whole units."""
        capacity_bytes = self.request.capacity_bytes
        return None if capacity_bytes is None else capacity_bytes // self.request.alignment

    @property
    def least_units(self) -> int:
        """No layout is lower: the largest sum of sizes at one step."""
        return max(self.spans.peak, self.loose_units)

    def proposal(self, offset_units: Sequence[int], *, bound_units: int) -> LayoutProposal:
        """The answer for offsets of what the core placed.

        Args:
            offset_units: Of ``placed``, in units.
            bound_units: Proven least footprint of ``spans``, in units.
        """
        request = self.request
        offset_by_position = dict(zip(self.placed, offset_units, strict=True))
        placements = tuple(
            Placement(
                name=span.name,
                occurrence=span.occurrence,
                offset=offset_by_position.get(position, 0) * request.alignment,
                size_bytes=span.size_bytes,
                is_workspace=span.is_workspace,
            )
            for position, span in enumerate(request.lifespans)
        )
        return LayoutProposal(Layout(placements), max(bound_units, self.loose_units) * request.alignment)


def packing_problem(request: LayoutRequest) -> PackingProblem:
    """Translate a request for the native core.

    Raises:
        InputError: A size is no multiple of the alignment, or below 0.
    """
    alignment = request.alignment
    if alignment < 1:
        raise InputError(f"alignment {alignment} must be at least 1 byte")
    for span in request.lifespans:
        if span.size_bytes < 0 or span.size_bytes % alignment:
            raise InputError(
                f"lifespan of {span.name!r:.200} #{span.occurrence}: size {span.size_bytes} is no multiple of the "
                f"alignment {alignment}: round it up"
            )
    spans = request.lifespans
    placed = tuple(i for i, span in enumerate(spans) if span.size_bytes and len(span.interval))
    return PackingProblem(
        request=request,
        placed=placed,
        spans=_layout.Spans(
            start=[spans[i].interval.start for i in placed],
            end=[spans[i].interval.end for i in placed],
            size=[spans[i].size_bytes // alignment for i in placed],
        ),
        loose_units=max((span.size_bytes // alignment for span in spans if not len(span.interval)), default=0),
    )
