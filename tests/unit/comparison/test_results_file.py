"""Rows in files: there and back, cut short, damaged, and of something else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lowtide.comparison.results_file import RecordedRows, continue_rows, open_results
from lowtide.comparison.rows import Row
from lowtide.errors import FormatError, InputError
from lowtide.ir import Graph, Scope
from lowtide.testing import chain_graph

MakeRow = Callable[..., Row]
OPTIONS = {"seed": 0, "threads": None, "time_limit_seconds": 10.0}


@pytest.fixture
def graph() -> Graph:
    return chain_graph(3)


@pytest.fixture
def path(tmp_path: Path, graph: Graph, make_row: MakeRow) -> Path:
    """A file with two rows."""
    path = tmp_path / "rows.jsonl"
    with open_results(path, RecordedRows(graph, {}), OPTIONS) as results:
        results.write(make_row("search", 60, 1010, scope=Scope(order="free"), num_recomputes=3, seconds=1.5))
        results.write(make_row("sqrt", None, None, reason="nothing found"))
    return path


def read(path: Path, graph: Graph, *, is_profiled: bool = False, **options: object) -> RecordedRows:
    return continue_rows(path, graph, {**OPTIONS, **options}, is_profiled=is_profiled)


def test_rows_come_back(path: Path, graph: Graph, make_row: MakeRow) -> None:
    search = make_row("search", 60, 1010, scope=Scope(order="free"), num_recomputes=3, seconds=1.5)
    sqrt = make_row("sqrt", None, None, reason="nothing found")
    found = read(path, graph)
    assert list(found.row_by_key.values()) == [search, sqrt]
    assert (found.graph, found.num_unfinished) == (graph, 0)


def test_a_file_that_is_not_there_or_empty_holds_nothing(tmp_path: Path, graph: Graph) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    assert read(tmp_path / "new.jsonl", graph) == read(empty, graph) == RecordedRows(graph, {})


def test_a_line_that_was_being_written_is_dropped(path: Path, graph: Graph, make_row: MakeRow) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    found = read(path, graph)
    assert ([row.cell.method for row in found.row_by_key.values()], found.num_unfinished) == (["search"], 1)
    with open_results(path, found, OPTIONS) as results:
        results.write(make_row("sqrt", None, None, reason="nothing found"))
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 3: not JSON at line 1, column 2: Expecting property name enclosed in double quotes"),
        ("[]", "line 3: must be an object, not a list"),
        ('{"kind": "planner"}', "line 3: key 'method' is missing"),
        ('{"kind": "wizard"}', "line 3: 'wizard' is none of plain, bound, planner, peer, policy, measured"),
    ],
)
def test_a_damaged_line_is_named(path: Path, graph: Graph, line: str, message: str) -> None:
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], line]) + "\n")
    with pytest.raises(FormatError) as caught:
        read(path, graph)
    assert str(caught.value) == f"{path}: {message}"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("duration", -1, "duration -1 is below 0"),
        ("duration", 1.5, "duration must be a whole number, not 1.5"),
        ("seconds", "soon", "seconds must be a number, at least 0"),
        ("outcome", "won", "'won' is none of optimal, feasible, "),
        ("surprise", 1, "unknown key 'surprise': remove it, or put it inside 'meta'"),
        ("scope", {"order": "random"}, "scope: order 'random' must be 'fixed', 'free' or 'staged'"),
    ],
)
def test_a_damaged_figure_is_named(path: Path, graph: Graph, key: str, value: object, message: str) -> None:
    lines = path.read_text().splitlines()
    lines[1] = json.dumps({**json.loads(lines[1]), key: value})
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(FormatError) as caught:
        read(path, graph)
    assert str(caught.value).startswith(f"{path}: line 2: {message}")


def test_a_row_given_twice_is_damage(path: Path, graph: Graph) -> None:
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, lines[1]]) + "\n")
    with pytest.raises(FormatError) as caught:
        read(path, graph)
    assert str(caught.value) == f"{path}: line 4: search within 60% has a row already: remove one of them"


def test_files_of_something_else_are_refused_and_left_alone(tmp_path: Path, graph: Graph) -> None:
    for text in ("my diary, line one", "my diary\nline two\n", '{"format": "lowtide.trace", "version": 1}\n'):
        other = tmp_path / "other"
        other.write_text(text)
        with pytest.raises(FormatError, match="line 1"):
            read(other, graph)
        assert other.read_text() == text


def test_another_graph_is_refused(path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(path, chain_graph(4))
    assert str(caught.value) == f"{path}: has rows of another graph: name another file, or remove this one"


def test_other_options_are_refused_by_name(path: Path, graph: Graph) -> None:
    with pytest.raises(InputError) as caught:
        read(path, graph, threads=2)
    assert str(caught.value) == (
        f"{path}: its rows were made with threads none, now it is 2: name another file, or use the same"
    )


def test_durations_of_a_file_are_those_of_its_rows(path: Path, graph: Graph) -> None:
    slower = replace(graph, nodes=tuple(replace(node, duration=7) for node in graph.nodes))
    assert read(path, slower, is_profiled=True).graph == graph
    with pytest.raises(InputError) as caught:
        read(path, slower)
    assert str(caught.value) == f"{path}: has rows of the same graph with other durations: name another file"
