"""Which file a report becomes, by its ending."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from lowtide.errors import InputError, MissingDependency
from lowtide.extras import how_to_install
from lowtide.reports.files import ENDINGS, check_report_file, save_report
from lowtide.reports.optional import require
from lowtide.reports.report import Report


def test_endings_are_those_of_the_formats() -> None:
    assert ENDINGS == (".html", ".png", ".svg", ".perfetto.json", ".pickle")
    assert check_report_file("Some.PERFETTO.json") == ".perfetto.json"


@pytest.mark.parametrize("name", ["report.pdf", "report", "report.json", "html"])
def test_another_ending_is_refused(name: str) -> None:
    with pytest.raises(InputError) as caught:
        check_report_file(name)
    assert str(caught.value) == f"{name}: a report's file ends in .html, .png, .svg, .perfetto.json or .pickle"


@pytest.mark.parametrize(
    ("ending", "start", "package"),
    [
        (".html", b"<!doctype html>", "bokeh"),
        (".png", b"\x89PNG", "matplotlib"),
        (".svg", b"<?xml", "matplotlib"),
        (".perfetto.json", b'{"displayTimeUnit"', "json"),
        (".pickle", b"\x80\x04", "pickle"),
    ],
)
def test_files_are_what_their_endings_say(
    report: Report, tmp_path: Path, ending: str, start: bytes, package: str
) -> None:
    pytest.importorskip(package)
    path = tmp_path / f"report{ending}"
    save_report(report, path)
    assert path.read_bytes().startswith(start)
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> ModuleType:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(MissingDependency) as caught:
        require("bokeh.plotting", needed_for="a report as HTML")
    assert str(caught.value) == f"a report as HTML needs the package 'bokeh': {how_to_install('report')}"


def test_a_missing_package_is_named_before_long_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependency) as caught:
        check_report_file("report.html")
    assert str(caught.value) == f"a report as .html needs the package 'bokeh': {how_to_install('report')}"
    assert check_report_file("report.pickle") == ".pickle"
