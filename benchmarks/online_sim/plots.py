"""Pictures of the page on online policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

__all__ = ["LATENCY_PLOT", "OVERHEAD_PLOT", "plot_latency", "plot_overhead"]

OVERHEAD_PLOT = "images/online-overhead.png"
LATENCY_PLOT = "images/online-latency.png"

Row = Mapping[str, Any]

_LINE_BY_POLICY: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "coop": ("#2a6fbb", "-"),
        "coop-paper": ("#2a6fbb", "--"),
        "dtr": ("#c2571a", "-"),
        "dte": ("#3f8f4f", "-"),
        "lru": ("#999999", "-"),
        "dtr-ideal": ("#c2571a", ":"),
    }
)
_LARGEST_OVERHEAD = 2.5
_TARGET_US = 20.0


def plot_overhead(rows: Sequence[Row], networks: Sequence[str], path: Path) -> None:
    """Draw overhead against r, a panel per network, a line per policy; where a line ends, the policy did not complete.

    Args:
        rows: Of the record ``sweep``.
        networks: In the order of the panels.
        path: Where the picture goes.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    num_columns = min(4, len(networks))
    num_rows = -(-len(networks) // num_columns)
    figure = Figure(figsize=(2.6 * num_columns, 2.3 * num_rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(num_rows, num_columns, squeeze=False).flatten()
    for axis, network in zip(axes, networks, strict=False):
        for policy, (color, line) in _LINE_BY_POLICY.items():
            here = [row for row in rows if row["network"] == network and row["policy"] == policy]
            points = sorted((row["ratio"], row["overhead"]) for row in _completed_from_above(here))
            axis.plot(*zip(*points, strict=True), color=color, linestyle=line, linewidth=1.2, label=policy)
        axis.set_title(network, fontsize=9)
        axis.set_xlim(0.95, 0.15)
        axis.set_ylim(0.98, _LARGEST_OVERHEAD)
        _label(axis, "r", "overhead")
    for axis in axes[len(networks) :]:
        axis.set_axis_off()
    handles, labels = axes[0].get_legend_handles_labels()
    axes[-1].legend(handles, labels, frameon=False, fontsize=8, loc="center" if len(axes) > len(networks) else "best")
    _save(figure, path)


def plot_latency(rows: Sequence[Row], path: Path) -> None:
    """Draw CPU time per search against blocks, both axes logarithmic, with the target at 1,000 blocks.

    Args:
        rows: Of the record ``latency``.
        path: Where the picture goes.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    for policy, (color, line) in _LINE_BY_POLICY.items():
        points = sorted((row["num_blocks"], row["cpu_us"]) for row in rows if row["policy"] == policy)
        if points:
            axis.plot(*zip(*points, strict=True), color=color, linestyle=line, marker="o", markersize=3.5, label=policy)
    counts = sorted({row["num_blocks"] for row in rows})
    axis.plot(
        counts, [_TARGET_US * count / 1_000 for count in counts], color="#bbbbbb", linewidth=1, label="20 ns a block"
    )
    axis.set_xscale("log")
    axis.set_yscale("log")
    _label(axis, "blocks", "CPU time per search, µs")
    axis.legend(frameon=False, fontsize=8)
    _save(figure, path)


def _completed_from_above(rows: Sequence[Row]) -> list[Row]:
    """The points down to the first ratio that did not complete: what lies below is told by the table."""
    kept: list[Row] = []
    for row in sorted(rows, key=lambda row: -row["ratio"]):
        if not row["completed"]:
            break
        kept.append(row)
    return kept


def _save(figure: object, path: Path) -> None:
    from matplotlib.figure import Figure

    assert isinstance(figure, Figure)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})


def _label(axis: object, below: str, beside: str) -> None:
    from matplotlib.axes import Axes

    assert isinstance(axis, Axes)
    axis.set_xlabel(below, fontsize=8)
    axis.set_ylabel(beside, fontsize=8)
    axis.tick_params(labelsize=7)
    axis.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
