"""Which file a report becomes, by the ending of its name."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path

from lowtide.errors import InputError
from lowtide.ir.serde import write_bytes_atomically
from lowtide.reports.memory_viz import memory_viz_pickle
from lowtide.reports.optional import require_found
from lowtide.reports.page import html_of_report
from lowtide.reports.perfetto import perfetto_document
from lowtide.reports.report import Report
from lowtide.reports.static import draw_report

__all__ = ["ENDINGS", "check_report_file", "save_report"]


def save_report(report: Report, path: str | os.PathLike[str]) -> None:
    """Write a report; the file is whole or as it was before.

    Args:
        report: What to write.
        path: Its ending says how: one of :data:`ENDINGS`.

    Raises:
        InputError: The ending is none of them.
        MissingDependency: What draws that format is not installed.
    """
    write = _WRITER_BY_ENDING[check_report_file(path)]
    write_bytes_atomically(path, [write(report)])


def check_report_file(path: str | os.PathLike[str]) -> str:
    """Find out before long work whether a file's ending says how to write a report, and what does that is there.

    Returns:
        The ending, one of :data:`ENDINGS`.

    Raises:
        InputError: It does not.
        MissingDependency: The package that draws it is not installed.
    """
    name = Path(path).name.lower()
    for ending in ENDINGS:
        if name.endswith(ending):
            require_found(_PACKAGE_BY_ENDING.get(ending), needed_for=f"a report as {ending}")
            return ending
    raise InputError(f"{os.fspath(path)}: a report's file ends in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}")


def _html(report: Report) -> bytes:
    return html_of_report(report).encode("utf-8", "replace")


def _picture(file_format: str) -> Callable[[Report], bytes]:
    def write(report: Report) -> bytes:
        file = io.BytesIO()
        draw_report(report, file, file_format=file_format)
        return file.getvalue()

    return write


def _perfetto(report: Report) -> bytes:
    return json.dumps(perfetto_document(report), separators=(",", ":"), allow_nan=False).encode()


_WRITER_BY_ENDING: dict[str, Callable[[Report], bytes]] = {
    ".html": _html,
    ".png": _picture("png"),
    ".svg": _picture("svg"),
    ".perfetto.json": _perfetto,
    ".pickle": memory_viz_pickle,
}

_PACKAGE_BY_ENDING = {".html": "bokeh", ".png": "matplotlib", ".svg": "matplotlib"}

ENDINGS = tuple(_WRITER_BY_ENDING)
"""Of files that a report can be written to."""
