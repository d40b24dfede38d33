"""The report as one HTML file that needs nothing else: script, style and figures are inside."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lowtide.reports.page_columns import PageColumns, page_columns
from lowtide.reports.page_parts import breakable, cards, document, escaped, footer, header, legend_key, switch
from lowtide.reports.page_plots import plot_document
from lowtide.reports.report import Report, Span, SpanKind, largest_at
from lowtide.units import format_bytes

__all__ = ["html_of_report"]

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
            cards(report.headlines),
            _memory_section(report),
            _intervals_section(report),
            _addresses_section(report),
            _tensors_section(report),
            _facts_section(report),
            "</main>",
            footer((*report.notes, *columns.notes)),
        ]
    )
    return document(report.title, body, data)


def _axes(report: Report, columns: PageColumns) -> dict[str, Any]:
    end = report.start_by_step[-1] / columns.clock.size
    return {
        "step": {"end": max(1, len(report.steps)), "label": report.step_name},
        "time": {"end": end or 1, "label": f"time, {columns.clock.name}"},
    }


def _header(report: Report) -> str:
    has_time = report.start_by_step[-1] > 0
    axis = switch("axis", [("step", f"{report.step_name}s"), ("time", "time")], pressed="step") if has_time else ""
    return header("lowtide report", report.title, report.subtitle, axis)


def _memory_section(report: Report) -> str:
    legend = [legend_key("plain", "--plain")] if report.plain_peak_bytes is not None else []
    legend.append(legend_key(report.held_name, "--held"))
    if report.budget_bytes is not None:
        legend.append(legend_key(f"{report.budget_name} {format_bytes(report.budget_bytes)}", "--budget", "line"))
    if any(step.is_recompute for step in report.steps):
        legend.append(legend_key("recomputation", "--recomputed", "tick"))
    return _plot_section(f"Memory over {report.step_name}s", _ABOUT_MEMORY, "memory", legend, report)


def _intervals_section(report: Report) -> str:
    return _plot_section("Retention intervals", _ABOUT_INTERVALS, "intervals", _kind_keys(report.spans), report)


def _addresses_section(report: Report) -> str:
    if not report.placed:
        return ""
    legend = [*_kind_keys(report.placed), legend_key("free", "--free", "free")]
    if report.budget_bytes is not None:
        legend.append(legend_key(f"{report.budget_name} {format_bytes(report.budget_bytes)}", "--budget", "line"))
    return _plot_section(f"Addresses over {report.step_name}s", _ABOUT_ADDRESSES, "addresses", legend, report)


def _kind_keys(spans: Iterable[Span]) -> list[str]:
    present = {span.kind for span in spans}
    return [legend_key(str(kind), _VARIABLE_BY_KIND[kind]) for kind in SpanKind if kind in present]


def _plot_section(title: str, about: str, name: str, legend: Iterable[str], report: Report) -> str:
    return (
        f'<section aria-labelledby="{name}-title"><h2 id="{name}-title">{escaped(title)}</h2>'
        f'<p class="about">{escaped(about.format(step=report.step_name))}</p>'
        f'<ul class="legend">{"".join(legend)}</ul><div class="plot" id="{name}"></div></section>'
    )


def _tensors_section(report: Report) -> str:
    largest = largest_at(report.spans, report.peak_step)
    if not largest or report.peak_step is None:
        return ""
    has_modules = any(span.module for span in largest)
    head = "<th>tensor</th>" + ("<th>module</th>" if has_modules else "")
    head += '<th class="op">made by</th><th class="size">size</th><th class="size">share</th><th class="share"></th>'
    rows = "".join(_tensor_row(span, report.peak_bytes, has_modules=has_modules) for span in largest)
    held = sum(span.size_bytes for span in largest)
    where = report.steps[report.peak_step].name
    about = (
        f"Held at the peak of {format_bytes(report.peak_bytes)}, {report.step_name} {report.peak_step:,} ({where}); "
        f"shares and bars are of that peak, of which these are {_percent(held, report.peak_bytes):.1f} %."
    )
    title = "Largest tensor at the peak" if len(largest) == 1 else f"The {len(largest)} largest tensors at the peak"
    return (
        f'<section class="tensors"><h2>{title}</h2><p class="about">{escaped(about)}</p><div class="scroll">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></section>"
    )


def _tensor_row(span: Span, peak_bytes: int, *, has_modules: bool) -> str:
    copy = f' <span class="kind">{escaped(str(span.kind))}</span>' if span.kind is not SpanKind.FIRST else ""
    module = f'<td class="module">{breakable(span.module)}</td>' if has_modules else ""
    share = _percent(span.size_bytes, peak_bytes)
    width = f"width:{share:.1f}%;background:var({_VARIABLE_BY_KIND[span.kind]})"
    return (
        f'<tr><td>{breakable(span.name)}{copy}</td>{module}<td class="op">{breakable(span.maker)}</td>'
        f'<td class="size">{format_bytes(span.size_bytes)}</td><td class="size">{share:.1f} %</td>'
        f'<td class="share"><div class="track"><div class="bar" style="{width}"></div></div></td></tr>'
    )


def _percent(part_bytes: int, whole_bytes: int) -> float:
    return 100 * part_bytes / whole_bytes if whole_bytes else 0.0


def _facts_section(report: Report) -> str:
    rows = "".join(
        f"<tr><th scope='row'>{escaped(fact.name)}</th><td>{escaped(fact.text)}</td>"
        f"<td>{escaped(fact.detail)}</td></tr>"
        for fact in report.facts
    )
    table = f"<table><tbody>{rows}</tbody></table>"
    return f'<section class="facts"><h2>Figures</h2><div class="scroll">{table}</div></section>'
