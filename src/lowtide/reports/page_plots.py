"""The page's three plots, made by Bokeh: memory, retention intervals and addresses over the same steps.

They share their horizontal range: zooming one zooms all.
"""

from __future__ import annotations

from typing import Any

from lowtide.reports.optional import require
from lowtide.reports.page_columns import Columns, PageColumns
from lowtide.reports.palette import BUDGET, HELD, PLAIN, RECOMPUTED
from lowtide.reports.report import Report

__all__ = ["TOOLBAR_STYLE", "bokeh_script", "plot_document"]

TOOLBAR_STYLE = ".bk-divider { background-color: var(--line, transparent); }"
"""Separators of a toolbar as faint as all lines of the page, in its theme: Bokeh's own are light grey in both."""

_NEEDED_FOR = "a report as HTML"
_MANY_MARKS = 400


def bokeh_script() -> str:
    """BokehJS, as its package brings it; its licence stands at its beginning."""
    resources = require("bokeh.resources", needed_for=_NEEDED_FOR)
    inline = resources.Resources(mode="inline", components=["bokeh"], log_level="warn")
    return "\n".join(inline.js_raw)


def plot_document(report: Report, columns: PageColumns) -> dict[str, Any]:
    """The plots as one JSON document that BokehJS draws; one, so that they share ranges and the crosshair.

    Args:
        report: What is shown.
        columns: The same, thinned.

    Returns:
        ``document`` and ``roots``: the id of each plot's root by the id of the page's element that shows it.
    """
    plotting = require("bokeh.plotting", needed_for=_NEEDED_FOR)
    models = require("bokeh.models", needed_for=_NEEDED_FOR)
    drawing = _Drawing(plotting, models, report, columns)
    figures = {"memory": drawing.memory(), "intervals": drawing.intervals()}
    if report.placed:
        figures["addresses"] = drawing.addresses()
    document = require("bokeh.document", needed_for=_NEEDED_FOR).Document()
    for figure in figures.values():
        document.add_root(figure)
    return {
        "document": document.to_json(deferred=False),
        "roots": {name: figure.id for name, figure in figures.items()},
    }


class _Drawing:
    """Draws with Bokeh."""

    def __init__(self, plotting: Any, models: Any, report: Report, columns: PageColumns) -> None:
        self._plotting = plotting
        self._models = models
        self._report = report
        self._columns = columns
        num_steps = max(1, len(report.steps))
        self._x_range = models.Range1d(0, num_steps, bounds=(0, num_steps), name="x_range")
        self._crosshair = models.Span(dimension="height", line_dash="dotted", line_width=1, name="crosshair")

    def memory(self) -> Any:
        """Bytes held at each step, plainly and as planned; the budget as a line; recomputations as ticks below."""
        columns, unit = self._columns, self._columns.unit
        tops = [self._report.peak_bytes, self._report.plain_peak_bytes or 0, self._report.budget_bytes or 0]
        top = max(1, *tops) / unit.size * 1.06
        figure = self._figure(320, f"held, {unit.name}", self._models.Range1d(-0.06 * top, top))
        source = self._source(columns.curve)
        outline = self._source(_outline(columns.curve))
        for name, color, alpha in (("plain", PLAIN, 0.16), ("held", HELD, 0.5)):
            figure.varea(x="x", y1=0, y2=name, source=outline, fill_color=color, fill_alpha=alpha)
            figure.line(x="x", y=name, source=outline, line_color=color, line_width=1.6)
        if self._report.budget_bytes is not None:
            place = self._report.budget_bytes / unit.size
            budget = self._models.Span(
                location=place, dimension="width", line_color=BUDGET, line_width=2, line_dash=[7, 4], name="budget"
            )
            figure.add_layout(budget)
        is_dense = len(columns.marks["left"]) > _MANY_MARKS
        figure.segment(
            x0="left",
            x1="left",
            y0=-0.055 * top,
            y1=-0.01 * top,
            source=self._source(columns.marks),
            line_color=RECOMPUTED,
            line_width=1.0 if is_dense else 1.5,
            line_alpha=0.4 if is_dense else 1.0,
        )
        hit = figure.quad(
            left="left", right="right", bottom=-0.06 * top, top=top, source=source, fill_alpha=0, line_alpha=0
        )
        held = self._report.held_name
        self._hover(
            figure,
            hit,
            [
                (self._report.step_name, "@step @name"),
                (held, "@held_text"),
                ("plain", "@plain_text"),
                ("", "@what"),
            ],
        )
        return figure

    def intervals(self) -> Any:
        """One row per value, one bar per retention interval, the first value at the top."""
        rows = max(1, self._columns.num_rows)
        figure = self._figure(420, "values, first made on top", self._models.Range1d(rows, 0, bounds=(0, rows)))
        figure.yaxis.major_label_text_font_size = "0px"
        figure.yaxis.ticker = []
        figure.ygrid.visible = False
        bars = figure.quad(
            left="left",
            right="right",
            top="top",
            bottom="bottom",
            source=self._source(self._columns.bars),
            fill_color="color",
            line_color="color",
            line_width=0.6,
        )
        self._hover(figure, bars, self._span_tips())
        return figure

    def addresses(self) -> Any:
        """Blocks at their addresses over the steps; what is not coloured is free."""
        report, unit = self._report, self._columns.unit
        top = max(report.footprint_bytes, report.budget_bytes or 0, 1) / unit.size
        figure = self._figure(400, f"address, {unit.name}", self._models.Range1d(0, top * 1.03, bounds=(0, top * 1.03)))
        figure.tags = ["arena"]
        figure.grid.visible = False
        blocks = figure.quad(
            left="left",
            right="right",
            top="top",
            bottom="bottom",
            source=self._source(self._columns.blocks),
            fill_color="color",
            fill_alpha="shade",
            line_alpha=0,
        )
        if report.budget_bytes is not None:
            line = self._models.Span(
                location=report.budget_bytes / unit.size,
                dimension="width",
                line_color=BUDGET,
                line_width=2,
                line_dash=[7, 4],
            )
            figure.add_layout(line)
        self._hover(figure, blocks, [*self._span_tips(), ("bytes", "@place")])
        return figure

    def _figure(self, height: int, y_label: str, y_range: Any) -> Any:
        models = self._models
        tools = [
            models.BoxZoomTool(dimensions="auto"),
            models.PanTool(),
            models.WheelZoomTool(modifiers={"ctrl": True}),
            models.ResetTool(),
            models.SaveTool(),
        ]
        figure = self._plotting.figure(
            height=height,
            sizing_mode="stretch_width",
            min_border_right=12,
            x_range=self._x_range,
            y_range=y_range,
            x_axis_label=self._report.step_name,
            y_axis_label=y_label,
            tools=tools,
            active_drag=tools[0],
            active_scroll=tools[2],
            toolbar_location="above",
        )
        figure.toolbar.logo = None
        figure.toolbar.stylesheets = [models.InlineStyleSheet(css=TOOLBAR_STYLE)]
        figure.outline_line_color = None
        figure.border_fill_color = None
        figure.background_fill_color = None
        figure.xaxis.name = "x_axis"
        figure.xaxis.formatter = models.NumeralTickFormatter(format="0,0.[000]")
        for axis in figure.axis:
            axis.minor_tick_line_color = None
            axis.axis_label_text_font_style = "normal"
            axis.axis_label_text_font_size = "12px"
            axis.major_label_text_font_size = "12px"
        figure.min_border_left = 62
        return figure

    def _source(self, columns: Columns) -> Any:
        return self._models.ColumnDataSource(data=dict(columns))

    def _span_tips(self) -> list[tuple[str, str]]:
        when = (f"{self._report.step_name}s", "@first to @last")
        return [("", "@name"), ("size", "@size"), ("is", "@kind"), ("by", "@maker"), when]

    def _hover(self, figure: Any, renderer: Any, tips: list[tuple[str, str]]) -> None:
        hover = self._models.HoverTool(renderers=[renderer], tooltips=tips, point_policy="follow_mouse")
        figure.add_tools(hover, self._models.CrosshairTool(overlay=self._crosshair, dimensions="height"))


def _outline(curve: Columns) -> Columns:
    """The curve as corners: each step is flat, and the next one begins where it ends."""
    import numpy as np

    corners: dict[str, Any] = {}
    for name in ("step", "time"):
        corners[f"x_{name}"] = np.stack([curve[f"left_{name}"], curve[f"right_{name}"]], axis=1).ravel()
    corners["x"] = corners["x_step"]
    for name in ("held", "plain"):
        corners[name] = np.repeat(curve[name], 2)
    return corners
