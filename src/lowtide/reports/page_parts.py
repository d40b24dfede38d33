"""What every page is made of: the document around it, cards, legends, and text that stays text.

The content security policy forbids every request, so the browser itself sees to it that there is none. Whatever comes
from outside (names of graphs, nodes, values, modules) is escaped: as HTML where it is text, and as JSON without ``<``
where it is data.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable
from importlib import resources
from typing import Any

from lowtide.reports.page_plots import bokeh_script
from lowtide.reports.report import Fact

__all__ = ["breakable", "cards", "document", "escaped", "footer", "header", "legend_key", "switch"]

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:"
)


def document(title: str, body: str, data: Any) -> str:
    """One HTML document: style, data and scripts are inside.

    Args:
        title: Of the window, plain text.
        body: HTML.
        data: For ``report.js``, for JSON.

    Raises:
        MissingDependency: Bokeh is not installed.
    """
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escaped(title)} · lowtide</title>",
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


def header(brand: str, title: str, subtitle: str, switches: str = "") -> str:
    """The page's head: what it is, of what, and its switches; that of the theme is always there."""
    theme = switch("theme", [("light", "light"), ("dark", "dark")], pressed="")
    return (
        f'<header><div class="heading"><p class="brand">{escaped(brand)}</p><h1>{escaped(title)}</h1>'
        f'<p class="subtitle">{escaped(subtitle)}</p></div><div class="switches">{switches}{theme}</div></header>'
    )


def switch(name: str, choices: Iterable[tuple[str, str]], *, pressed: str) -> str:
    """Buttons of which one is pressed."""
    buttons = "".join(
        f'<button type="button" data-set-{name}="{key}" aria-pressed="{str(key == pressed).lower()}">{label}</button>'
        for key, label in choices
    )
    return f'<div class="switch" role="group" aria-label="{name}">{buttons}</div>'


def cards(headlines: Iterable[Fact]) -> str:
    """The few figures that matter most."""
    made = []
    for fact in headlines:
        kind = "detail fewer" if fact.detail.startswith("−") else "detail"
        made.append(
            f'<div class="card"><dt>{escaped(fact.name)}</dt><dd><div class="figure">{escaped(fact.text)}</div>'
            f'<div class="{kind}">{escaped(fact.detail)}</div></dd></div>'
        )
    return f'<dl class="cards">{"".join(made)}</dl>'


def legend_key(label: str, variable: str, shape: str = "") -> str:
    """An entry of a legend: a colour of ``report.css``, and a shape of its ``.legend``; a box without one."""
    paint = f"border-color:var({variable})" if shape.startswith("line") else f"background:var({variable})"
    return f'<li><i class="{shape}" style="{paint}"></i>{escaped(label)}</li>'


def footer(notes: Iterable[str]) -> str:
    """Notes, and by whom the page is drawn."""
    import lowtide

    paragraphs = "".join(f"<p>{escaped(note)}</p>" for note in notes)
    return (
        f"<footer>{paragraphs}<p>lowtide {escaped(lowtide.__version__)}. Drawn by BokehJS, © Anaconda, Inc., and Bokeh "
        "Contributors, BSD 3-Clause; its licence is inside this file.</p></footer>"
    )


def escaped(text: str) -> str:
    """Text as HTML."""
    return html.escape(text)


def breakable(name: str) -> str:
    """A name as HTML that breaks between its parts: ``model.layer_3`` after the dot or the underscore."""
    return re.sub(r"(?<=[./_])(?=[^./_])", "<wbr>", html.escape(name))


def _json(data: Any) -> str:
    """JSON that can stand in a script element, whatever names it holds."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _asset(name: str) -> str:
    return resources.files("lowtide.reports").joinpath("assets", name).read_text(encoding="utf-8")
