"""Memory over time as a picture: one panel per model, plain behind, lowtide in front, the budget as a line.

The background is transparent and every colour is told apart on white and on black, by people who see few colours, too
(blue and orange of Okabe and Ito, "Color universal design", 2008); what is what stands at the curves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lowtide.units import Bytes, format_bytes

__all__ = ["CurvesPanel", "draw_curves_png"]

_PLAIN, _PLANNED, _TEXT = "#e08a00", "#2b8cc4", "#737c86"
_MIB = 2**20
_DOTS_PER_INCH = 130


@dataclass(frozen=True, slots=True)
class CurvesPanel:
    """One model's curves.

    Attributes:
        title: Above the panel.
        seconds: Where each entry of the curves lies, from the start of a step on.
        plain_bytes: Held plainly; may be shorter than ``seconds``, where the plain step is.
        planned_bytes: Held within the budget; likewise.
        budget_bytes: Where the planned curve may not go beyond.
    """

    title: str
    seconds: Sequence[float]
    plain_bytes: Sequence[Bytes]
    planned_bytes: Sequence[Bytes]
    budget_bytes: Bytes


def draw_curves_png(panels: Sequence[CurvesPanel], path: Path, *, subtitle: str) -> None:
    """Draw panels side by side into a PNG file.

    Args:
        panels: At least one.
        path: The file.
        subtitle: Below the panels: what the curves are, where they come from.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.1 * len(panels) + 0.6, 2.9), dpi=_DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)
    figure.patch.set_alpha(0)
    for index, panel in enumerate(panels):
        _draw_panel(figure.add_subplot(1, len(panels), index + 1), panel, is_first=index == 0)
    figure.supxlabel(subtitle, fontsize=8, color=_TEXT)
    figure.savefig(path, transparent=True)


def _draw_panel(axes: Any, panel: CurvesPanel, *, is_first: bool) -> None:
    for held, color, alpha in ((panel.plain_bytes, _PLAIN, 0.25), (panel.planned_bytes, _PLANNED, 0.45)):
        mib = [size_bytes / _MIB for size_bytes in held]
        seconds = panel.seconds[: len(mib)]
        axes.fill_between(seconds, mib, color=color, alpha=alpha, linewidth=0)
        axes.plot(seconds, mib, color=color, linewidth=1.4)
    top_mib = max(panel.plain_bytes) / _MIB
    line = axes.axhline(panel.budget_bytes / _MIB, color=_TEXT, linewidth=1.2, linestyle=(0, (4, 2)))
    axes.legend(
        [line],
        [f"budget {format_bytes(panel.budget_bytes)}"],
        loc="upper right",
        frameon=False,
        fontsize=8.5,
        labelcolor=_TEXT,
        borderaxespad=0,
    )
    axes.set_ylim(0, top_mib * 1.3)
    axes.set_xlim(0, panel.seconds[-1])
    _label(axes, panel, top_mib)
    axes.set_title(panel.title, fontsize=10, color=_TEXT, loc="left")
    axes.set_xlabel("seconds", fontsize=8, color=_TEXT)
    if is_first:
        axes.set_ylabel("MiB", fontsize=8, color=_TEXT)
    axes.patch.set_alpha(0)
    axes.tick_params(colors=_TEXT, labelsize=8)
    for name, spine in axes.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_color(_TEXT)


def _label(axes: Any, panel: CurvesPanel, top_mib: float) -> None:
    """Name the curves where they are, in their own colours."""
    held = panel.plain_bytes
    peak = max(range(len(held)), key=held.__getitem__)
    middle, place = panel.seconds[-1] / 2, panel.seconds[peak]
    side = "left" if place < middle * 0.5 else "right" if place > middle * 1.5 else "center"
    axes.text(
        place, top_mib * 1.03, f"plain {format_bytes(held[peak])}", color=_PLAIN, fontsize=8.5, ha=side, weight="bold"
    )
    axes.text(middle, top_mib * 0.06, "lowtide", color=_PLANNED, fontsize=8.5, ha="center", weight="bold")
