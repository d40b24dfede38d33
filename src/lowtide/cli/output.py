"""How commands write: results to stdout, everything else to stderr, never wider than 80 columns."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lowtide.errors import InputError
from lowtide.ir.serde import is_special_file
from lowtide.units import count_of

__all__ = [
    "StdoutKeptClean",
    "check_writable",
    "count_of",
    "print_error",
    "print_facts",
    "print_json",
    "print_line",
    "print_note",
    "print_table",
    "print_text",
]

_WIDTH = 80


def print_json(document: Any) -> None:
    """Print one JSON object on stdout."""
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")
    sys.stdout.flush()


def print_error(message: str) -> None:
    """Print one line on stderr, whatever the message holds."""
    _write_behind_stdout(f"lowtide: {' '.join(message.split())}\n")


def print_note(message: str) -> None:
    """Print a remark on stderr."""
    _write_behind_stdout(f"{message}\n")


def _write_behind_stdout(text: str) -> None:
    """Write to stderr; where both lead to one file, what was printed before stands before it."""
    try:
        sys.stdout.flush()
    finally:
        sys.stderr.write(text)
        sys.stderr.flush()


def print_text(text: str = "") -> None:
    """Print plain text on stdout, wrapped between words; a long path stays whole."""
    sys.stdout.write(textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False) + "\n")


def print_line(line: str) -> None:
    """Print one line on stdout as it is."""
    sys.stdout.write(f"{line}\n")


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Print names and what they are, in two columns, on stdout."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, fact in facts:
        table.add_row(Text(name, style="bold"), Text(fact))
    _console().print(table)


def print_table(header: Iterable[str], rows: Iterable[Iterable[str]], *, right: Iterable[int] = ()) -> None:
    """Print a table on stdout.

    Args:
        header: Names of the columns.
        rows: Cells, plain text; what is too long goes on below.
        right: Columns (0-based) that are aligned right.
    """
    aligned_right = set(right)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for index, name in enumerate(header):
        table.add_column(name, justify="right" if index in aligned_right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    _console().print(table)


def check_writable(path: Path) -> None:
    """Find out before long work whether its result can be written to a file.

    Raises:
        InputError: Its folder does not exist, the path is a folder, or no file can have that name.
    """
    if is_special_file(path):  # a device or pipe: what it takes shows when it is written
        return
    try:
        is_folder = path.is_dir()
    except OSError as error:
        raise InputError(f"-o {str(path)[:60]}...: {error.strerror}: name another file") from error
    if is_folder:
        raise InputError(f"-o {path}: is a folder: name a file in it")
    if not path.parent.is_dir():
        raise InputError(f"-o {path}: there is no folder {str(path.parent)!r}: create it first")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"-o {path}: the folder {str(path.parent)!r} cannot be written to")


class StdoutKeptClean:
    """Sends to stderr what others print inside: a user's model, a solver, in Python or below it."""

    def __enter__(self) -> None:
        sys.stdout.flush()
        self._kept = _redirect_descriptor()
        self._redirect = contextlib.redirect_stdout(sys.stderr)
        self._redirect.__enter__()

    def __exit__(self, *_: object) -> None:
        self._redirect.__exit__(None, None, None)
        if self._kept is not None:
            _flush_c_streams()  # while they still lead to stderr
            os.dup2(self._kept, 1)
            os.close(self._kept)


def _redirect_descriptor() -> int | None:
    """Point descriptor 1 to stderr; return a duplicate of what it was, or None where one of them is closed."""
    try:
        kept = os.dup(1)
    except OSError:
        return None
    try:
        os.dup2(2, 1)
    except OSError:
        os.close(kept)
        return None
    return kept


def _flush_c_streams() -> None:
    with contextlib.suppress(OSError, AttributeError):  # no C library to be found: nothing of it printed either
        ctypes.CDLL(None).fflush(None)


def _console() -> Console:
    console = Console(highlight=False, markup=False, emoji=False)
    console.width = min(console.width, _WIDTH) if console.is_terminal else _WIDTH
    return console
