"""Rows as JSON lines (``lowtide.comparison``, version 1), written as they come and read again to go on.

{"format": "lowtide.comparison", "version": 1, "graph_sha256": ..., "durations": [...], "options": {...}}
{"kind": "planner", "method": "search", "budget": "60%", "outcome": "optimal", ...}        one line per cell
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from lowtide.comparison.rows import Cell, CellKey, Kind, Outcome, Row
from lowtide.errors import FormatError, InputError
from lowtide.ir import Graph, Scope
from lowtide.ir.serde import compact_json, graph_sha256, is_special_file, scope_from_document
from lowtide.ir.serde.fields import Fields
from lowtide.ir.serde.files import name_of_file, parse_json, read_text

__all__ = ["RecordedRows", "ResultsWriter", "continue_rows", "open_results"]

_FORMAT, _VERSION = "lowtide.comparison", 1


@dataclass(frozen=True, slots=True)
class RecordedRows:
    """What a file holds already.

    Attributes:
        graph: The graph with the durations of the file: all of its rows are on one cost model.
        row_by_key: Its rows by their cells.
        num_unfinished: Lines that were being written when an earlier run was ended: 0 or 1.
    """

    graph: Graph
    row_by_key: Mapping[CellKey, Row]
    num_unfinished: int = 0


def continue_rows(path: Path | None, graph: Graph, options: Mapping[str, object], *, is_profiled: bool) -> RecordedRows:
    """Read what an earlier run has written, if it was of the same graph with the same options.

    Args:
        path: A file that need not exist; None is none.
        graph: What is to be compared.
        options: Of the comparison, for JSON.
        is_profiled: Whether the graph's durations were measured just now: then those of the file are taken instead.

    Raises:
        FormatError: A line is broken; the message has its number.
        InputError: The file is of something else.
    """
    if path is None or is_special_file(path) or not path.exists():
        return RecordedRows(graph, {})
    text = read_text(path)
    lines = text.split("\n")
    unfinished = lines.pop()  # whatever follows the last line feed
    where = name_of_file(path)
    if not lines:
        if unfinished:
            raise FormatError(f"{where}: line 1: no results of lowtide compare: name another file")
        return RecordedRows(graph, {})
    recorded = _graph_of_header(lines[0], graph, options, where, is_profiled=is_profiled)
    row_by_key: dict[CellKey, Row] = {}
    for number, line in enumerate(lines[1:], start=2):
        row = _row_of_line(line, f"{where}: line {number}")
        if row.cell.key in row_by_key:
            raise FormatError(f"{where}: line {number}: {row.cell} has a row already: remove one of them")
        row_by_key[row.cell.key] = row
    return RecordedRows(recorded, row_by_key, 1 if unfinished else 0)


@contextmanager
def open_results(path: Path | None, recorded: RecordedRows, options: Mapping[str, object]) -> Iterator[ResultsWriter]:
    """Go on writing where an earlier run ended.

    Args:
        path: The file, or None to write nothing.
        recorded: What ``continue_rows`` found in it.
        options: As there.

    Raises:
        FormatError: The file cannot be written.
    """
    if path is None:
        yield ResultsWriter(None, "")
        return
    where = name_of_file(path)
    try:
        if recorded.num_unfinished:
            _drop_unfinished_line(path)
        file = path.open("ab", buffering=0)  # a line is written, or it is said at once that it is not
    except OSError as error:
        raise FormatError(f"{where}: cannot be written: {error.strerror or error}") from None
    with file:
        writer = ResultsWriter(file, where)
        if is_special_file(path) or path.stat().st_size == 0:
            writer.write_line(_header(recorded.graph, options))
        yield writer


class ResultsWriter:
    """Writes line by line, so that whatever happens next, what is known stays known."""

    def __init__(self, file: BinaryIO | None, where: str) -> None:
        self._file = file
        self._where = where

    def write(self, row: Row) -> None:
        """Write a row.

        Raises:
            FormatError: It cannot be written.
        """
        self.write_line(_document_of(row))

    def write_line(self, document: Mapping[str, object]) -> None:
        """Write any line."""
        if self._file is None:
            return
        line = f"{compact_json(document)}\n".encode()
        try:
            num_written = self._file.write(line)
        except OSError as error:
            raise FormatError(f"{self._where}: cannot be written: {error.strerror or error}") from None
        if num_written != len(line):
            raise FormatError(f"{self._where}: cannot be written: the disk took a part of a line only")


def _drop_unfinished_line(path: Path) -> None:
    content = path.read_bytes()
    os.truncate(path, content.rfind(b"\n") + 1)


def _header(graph: Graph, options: Mapping[str, object]) -> dict[str, object]:
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "graph_sha256": graph_sha256(graph),
        "order_sha256": _order_sha256(graph),
        "durations": [node.duration for node in graph.nodes],
        "options": dict(options),
    }


def _order_sha256(graph: Graph) -> str:
    return hashlib.sha256("\n".join(graph.order).encode()).hexdigest()


def _graph_of_header(line: str, graph: Graph, options: Mapping[str, object], where: str, *, is_profiled: bool) -> Graph:
    with Fields(parse_json(line, f"{where}: line 1"), f"{where}: line 1") as fields:
        if fields.raw("format", None) != _FORMAT:
            raise FormatError(f"{where}: line 1: no results of lowtide compare: name another file")
        if fields.whole("version") != _VERSION:
            raise FormatError(f"{where}: line 1: of another version of lowtide: name another file")
        sha256, order_sha256 = fields.text("graph_sha256"), fields.text("order_sha256")
        durations = fields.wholes("durations")
        recorded_options = fields.raw("options")
    if (sha256, order_sha256) != (graph_sha256(graph), _order_sha256(graph)):
        raise InputError(f"{where}: has rows of another graph: name another file, or remove this one")
    _check_options(recorded_options, options, where)
    if len(durations) != len(graph.nodes):
        raise FormatError(f"{where}: line 1: {len(durations)} durations, the graph has {len(graph.nodes)} nodes")
    if durations == tuple(node.duration for node in graph.nodes):
        return graph
    if not is_profiled:
        raise InputError(f"{where}: has rows of the same graph with other durations: name another file")
    nodes = (replace(node, duration=duration) for node, duration in zip(graph.nodes, durations, strict=True))
    return replace(graph, nodes=tuple(nodes))


def _check_options(recorded: Any, options: Mapping[str, object], where: str) -> None:
    if not isinstance(recorded, dict):
        raise FormatError(f"{where}: line 1: options must be an object")
    for name in sorted({*recorded, *options}):
        if recorded.get(name) != options.get(name):
            noun = name.removesuffix("_seconds").replace("_", " ")
            raise InputError(
                f"{where}: its rows were made with {noun} {_shown(recorded.get(name))}, now it is "
                f"{_shown(options.get(name))}: name another file, or use the same"
            )


def _shown(option: object) -> str:
    if isinstance(option, float):  # the time limit
        return f"{option:.15g} s"
    return "none" if option is None else str(option)


def _document_of(row: Row) -> dict[str, object]:
    return {
        "kind": str(row.cell.kind),
        "method": row.cell.method,
        "budget": row.cell.budget,
        "outcome": str(row.outcome),
        "budget_bytes": row.budget_bytes,
        "baseline_peak_bytes": row.baseline_peak_bytes,
        "baseline_duration": row.baseline_duration,
        "needed_bytes": row.needed_bytes,
        "peak_bytes": row.peak_bytes,
        "duration": row.duration,
        "lower_bound_duration": row.lower_bound_duration,
        "scope": None if row.scope is None else {"order": row.scope.order, "max_copies": row.scope.max_copies},
        "num_recomputes": row.num_recomputes,
        "seconds": round(row.seconds, 3),
        "bits": row.bits,
        "reason": row.reason,
    }


def _row_of_line(line: str, where: str) -> Row:
    with Fields(parse_json(line, where), where) as fields:
        cell = Cell(
            kind=_word(Kind, fields.text("kind"), where),
            method=fields.text("method"),
            budget=fields.text("budget"),
        )
        return Row(
            cell=cell,
            outcome=_word(Outcome, fields.text("outcome"), where),
            budget_bytes=fields.optional_whole("budget_bytes"),
            baseline_peak_bytes=fields.whole("baseline_peak_bytes"),
            baseline_duration=fields.whole("baseline_duration"),
            needed_bytes=fields.optional_whole("needed_bytes"),
            peak_bytes=fields.optional_whole("peak_bytes"),
            duration=fields.optional_whole("duration"),
            lower_bound_duration=fields.optional_whole("lower_bound_duration"),
            scope=_scope(fields.raw("scope"), f"{where}: scope"),
            num_recomputes=fields.optional_whole("num_recomputes"),
            seconds=_seconds(fields.raw("seconds"), where),
            bits=fields.optional_text("bits"),
            reason=fields.text("reason"),
        )


def _word(words: Any, text: str, where: str) -> Any:
    if text not in tuple(words):
        raise FormatError(f"{where}: {text[:80]!r} is none of {', '.join(words)}")
    return words(text)


def _scope(document: Any, where: str) -> Scope | None:
    return None if document is None else scope_from_document(document, where)


def _seconds(number: Any, where: str) -> float:
    if isinstance(number, bool) or not isinstance(number, int | float) or number < 0:
        raise FormatError(f"{where}: seconds must be a number, at least 0")
    return float(number)
