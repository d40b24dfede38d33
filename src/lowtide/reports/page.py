"""The report as one HTML file that needs nothing else: script, style and figures are inside.

Its content security policy forbids every request, so the browser itself sees to it that there is none. Whatever comes
from outside (names of graphs, nodes, values, modules) is escaped: as HTML where it is text, and as JSON without ``<``
where it is data.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from importlib import resources
from typing import Any

from lowtide.reports.page_columns import PageColumns, page_columns
from lowtide.reports.page_plots import bokeh_script, plot_document
from lowtide.reports.report import Fact, Report, Span, SpanKind, largest_at
from lowtide.units import format_bytes

__all__ = ["html_of_report"]

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:"
)
_ABOUT_MEMORY = (
    "Bytes held at each {step}. Plain is the same program without recomputation, stretched over the {step}s that "
    "recompute, so that both curves show the same place. Drag to zoom all pictures, hold Ctrl to zoom with the wheel."
)
_ABOUT_INTERVALS = (
    "One row per value, one bar for each span of {step}s in which a copy of it is held: a second bar in a row is a "
    "copy computed again."
)
_ABOUT_ADDRESSES = (
    "Where the bytes lie at each {step}. Ground between blocks is free: what is cut into pieces there is fragmentation."
)
_VARIABLE_BY_KIND = {
    SpanKind.FIRST: "--held",
    SpanKind.RECOMPUTED: "--recomputed",
    SpanKind.INPUT: "--input",
    SpanKind.WORKSPACE: "--workspace",
}


def html_of_report(report: Report) -> str:
    """Write a report as a page.

    Args:
        report: What to show.

    Returns:
        One HTML document.

    Raises:
        MissingDependency: Bokeh is not installed.
    """
    columns = page_columns(report)
    data = {**plot_document(report, columns), "axes": _axes(report, columns)}
    body = "\n".join(
        [
            _header(report),
            "<main>",
            _cards(report.headlines),
            _memory_section(report),
            _intervals_section(report),
            _addresses_section(report),
            _tensors_section(report),
            _facts_section(report),
            "</main>",
            _footer(report, columns),
        ]
    )
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{_text(report.title)} · lowtide</title>",
            f"<style>{_asset('report.css')}</style>",
            "</head>",
            "<body>",
            body,
            f'<script type="application/json" id="data">{_json(data)}</script>',
            f"<script>{bokeh_script()}</script>",
            f"<script>{_asset('report.js')}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _axes(report: Report, columns: PageColumns) -> dict[str, Any]:
    end = report.start_by_step[-1] / columns.clock.size
    return {
        "step": {"end": max(1, len(report.steps)), "label": report.step_name},
        "time": {"end": end or 1, "label": f"time, {columns.clock.name}"},
    }


def _header(report: Report) -> str:
    has_time = report.start_by_step[-1] > 0
    axis = _switch("axis", [("step", f"{report.step_name}s"), ("time", "time")], pressed="step") if has_time else ""
    theme = _switch("theme", [("light", "light"), ("dark", "dark")], pressed="")
    return (
        f'<header><div class="heading"><p class="brand">lowtide report</p><h1>{_text(report.title)}</h1>'
        f'<p class="subtitle">{_text(report.subtitle)}</p></div><div class="switches">{axis}{theme}</div></header>'
    )


def _switch(name: str, choices: Iterable[tuple[str, str]], *, pressed: str) -> str:
    buttons = "".join(
        f'<button type="button" data-set-{name}="{key}" aria-pressed="{str(key == pressed).lower()}">{label}</button>'
        for key, label in choices
    )
    return f'<div class="switch" role="group" aria-label="{name}">{buttons}</div>'


def _cards(headlines: Iterable[Fact]) -> str:
    cards = []
    for fact in headlines:
        kind = "detail fewer" if fact.detail.startswith("−") else "detail"
        cards.append(
            f'<div class="card"><dt>{_text(fact.name)}</dt><dd><div class="figure">{_text(fact.text)}</div>'
            f'<div class="{kind}">{_text(fact.detail)}</div></dd></div>'
        )
    return f'<dl class="cards">{"".join(cards)}</dl>'


def _memory_section(report: Report) -> str:
    legend = [_key("plain", "--plain")] if report.plain_peak_bytes is not None else []
    legend.append(_key(report.held_name, "--held"))
    if report.budget_bytes is not None:
        legend.append(_key(f"{report.budget_name} {format_bytes(report.budget_bytes)}", "--budget", "line"))
    if any(step.is_recompute for step in report.steps):
        legend.append(_key("recomputation", "--recomputed", "tick"))
    return _plot_section(f"Memory over {report.step_name}s", _ABOUT_MEMORY, "memory", legend, report)


def _intervals_section(report: Report) -> str:
    return _plot_section("Retention intervals", _ABOUT_INTERVALS, "intervals", _kind_keys(report.spans), report)


def _addresses_section(report: Report) -> str:
    if not report.placed:
        return ""
    legend = [*_kind_keys(report.placed), _key("free", "--free", "free")]
    if report.budget_bytes is not None:
        legend.append(_key(f"{report.budget_name} {format_bytes(report.budget_bytes)}", "--budget", "line"))
    return _plot_section(f"Addresses over {report.step_name}s", _ABOUT_ADDRESSES, "addresses", legend, report)


def _kind_keys(spans: Iterable[Span]) -> list[str]:
    present = {span.kind for span in spans}
    return [_key(str(kind), _VARIABLE_BY_KIND[kind]) for kind in SpanKind if kind in present]


def _key(label: str, variable: str, shape: str = "") -> str:
    paint = f"border-color:var({variable})" if shape == "line" else f"background:var({variable})"
    return f'<li><i class="{shape}" style="{paint}"></i>{_text(label)}</li>'


def _plot_section(title: str, about: str, name: str, legend: Iterable[str], report: Report) -> str:
    return (
        f'<section aria-labelledby="{name}-title"><h2 id="{name}-title">{_text(title)}</h2>'
        f'<p class="about">{_text(about.format(step=report.step_name))}</p>'
        f'<ul class="legend">{"".join(legend)}</ul><div class="plot" id="{name}"></div></section>'
    )


def _tensors_section(report: Report) -> str:
    largest = largest_at(report.spans, report.peak_step)
    if not largest or report.peak_step is None:
        return ""
    has_modules = any(span.module for span in largest)
    most = largest[0].size_bytes or 1
    head = "<th>tensor</th>" + ("<th>module</th>" if has_modules else "")
    head += '<th class="op">made by</th><th class="size">size</th><th class="size">share</th><th class="share"></th>'
    rows = "".join(_tensor_row(span, most, report.peak_bytes, has_modules=has_modules) for span in largest)
    where = report.steps[report.peak_step].name
    about = (
        f"Held at the peak of {format_bytes(report.peak_bytes)}, {report.step_name} {report.peak_step:,} ({where}); "
        f"the share is of that peak."
    )
    title = "Largest tensor at the peak" if len(largest) == 1 else f"The {len(largest)} largest tensors at the peak"
    return (
        f'<section class="tensors"><h2>{title}</h2><p class="about">{_text(about)}</p><div class="scroll">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></section>"
    )


def _tensor_row(span: Span, most_bytes: int, peak_bytes: int, *, has_modules: bool) -> str:
    copy = f' <span class="kind">{_text(str(span.kind))}</span>' if span.kind is not SpanKind.FIRST else ""
    module = f'<td class="module">{_text(span.module)}</td>' if has_modules else ""
    share = 100 * span.size_bytes / peak_bytes if peak_bytes else 0.0
    width = f"width:{100 * span.size_bytes / most_bytes:.1f}%;background:var({_VARIABLE_BY_KIND[span.kind]})"
    return (
        f'<tr><td>{_text(span.name)}{copy}</td>{module}<td class="op">{_text(span.maker)}</td>'
        f'<td class="size">{format_bytes(span.size_bytes)}</td><td class="size">{share:.1f} %</td>'
        f'<td class="share"><div class="bar" style="{width}"></div></td></tr>'
    )


def _facts_section(report: Report) -> str:
    rows = "".join(
        f"<tr><th scope='row'>{_text(fact.name)}</th><td>{_text(fact.text)}</td><td>{_text(fact.detail)}</td></tr>"
        for fact in report.facts
    )
    table = f"<table><tbody>{rows}</tbody></table>"
    return f'<section class="facts"><h2>Figures</h2><div class="scroll">{table}</div></section>'


def _footer(report: Report, columns: PageColumns) -> str:
    import lowtide

    notes = "".join(f"<p>{_text(note)}</p>" for note in (*report.notes, *columns.notes))
    return (
        f"<footer>{notes}<p>lowtide {_text(lowtide.__version__)}. Drawn by BokehJS, © Anaconda, Inc., and Bokeh "
        "Contributors, BSD 3-Clause; its licence is inside this file.</p></footer>"
    )


def _text(text: str) -> str:
    return html.escape(text)


def _json(data: Any) -> str:
    """JSON that can stand in a script element, whatever names it holds."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _asset(name: str) -> str:
    return resources.files("lowtide.reports").joinpath("assets", name).read_text(encoding="utf-8")
