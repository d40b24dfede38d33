"""The pictures of a comparison for papers: PNG or SVG, drawn by matplotlib, black on white."""

from __future__ import annotations

from typing import Any, BinaryIO

from lowtide.reports.comparison_picture import Group, Picture, height_of, ticks_between
from lowtide.reports.comparison_plots import COLOR_BY_GROUP
from lowtide.reports.optional import require
from lowtide.reports.palette import BUDGET

__all__ = ["draw_comparison"]

_NEEDED_FOR = "a report as PNG or SVG"
_DOTS_PER_INCH = 200
_MARKER_BY_GROUP = {Group.PLAIN: "s", Group.OURS: "o", Group.OTHERS: "D", Group.PEERS: "^"}
_DASH_BY_ORDER: dict[str, Any] = {"given order": (0, (5, 2.5)), "any order": (0, (1, 2))}


def draw_comparison(title: str, pictures: tuple[Picture, ...], file: BinaryIO, *, file_format: str) -> None:
    """Draw pictures one below the other. The same ones give the same bytes.

    Args:
        title: Above all.
        pictures: At least one.
        file: Where to write.
        file_format: ``"png"`` or ``"svg"``.

    Raises:
        MissingDependency: matplotlib is not installed.
    """
    matplotlib = require("matplotlib", needed_for=_NEEDED_FOR)
    figures = require("matplotlib.figure", needed_for=_NEEDED_FOR)
    with matplotlib.rc_context({"svg.hashsalt": "lowtide", "font.size": 8, "axes.linewidth": 0.6}):
        figure = figures.Figure(
            figsize=(7.0, 3.4 * len(pictures) + 0.3), dpi=_DOTS_PER_INCH, layout="constrained", facecolor="white"
        )
        figure.suptitle(title, fontsize=9, x=0.01, ha="left", parse_math=False)
        for axes, picture in zip(figure.subplots(len(pictures), 1, squeeze=False)[:, 0], pictures, strict=True):
            _draw(axes, picture)
        metadata = {"Software": None} if file_format == "png" else {"Date": None, "Creator": None}
        figure.savefig(file, format=file_format, metadata=metadata)


def _draw(axes: Any, picture: Picture) -> None:
    for order, corners in picture.bounds.items():
        _line(axes, corners, color=BUDGET, linewidth=1.2, linestyle=_DASH_BY_ORDER[order], label=f"proven, {order}")
    _line(axes, picture.front, color="black", linewidth=0.8, alpha=0.7, label="front")
    for group, name in picture.name_by_group.items():
        points = [point for point in picture.points if point.group is group]
        axes.scatter(
            [point.memory_percent for point in points],
            [height_of(point.increase_percent) for point in points],
            s=[26 if point.is_on_front else 12 for point in points],
            alpha=[1.0 if point.is_on_front else 0.5 for point in points],
            marker=_MARKER_BY_GROUP[group],
            color=COLOR_BY_GROUP[group],
            linewidths=0,
            label=name,
            zorder=3,
        )
    for label in picture.labels:
        is_left = picture.is_far_right(label)
        axes.annotate(
            label.text,
            (label.memory_percent, height_of(label.increase_percent)),
            xytext=(-4 if is_left else 4, 3),
            horizontalalignment="right" if is_left else "left",
            textcoords="offset points",
            fontsize=7,
            parse_math=False,
        )
    low, high = picture.increase_range
    ticks = ticks_between(low, high)
    axes.set_xlim(*picture.memory_range)
    axes.set_ylim(low, high)
    axes.set_yticks(list(ticks), list(ticks.values()))
    axes.set_xlabel(picture.x_name)
    axes.set_ylabel(picture.y_name)
    axes.grid(linewidth=0.3, alpha=0.6)
    axes.legend(loc="upper right", frameon=True, framealpha=0.85, edgecolor="none", fontsize=7)


def _line(axes: Any, corners: tuple[tuple[float, float], ...], **style: Any) -> None:
    axes.plot([memory for memory, _ in corners], [height_of(increase) for _, increase in corners], **style)
