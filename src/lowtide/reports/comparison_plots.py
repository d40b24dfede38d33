"""The pictures of a comparison, made by Bokeh."""

from __future__ import annotations

from typing import Any

from lowtide.reports.comparison_picture import Group, Picture, height_of, ticks_between
from lowtide.reports.optional import require
from lowtide.reports.page_plots import TOOLBAR_STYLE
from lowtide.reports.palette import BUDGET, HELD, PLAIN, RECOMPUTED

__all__ = ["COLOR_BY_GROUP", "comparison_document"]

_NEEDED_FOR = "a report as HTML"
COLOR_BY_GROUP = {Group.PLAIN: "#8a939c", Group.OURS: HELD, Group.OTHERS: PLAIN, Group.PEERS: RECOMPUTED}
_MARKER_BY_GROUP = {
    Group.PLAIN: "square",
    Group.OURS: "circle",
    Group.OTHERS: "diamond",
    Group.PEERS: "triangle",
}
_SIZE, _SIZE_ON_FRONT = 9, 13
_LABEL_DISTANCE = 9
_DASH_BY_ORDER = {"given order": [7, 4], "any order": [2, 4]}


def comparison_document(pictures: tuple[Picture, ...]) -> dict[str, Any]:
    """One JSON document that BokehJS draws.

    Args:
        pictures: At least one.

    Returns:
        ``document`` and ``roots``: the id of each plot's root by the id of the page's element that shows it.
    """
    plotting = require("bokeh.plotting", needed_for=_NEEDED_FOR)
    models = require("bokeh.models", needed_for=_NEEDED_FOR)
    document = require("bokeh.document", needed_for=_NEEDED_FOR).Document()
    roots = {}
    for picture in pictures:
        figure = _draw(picture, plotting, models)
        document.add_root(figure)
        roots[picture.key] = figure.id
    return {"document": document.to_json(deferred=False), "roots": roots}


def _draw(picture: Picture, plotting: Any, models: Any) -> Any:
    figure = _figure(picture, plotting, models)
    for order, corners in picture.bounds.items():
        figure.line(
            [memory for memory, _ in corners],
            [height_of(increase) for _, increase in corners],
            line_color=BUDGET,
            line_width=2,
            line_dash=_DASH_BY_ORDER[order],
        )
    front = figure.line(
        [memory for memory, _ in picture.front],
        [height_of(increase) for _, increase in picture.front],
        line_width=1.6,
        line_alpha=0.7,
    )
    front.glyph.name = "front"
    renderers = [_draw_group(figure, picture, group, models) for group in picture.name_by_group]
    _draw_labels(figure, picture, models)
    tips = [("", "@method"), ("budget", "@budget"), ("memory", "@memory"), ("time", "@time"), ("", "@status")]
    figure.add_tools(models.HoverTool(renderers=renderers, tooltips=tips, point_policy="snap_to_data"))
    return figure


def _draw_labels(figure: Any, picture: Picture, models: Any) -> None:
    is_left = [picture.is_far_right(label) for label in picture.labels]
    source = models.ColumnDataSource(
        data={
            "x": [label.memory_percent for label in picture.labels],
            "y": [height_of(label.increase_percent) for label in picture.labels],
            "text": [label.text for label in picture.labels],
            "align": ["right" if left else "left" for left in is_left],
            "beside": [-_LABEL_DISTANCE if left else _LABEL_DISTANCE for left in is_left],
        }
    )
    labels = models.Text(x="x", y="y", text="text", text_align="align", x_offset="beside", y_offset=-7, name="label")
    labels.text_font_size = "12px"
    figure.add_glyph(source, labels)


def _draw_group(figure: Any, picture: Picture, group: Group, models: Any) -> Any:
    points = [point for point in picture.points if point.group is group]
    columns = dict(
        zip(("method", "budget", "memory", "time", "status"), zip(*(p.texts for p in points), strict=True), strict=True)
    )
    source = models.ColumnDataSource(
        data={
            **{name: list(texts) for name, texts in columns.items()},
            "x": [point.memory_percent for point in points],
            "y": [height_of(point.increase_percent) for point in points],
            "size": [_SIZE_ON_FRONT if point.is_on_front else _SIZE for point in points],
            "shade": [1.0 if point.is_on_front else 0.45 for point in points],
        }
    )
    return figure.scatter(
        "x",
        "y",
        source=source,
        marker=_MARKER_BY_GROUP[group],
        size="size",
        fill_color=COLOR_BY_GROUP[group],
        fill_alpha="shade",
        line_color=COLOR_BY_GROUP[group],
    )


def _figure(picture: Picture, plotting: Any, models: Any) -> Any:
    low, high = picture.increase_range
    ticks = ticks_between(low, high)
    tools = [
        models.BoxZoomTool(dimensions="auto"),
        models.PanTool(),
        models.WheelZoomTool(modifiers={"ctrl": True}),
        models.ResetTool(),
        models.SaveTool(),
    ]
    figure = plotting.figure(
        height=460,
        sizing_mode="stretch_width",
        min_border_left=62,
        min_border_right=12,
        x_range=models.Range1d(*picture.memory_range),
        y_range=models.Range1d(low, high),
        x_axis_label=picture.x_name,
        y_axis_label=picture.y_name,
        tools=tools,
        active_drag=tools[0],
        active_scroll=tools[2],
        toolbar_location="above",
    )
    figure.toolbar.logo = None
    figure.toolbar.stylesheets = [models.InlineStyleSheet(css=TOOLBAR_STYLE)]
    figure.outline_line_color = figure.border_fill_color = figure.background_fill_color = None
    figure.yaxis.ticker = models.FixedTicker(ticks=list(ticks))
    figure.yaxis.major_label_overrides = dict(ticks)
    figure.xaxis.formatter = models.NumeralTickFormatter(format="0.[00]")
    for axis in figure.axis:
        axis.minor_tick_line_color = None
        axis.axis_label_text_font_style = "normal"
        axis.axis_label_text_font_size = axis.major_label_text_font_size = "12px"
    return figure
