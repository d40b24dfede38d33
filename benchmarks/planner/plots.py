"""Pictures of the page on benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.planner.results import Summary
from benchmarks.planner.words import group

_COLOR_BY_PLANNER = {"search": "#2a6fbb", "greedy": "#c2571a"}
_LINE_BY_FAMILY = {"transformer": "-", "layered": "--"}


def plot_scaling(summaries: Sequence[Summary], path: Path) -> None:
    """Draw CPU time and memory against the number of nodes, both axes logarithmic."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, 2)
    _draw(axes[0], summaries, lambda one: max(one.cpu_seconds, 1e-3), "CPU time, seconds")
    _draw(axes[1], summaries, lambda one: one.outcomes[0].rss_peak_bytes / 2**20, "peak memory of the process, MiB")
    axes[0].legend(frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})


def _draw(axis: object, summaries: Sequence[Summary], value: Callable[[Summary], float], label: str) -> None:
    from matplotlib.axes import Axes

    assert isinstance(axis, Axes)
    families = group(summaries, lambda one: (one.cell.instance.partition("?")[0].partition(":")[2], one.cell.contender))
    for (family, planner), here in families.items():
        ordered = sorted(here, key=lambda one: one.outcomes[0].num_nodes)
        axis.plot(
            [one.outcomes[0].num_nodes for one in ordered],
            [value(one) for one in ordered],
            color=_COLOR_BY_PLANNER.get(planner, "#555555"),
            linestyle=_LINE_BY_FAMILY.get(family, ":"),
            marker="o",
            markersize=3.5,
            label=f"{planner}, {family}",
        )
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("nodes")
    axis.set_ylabel(label)
    axis.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
