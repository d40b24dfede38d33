"""The report as a page: what is in it, that nothing comes from elsewhere, and that names stay names."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

import pytest
from drawings import HOSTILE, graph_named, plan_of

from lowtide import api
from lowtide.importers.generate import graph_from_spec
from lowtide.ir import Graph, Trace
from lowtide.reports.page import html_of_report
from lowtide.reports.page_parts import breakable
from lowtide.reports.plan_report import report_of_plan
from lowtide.reports.report import Report, largest_at
from lowtide.reports.trace_report import report_of_trace

pytest.importorskip("bokeh", reason="needs Bokeh: pip install -c constraints.txt '.[report]'")


class Page(HTMLParser):
    """Tags with their attributes, and the text of each element; where a word may break, it is one still."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self._goes_on = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._goes_on = tag == "wbr" and not attrs
        if self._goes_on:
            return
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open:
            texts = self.texts.setdefault(self._open[-1], [])
            texts.append(texts.pop() + data if self._goes_on else data)
        self._goes_on = False

    def data(self) -> Any:
        return json.loads(self.texts["script"][0])


def test_every_part_is_there(report: Report) -> None:
    page = Page(html_of_report(report))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert {"memory", "intervals", "addresses", "data"} <= set(ids)
    headings = ["Memory over steps", "Retention intervals", "Addresses over steps"]
    assert page.texts["h2"] == [*headings, "The 3 largest tensors at the peak", "Figures"]
    assert "encoder.a" in page.texts["td"]
    assert {"24 B", "17 B", "−29.2 %", "+25.00 %"} <= set(page.texts["div"])
    assert set(page.data()["roots"]) == {"memory", "intervals", "addresses"}


def test_bars_are_shares_of_the_peak() -> None:
    graph = graph_from_spec("generate:transformer?layers=2")
    report = report_of_plan(graph, api.require_plan(api.plan(graph, budget="70%", planner="greedy"), graph))
    page = Page(html_of_report(report))
    largest = largest_at(report.spans, report.peak_step)
    shares = [f"{100 * span.size_bytes / report.peak_bytes:.1f}" for span in largest]
    bars = [attributes["style"] or "" for _, attributes in page.tags if attributes.get("class") == "bar"]
    assert [style.partition(";")[0] for style in bars] == [f"width:{share}%" for share in shares]
    texts = page.texts["td"]
    assert all(f"{share} %" in texts for share in shares)
    assert float(shares[0]) < 50
    together = 100 * sum(span.size_bytes for span in largest) / report.peak_bytes
    (about,) = [text for text in page.texts["p"] if text.startswith("Held at the peak")]
    assert about.endswith(f"shares and bars are of that peak, of which these are {together:.1f} %.")


def test_names_break_between_their_parts() -> None:
    assert breakable("model.layer_3") == "model.<wbr>layer_<wbr>3"
    assert breakable("aten._softmax") == "aten._<wbr>softmax"
    assert breakable("<a.b>") == "&lt;a.<wbr>b&gt;"


def test_nothing_comes_from_elsewhere(report: Report) -> None:
    page = Page(html_of_report(report))
    assert not [tag for tag, attributes in page.tags if {"src", "href", "srcset", "data"} & set(attributes)]
    assert not [tag for tag, _ in page.tags if tag in ("link", "iframe", "img", "object", "base")]
    policy = next(attributes["content"] for tag, attributes in page.tags if "http-equiv" in attributes)
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy


def test_hostile_names_stay_names(report: Report, hostile_report: Report) -> None:
    plain, hostile = Page(html_of_report(report)), Page(html_of_report(hostile_report))
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in plain.tags]
    assert hostile.texts["h1"] == [f"{HOSTILE}four"]
    assert f"{HOSTILE}encoder.a" in hostile.texts["td"]
    assert "<" not in hostile.texts["script"][0]


def test_without_addresses_there_is_no_map() -> None:
    graph = graph_named()
    report = report_of_plan(graph, api.verify(graph, plan_of(graph, has_layout=False)))
    page = Page(html_of_report(report))
    assert set(page.data()["roots"]) == {"memory", "intervals"}
    assert any("no addresses to show" in text for text in page.texts["p"])


def test_a_report_of_nothing_is_a_page(trace: Trace) -> None:
    graph = Graph(name="", inputs=(), nodes=(), outputs=(), order=())
    report = report_of_plan(graph, api.require_plan(api.plan(graph, budget=1024), graph))
    assert Page(html_of_report(report)).texts["h1"] == ["unnamed graph"]


def test_a_trace_counts_ops(trace: Trace) -> None:
    page = Page(html_of_report(report_of_trace(trace)))
    assert page.texts["h2"][0] == "Memory over ops"
    assert page.data()["axes"] == {"step": {"end": 5, "label": "op"}, "time": {"end": 50.0, "label": "time, units"}}


def test_ten_thousand_nodes_are_below_five_megabytes() -> None:
    graph = graph_from_spec("generate:transformer?layers=420")
    assert len(graph.nodes) > 10_000
    result = api.plan(graph, budget="100%", planner="greedy", bound=False, time_limit_seconds=5)
    text = html_of_report(report_of_plan(graph, api.require_plan(result, graph)))
    assert len(text.encode()) < 5_000_000
    notes = Page(text).texts["p"]
    assert any(note.startswith("The curves go through ") for note in notes)
    assert any(note.startswith("Bars are shown for 250 of ") for note in notes)
