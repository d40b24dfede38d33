"""Pictures of the page on benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.planner.results import Summary
from benchmarks.planner.words import group

_COLOR_BY_PLANNER = {"search": "#2a6fbb", "greedy": "#c2571a", "moccasin": "#3f8f4f"}
_OTHER_COLOR = "#555555"
_LINE_BY_FAMILY = {"transformer": "-", "layered": "--"}
_LINES = ("-", "--", ":")
_LEAST_SECONDS = 0.01


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


def plot_over_time(summaries: Sequence[Summary], path: Path) -> None:
    """Draw the TDI of the best plan so far against time, a panel per instance, a line per planner and large budget.

    Args:
        summaries: Of the published experiment, the given order, the usual number of copies.
        path: Where the picture goes.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    by_instance = group(summaries, lambda one: one.cell.instance)
    num_columns = min(3, len(by_instance))
    num_rows = -(-len(by_instance) // num_columns)
    figure = Figure(figsize=(3.4 * num_columns, 2.8 * num_rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(num_rows, num_columns, squeeze=False).flatten()
    for axis, (instance, here) in zip(axes, by_instance.items(), strict=False):
        percents = sorted({one.cell.percent for one in here if one.tdi_percent is not None}, reverse=True)
        for percent, line in zip(percents, _LINES, strict=False):
            for one in (one for one in here if one.cell.percent == percent):
                _draw_course(axis, one, line)
        axis.set_title(instance, fontsize=9)
        axis.set_xscale("log")
        _label(axis, "seconds", "TDI, percent")
        if percents:
            axis.legend(frameon=False, fontsize=7)
    for axis in axes[len(by_instance) :]:
        axis.set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})


def _draw_course(axis: object, one: Summary, line: str) -> None:
    from matplotlib.axes import Axes

    assert isinstance(axis, Axes)
    outcome = one.outcomes[0]
    points = [(max(at, _LEAST_SECONDS), tdi) for at, tdi, _ in outcome.course if tdi is not None]
    if outcome.tdi_percent is None:
        return
    points.append((max(outcome.wall_seconds, _LEAST_SECONDS), outcome.tdi_percent))
    axis.step(
        [at for at, _ in points],
        [tdi for _, tdi in points],
        where="post",
        color=_COLOR_BY_PLANNER.get(one.cell.contender, _OTHER_COLOR),
        linestyle=line,
        label=f"{one.cell.contender}, {one.cell.percent} %",
    )


def _label(axis: object, below: str, beside: str) -> None:
    from matplotlib.axes import Axes

    assert isinstance(axis, Axes)
    axis.set_xlabel(below)
    axis.set_ylabel(beside)
    axis.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)


def _draw(axis: object, summaries: Sequence[Summary], value: Callable[[Summary], float], label: str) -> None:
    from matplotlib.axes import Axes

    assert isinstance(axis, Axes)
    families = group(summaries, lambda one: (one.cell.instance.partition("?")[0].partition(":")[2], one.cell.contender))
    for (family, planner), here in families.items():
        ordered = sorted(here, key=lambda one: one.outcomes[0].num_nodes)
        axis.plot(
            [one.outcomes[0].num_nodes for one in ordered],
            [value(one) for one in ordered],
            color=_COLOR_BY_PLANNER.get(planner, _OTHER_COLOR),
            linestyle=_LINE_BY_FAMILY.get(family, ":"),
            marker="o",
            markersize=3.5,
            label=f"{planner}, {family}",
        )
    axis.set_xscale("log")
    axis.set_yscale("log")
    _label(axis, "nodes", label)
