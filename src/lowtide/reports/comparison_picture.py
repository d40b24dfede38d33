"""Memory against time as data: what the page and the picture for papers both draw.

    time │   ◆            ◆ online policy      ● planner      ─ front: nobody is better in both
         │ ●─┐   ◆
         │   └─●──┐        ┄ proven: no plan is below
         │ ┄┄┄┄┄┄ └──●──■ plain
         └─────────────── memory

Time is on a scale that is even near 0 % and logarithmic beyond 1 %, so that half a percent and five hundred are seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from lowtide.comparison.comparing import Comparison
from lowtide.comparison.judging import JudgedRow
from lowtide.comparison.rows import EAGER, Kind
from lowtide.comparison.words import percent_words
from lowtide.units import format_bytes

__all__ = ["Group", "Label", "Picture", "Point", "height_of", "pictures_of", "ticks_between"]

_MOST_NAMES = 2
_ROOM_FOR_LABELS = 0.7
_NEAR = 0.05  # of the picture's width and height
_TICKS = (-90, -50, -20, -10, -5, -2, -1, 0, 1, 2, 5, 10, 20, 50, 100, 200, 400, 1000)


class Group(StrEnum):
    """Who a point belongs to."""

    PLAIN = "plain"
    OURS = "ours"
    OTHERS = "others"
    PEERS = "peers"


@dataclass(frozen=True, slots=True)
class Point:
    """One row.

    Attributes:
        group: Who it belongs to.
        memory_percent: Needed, of the plain peak.
        increase_percent: Time beyond plain.
        is_on_front: Whether it is shown on the front.
        texts: What to say of it: method, budget, memory, time, status.
    """

    group: Group
    memory_percent: float
    increase_percent: float
    is_on_front: bool
    texts: tuple[str, str, str, str, str]


@dataclass(frozen=True, slots=True)
class Label:
    """Names beside a point of the front."""

    memory_percent: float
    increase_percent: float
    text: str


@dataclass(frozen=True, slots=True)
class Picture:
    """One plot.

    Attributes:
        key: Short and unique: ``"modelled"`` or ``"measured"``.
        title: Above it.
        about: What is shown, for a reader.
        x_name: Of the axis.
        y_name: Of the axis.
        name_by_group: For the legend, groups without points left out.
        points: All rows that have memory and time.
        front: Corners of the front's line, from much memory to little.
        labels: For points of the front.
        bounds: Corners of a line that no plan is below, by the order it speaks of.
    """

    key: str
    title: str
    about: str
    x_name: str
    y_name: str
    name_by_group: dict[Group, str]
    points: tuple[Point, ...]
    front: tuple[tuple[float, float], ...]
    labels: tuple[Label, ...]
    bounds: dict[str, tuple[tuple[float, float], ...]]

    @property
    def memory_range(self) -> tuple[float, float]:
        """From the smallest to the largest memory, with some room for labels."""
        memories = [point.memory_percent for point in self.points] or [100.0]
        low, high = min(memories), max(memories)
        room = max(4.0, 0.06 * (high - low))
        return max(0.0, low - room), high + 2 * room

    def is_far_right(self, label: Label) -> bool:
        """Whether a label has no room to the right of its point."""
        low, high = self.memory_range
        return label.memory_percent > low + _ROOM_FOR_LABELS * (high - low)

    @property
    def increase_range(self) -> tuple[float, float]:
        """From the shortest to the longest time, with some room."""
        increases = [point.increase_percent for point in self.points] or [0.0]
        low, high = height_of(min(0.0, *increases)), height_of(max(2.0, *increases))
        return low - 0.05 * (high - low), high + 0.07 * (high - low)


def height_of(increase_percent: float) -> float:
    """Where a time lies on the scale."""
    return math.asinh(increase_percent)


def ticks_between(low: float, high: float) -> dict[float, str]:
    """Marks for a stretch of the scale: where they lie, and what stands there."""
    return {height_of(tick): f"{tick} %" for tick in _TICKS if low <= height_of(tick) <= high}


def pictures_of(comparison: Comparison) -> tuple[Picture, ...]:
    """The picture on the cost model and, where there are real runs, the one of those."""
    modelled = [row for row in comparison.rows if not row.row.cell.kind.is_measured]
    measured = [row for row in comparison.rows if row.row.cell.kind.is_measured]
    pictures = [
        _picture(
            modelled,
            key="modelled",
            title="Memory against time, on the cost model",
            about=(
                "Each point is a plan, checked by the referee, or a simulated online policy, within a budget. "
                "Left and low is good; the line joins what nobody beats. Below the dashed line no plan is possible."
            ),
            x_name="memory needed, % of the plain peak",
            y_name="time beyond plain (TDI)",
            names={
                Group.PLAIN: "plain",
                Group.OURS: "planner",
                Group.OTHERS: "online policy",
                Group.PEERS: "PyTorch's own means",
            },
            bounds=_bounds(modelled),
        )
    ]
    if measured:
        pictures.append(
            _picture(
                measured,
                key="measured",
                title="Memory against time, really run",
                about=(
                    "Each point is a training in a process of its own: most bytes from malloc in forward and backward, "
                    "and CPU time of a step, against plain PyTorch."
                ),
                x_name="measured peak, % of eager's",
                y_name="time beyond eager",
                names={Group.PLAIN: "eager", Group.OURS: "lowtide", Group.OTHERS: "PyTorch's own means"},
                bounds={},
            )
        )
    return tuple(pictures)


def _picture(
    rows: Iterable[JudgedRow],
    *,
    key: str,
    title: str,
    about: str,
    x_name: str,
    y_name: str,
    names: dict[Group, str],
    bounds: dict[str, tuple[tuple[float, float], ...]],
) -> Picture:
    points = tuple(point for row in rows if (point := _point_of(row)) is not None)
    groups = {point.group for point in points}
    return Picture(
        key=key,
        title=title,
        about=about,
        x_name=x_name,
        y_name=y_name,
        name_by_group={group: name for group, name in names.items() if group in groups},
        points=points,
        front=_front_line(points),
        labels=_labels(points),
        bounds=bounds,
    )


def _point_of(judged: JudgedRow) -> Point | None:
    row = judged.row
    memory, increase = row.memory_percent, row.increase_percent
    if memory is None or increase is None or row.cell.kind is Kind.BOUND:
        return None
    texts = (
        row.cell.method,
        row.cell.budget or "none",
        f"{format_bytes(row.needed_bytes or 0)}, {memory:.1f} %",
        percent_words(increase),
        str(judged.outcome),
    )
    return Point(_group_of(judged), memory, increase, judged.is_shown_on_front, texts)


def _group_of(judged: JudgedRow) -> Group:
    cell = judged.row.cell
    if cell.kind is Kind.PLAIN or cell.method == EAGER:
        return Group.PLAIN
    if cell.kind is Kind.PEER:
        return Group.PEERS
    is_ours = cell.kind is Kind.PLANNER or (cell.kind.is_measured and cell.method.startswith("lowtide."))
    return Group.OURS if is_ours else Group.OTHERS


def _front_line(points: Iterable[Point]) -> tuple[tuple[float, float], ...]:
    """Stairs: less memory is to be had from the next point on only."""
    front = sorted({(point.memory_percent, point.increase_percent) for point in points if point.is_on_front})
    corners: list[tuple[float, float]] = []
    for memory, increase in reversed(front):
        if corners:
            corners.append((corners[-1][0], increase))
        corners.append((memory, increase))
    return tuple(corners)


def _labels(points: Sequence[Point]) -> tuple[Label, ...]:
    """Who is at each place of the front; neighbours whose names would lie on each other share the fastest one's."""
    reach = (_NEAR * _spread([point.memory_percent for point in points]), _NEAR * _spread([*map(_height, points)]))
    shared: list[tuple[Point, list[str]]] = []
    for point in sorted((point for point in points if point.is_on_front), key=_height):
        for first, names in shared:
            is_near = abs(point.memory_percent - first.memory_percent) <= reach[0]
            if is_near and _height(point) - _height(first) <= reach[1]:
                names.append(point.texts[0])
                break
        else:
            shared.append((point, [point.texts[0]]))
    return tuple(Label(point.memory_percent, point.increase_percent, _names_text(names)) for point, names in shared)


def _height(point: Point) -> float:
    return height_of(point.increase_percent)


def _spread(figures: Sequence[float]) -> float:
    return max(figures, default=0.0) - min(figures, default=0.0)


def _names_text(names: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(names))
    more = f" +{len(distinct) - _MOST_NAMES}" if len(distinct) > _MOST_NAMES else ""
    return ", ".join(distinct[:_MOST_NAMES]) + more


def _bounds(rows: Iterable[JudgedRow]) -> dict[str, tuple[tuple[float, float], ...]]:
    """Stairs, too: what is proven within a budget holds for all that need less."""
    proven: dict[str, list[tuple[float, float]]] = {}
    for judged in rows:
        row, bound = judged.row, judged.bound_percent
        if row.cell.kind is Kind.BOUND and bound is not None and row.budget_bytes and row.baseline_peak_bytes:
            order = row.cell.method.removeprefix("bound, ")
            proven.setdefault(order, []).append((100 * row.budget_bytes / row.baseline_peak_bytes, bound))
    lines = {}
    for order, places in proven.items():
        corners: list[tuple[float, float]] = []
        start = 0.0
        for memory, bound in sorted(places):
            corners += [(start, bound), (memory, bound)]
            start = memory
        lines[order] = (*corners, (start, 0.0), (max(start, 100.0), 0.0))
    return lines
