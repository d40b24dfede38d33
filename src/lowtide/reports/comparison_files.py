"""Which file a comparison's report becomes, by the ending of its name."""

from __future__ import annotations

import io
import os
from pathlib import Path

from lowtide.comparison.comparing import Comparison
from lowtide.comparison.words import title_of
from lowtide.errors import InputError
from lowtide.ir.serde import write_bytes_atomically
from lowtide.reports.comparison_page import html_of_comparison
from lowtide.reports.comparison_picture import pictures_of
from lowtide.reports.comparison_static import draw_comparison
from lowtide.reports.optional import require_found

__all__ = ["COMPARISON_ENDINGS", "check_comparison_file", "save_comparison"]

_PACKAGE_BY_ENDING = {".html": "bokeh", ".png": "matplotlib", ".svg": "matplotlib"}

COMPARISON_ENDINGS = tuple(_PACKAGE_BY_ENDING)
"""Of files that a comparison's report can be written to."""


def check_comparison_file(path: str | os.PathLike[str]) -> str:
    """Find out before long work whether a file's ending says how to write a report, and what does that is there.

    Returns:
        The ending, one of :data:`COMPARISON_ENDINGS`.

    Raises:
        InputError: It does not.
        MissingDependency: The package that draws it is not installed.
    """
    ending = Path(path).suffix.lower()
    if ending not in _PACKAGE_BY_ENDING:
        endings = f"{', '.join(COMPARISON_ENDINGS[:-1])} or {COMPARISON_ENDINGS[-1]}"
        raise InputError(f"{os.fspath(path)}: a comparison's report ends in {endings}")
    require_found(_PACKAGE_BY_ENDING[ending], needed_for=f"a report as {ending}")
    return ending


def save_comparison(comparison: Comparison, path: str | os.PathLike[str]) -> None:
    """Write the report of a comparison; the file is whole or as it was before.

    Raises:
        InputError: The ending says nothing.
        MissingDependency: What draws that format is not installed.
        FormatError: The file cannot be written.
    """
    ending = check_comparison_file(path)
    if ending == ".html":
        write_bytes_atomically(path, [html_of_comparison(comparison).encode("utf-8", "replace")])
        return
    file = io.BytesIO()
    draw_comparison(title_of(comparison), pictures_of(comparison), file, file_format=ending[1:])
    write_bytes_atomically(path, [file.getvalue()])
