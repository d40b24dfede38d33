"""The report as a picture for papers."""

from __future__ import annotations

import io
import struct
from xml.etree import ElementTree as ET

import pytest
from drawings import HOSTILE, graph_named, plan_of

from lowtide import api
from lowtide.ir import Graph
from lowtide.reports.plan_report import report_of_plan
from lowtide.reports.report import Report
from lowtide.reports.static import draw_report

pytest.importorskip("matplotlib")


def drawn(report: Report, file_format: str) -> bytes:
    file = io.BytesIO()
    draw_report(report, file, file_format=file_format)
    return file.getvalue()


def test_png_is_wide_enough_for_a_column(report: Report) -> None:
    data = drawn(report, "png")
    assert data.startswith(b"\x89PNG\r\n")
    width, height = struct.unpack(">II", data[16:24])
    assert width == 1400
    assert height > 1000


def test_without_addresses_there_is_one_panel_less(report: Report) -> None:
    graph = graph_named()
    without = report_of_plan(graph, api.verify(graph, plan_of(graph, has_layout=False)))
    axes = [svg.count(b'id="axes_') for svg in (drawn(report, "svg"), drawn(without, "svg"))]
    assert axes == [3, 2]


def test_svg_of_hostile_names_is_xml(hostile_report: Report) -> None:
    root = ET.fromstring(drawn(hostile_report, "svg"))
    assert root.tag.endswith("svg")
    assert not [element for element in root.iter() if element.tag.endswith(("script", "img"))]
    assert HOSTILE in hostile_report.title


def test_the_same_report_gives_the_same_bytes(report: Report) -> None:
    assert drawn(report, "svg") == drawn(report, "svg")
    assert drawn(report, "png") == drawn(report, "png")


def test_a_report_of_nothing_can_be_drawn() -> None:
    graph = Graph(name="", inputs=(), nodes=(), outputs=(), order=())
    report = report_of_plan(graph, api.require_plan(api.plan(graph, budget=1024), graph))
    assert drawn(report, "svg").startswith(b"<?xml")
