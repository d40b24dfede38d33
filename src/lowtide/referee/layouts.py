"""Checks a layout: one placement per lifespan, aligned, and no two on the same bytes at the same step.

offset ▲   ┌──────┐ ┌───┐                a and c share bytes, not steps; a and b share steps, not bytes
       │   │  a   │ │ c │
       │   ├──────┴─┴─┬─┘
       │   │    b     │
       └───┴──────────┴─────▶ step
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass
from typing import TypeAlias

from lowtide.errors import LayoutRejected
from lowtide.ir import Graph, Layout, Lifespan, Placement, Step
from lowtide.referee.replay import lifespans_of_any_size

__all__ = ["VerifiedLayout", "check_layout"]

_Key: TypeAlias = tuple[bool, str, int]
_TOKEN = object()


@dataclass(frozen=True)
class VerifiedLayout:
    """A layout that the referee accepted; only :func:`check_layout` makes one.

    Attributes:
        layout: The placements.
        lifespans: What they place, each above 0 bytes, by the step at which it begins.
        footprint_bytes: Highest address used.
    """

    layout: Layout
    lifespans: tuple[Lifespan, ...]
    footprint_bytes: int
    token: InitVar[object] = None

    def __post_init__(self, token: object) -> None:
        if token is not _TOKEN:
            raise TypeError("a VerifiedLayout comes from lowtide.referee.check_layout only")


def check_layout(graph: Graph, steps: Sequence[Step], layout: Layout) -> VerifiedLayout:
    """Check a layout of a plan.

    Args:
        graph: What is executed.
        steps: The plan.
        layout: One placement per counted instance and workspace. Those of 0 bytes need none and may have one.

    Returns:
        The layout, verified.

    Raises:
        PlanRejected: The steps themselves break a rule.
        LayoutRejected: The first rule of layouts that is broken.
    """
    lifespan_by_key = {_key(span): span for span in lifespans_of_any_size(graph, steps)}
    placement_by_key = _checked_placements(layout, lifespan_by_key, graph.alignment)
    for key, span in lifespan_by_key.items():
        if span.size_bytes and key not in placement_by_key:
            raise LayoutRejected("placed", f"{_name(span)} has no placement: give it one")
    spans = tuple(span for span in lifespan_by_key.values() if span.size_bytes)
    _check_disjoint(spans, placement_by_key)
    return VerifiedLayout(layout, spans, layout.footprint_bytes, token=_TOKEN)


def _checked_placements(
    layout: Layout, lifespan_by_key: Mapping[_Key, Lifespan], alignment: int
) -> Mapping[_Key, Placement]:
    placement_by_key: dict[_Key, Placement] = {}
    for placement in layout.placements:
        key = _key(placement)
        span = lifespan_by_key.get(key)
        if span is None:
            raise LayoutRejected("known", f"{_name(placement)} is never allocated by the plan: remove its placement")
        if key in placement_by_key:
            raise LayoutRejected("once", f"{_name(placement)} has two placements: keep one")
        if placement.size_bytes != span.size_bytes:
            raise LayoutRejected(
                "size", f"{_name(placement)} is placed with {placement.size_bytes} bytes, but has {span.size_bytes}"
            )
        if placement.offset < 0 or placement.offset % alignment:
            raise LayoutRejected(
                "aligned", f"{_name(placement)} lies at offset {placement.offset}, no multiple of {alignment} from 0 up"
            )
        placement_by_key[key] = placement
    return placement_by_key


def _check_disjoint(spans: Iterable[Lifespan], placement_by_key: Mapping[_Key, Placement]) -> None:
    """Go through the steps with the placements of the moment sorted by offset: only neighbours can meet first."""
    changes: list[tuple[int, bool, _Key]] = []
    for span in spans:
        if len(span.interval):
            changes.append((span.interval.start, True, _key(span)))
            changes.append((span.interval.end, False, _key(span)))
    changes.sort()  # at one step, what ends (False) goes before what begins
    active: list[tuple[int, int, _Key]] = []  # offset, end, whose
    for step, begins, key in changes:
        placement = placement_by_key[key]
        entry = (placement.offset, placement.offset + placement.size_bytes, key)
        position = bisect_left(active, entry)
        if not begins:
            del active[position]
            continue
        for neighbour in active[max(position - 1, 0) : position + 1]:
            if max(neighbour[0], entry[0]) < min(neighbour[1], entry[1]):
                raise LayoutRejected(
                    "disjoint",
                    f"{_name(placement)} at [{entry[0]}, {entry[1]}) and {_name(placement_by_key[neighbour[2]])} at "
                    f"[{neighbour[0]}, {neighbour[1]}) share bytes",
                    step=step,
                )
        insort(active, entry)


def _key(item: Lifespan | Placement) -> _Key:
    return (item.is_workspace, item.name, item.occurrence)


def _name(item: Lifespan | Placement) -> str:
    return f"{'workspace of node' if item.is_workspace else 'value'} {item.name!r:.200} #{item.occurrence}"
