"""Files: what is read and written, and what each hostile file says."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lowtide.errors import FormatError, LowtideError
from lowtide.ir import Mark, MarkKind, Memory, Scope
from lowtide.ir.serde import (
    graph_from_document,
    graph_sha256,
    graph_to_document,
    load_graph,
    load_plan,
    load_trace,
    plan_from_document,
    plan_to_document,
    save_graph,
    save_plan,
    save_trace,
    trace_from_lines,
    write_atomically,
)
from lowtide.referee import check_plan, check_trace
from lowtide.testing import chain_graph

GOLDEN = Path(__file__).parents[2] / "golden"
GRAPH_SHA256 = "1a2a0728f27a9e075c6ed4c20a62db62ac69d46241d3adc3bc0e8ece44cf8c69"


def graph_document() -> dict[str, Any]:
    return json.loads((GOLDEN / "graph_v1.json").read_text())


def plan_document() -> dict[str, Any]:
    return json.loads((GOLDEN / "plan_v1.json").read_text())


# ---------------------------------------------------------------- golden files


def test_the_documented_graph_is_read() -> None:
    graph = load_graph(GOLDEN / "graph_v1.json")
    assert graph.order == ("conv1", "view1", "loss")
    assert graph.alignment == 64
    assert graph.inputs[0].evictable
    assert graph.value_by_name["view1.out"].alias_of == "conv1.out"  # type: ignore[union-attr]
    assert graph.baseline_duration == 1300


def test_the_documented_plan_passes_the_referee() -> None:
    verified = check_plan(load_graph(GOLDEN / "graph_v1.json"), load_plan(GOLDEN / "plan_v1.json"))
    assert verified.replay.memory_bytes == (12288, 12288, 8192, 8192, 8256, 64)


def test_the_plan_of_version_2_is_of_staged_scope_and_passes_the_referee() -> None:
    plan = load_plan(GOLDEN / "plan_v2.json")
    assert plan.scope == Scope(order="staged", max_copies=2)
    check_plan(load_graph(GOLDEN / "graph_v1.json"), plan)


@pytest.mark.parametrize(("order", "version"), [("fixed", 1), ("free", 1), ("staged", 2)])
def test_a_plan_is_written_in_the_oldest_version_that_can_say_it(order: str, version: int) -> None:
    document = plan_to_document(replace(load_plan(GOLDEN / "plan_v1.json"), scope=Scope(order=order)))
    assert document["version"] == version


def test_the_hash_of_a_graph_never_changes() -> None:
    assert graph_sha256(load_graph(GOLDEN / "graph_v1.json")) == GRAPH_SHA256


def test_the_trace_passes_the_referee() -> None:
    figures = check_trace(load_trace(GOLDEN / "trace_v1.jsonl"))
    assert (figures.peak_bytes, figures.footprint_bytes, figures.duration) == (192, 192, 9)
    assert (figures.num_calls, figures.num_recomputes, figures.num_evictions) == (5, 1, 2)


def test_whole_numbers_as_ids_are_read_as_their_digits() -> None:
    trace = load_trace(GOLDEN / "trace_v1.jsonl")
    assert trace.events[-1].outputs == ("7",)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("load", "save", "name"),
    [
        (load_graph, save_graph, "graph_v1.json"),
        (load_plan, save_plan, "plan_v1.json"),
        (load_plan, save_plan, "plan_v2.json"),
        (load_trace, save_trace, "trace_v1.jsonl"),
    ],
)
def test_saved_golden_files_say_the_same(
    load: Callable[[Path], Any], save: Callable[[Any, Path], None], name: str, tmp_path: Path
) -> None:
    value = load(GOLDEN / name)
    save(value, tmp_path / "once")
    save(load(tmp_path / "once"), tmp_path / "twice")
    assert load(tmp_path / "once") == value
    assert (tmp_path / "once").read_bytes() == (tmp_path / "twice").read_bytes()


@pytest.mark.parametrize(
    ("change", "is_same"),
    [
        (lambda document: document.update(name="other"), True),
        (lambda document: document.update(meta={"source": "x"}), True),
        (lambda document: document["nodes"][0].update(duration=7), True),
        (lambda document: document["nodes"][0].update(meta={"module": "m"}), True),
        (lambda document: document["inputs"][0].pop("evictable"), True),  # the default, written out or not
        (lambda document: document["nodes"][0].update(recomputable=False), False),
        (lambda document: document["nodes"][0]["outputs"][0].update(size_bytes=64), False),
        (lambda document: document["inputs"][0].update(kind="buffer"), False),
        (lambda document: document.update(outputs=["loss.out", "x"]), False),
    ],
)
def test_only_what_a_plan_depends_on_is_hashed(change: Callable[[dict[str, Any]], None], is_same: bool) -> None:
    document = graph_document()
    change(document)
    assert (graph_sha256(graph_from_document(document, "g")) == GRAPH_SHA256) == is_same


# ---------------------------------------------------------------- files that are no documents


def raw_files() -> Iterator[tuple[str, bytes, str]]:
    good = (GOLDEN / "graph_v1.json").read_bytes()
    yield "empty", b"", "not JSON at line 1, column 1: Expecting value"
    yield "truncated", good[: len(good) // 2], "not JSON at line"
    yield "BOM", b"\xef\xbb\xbf" + good, "begins with a byte order mark: save it as UTF-8 without one"
    yield "UTF-16", good.decode().encode("utf-16"), "not UTF-8 text at byte 0"
    yield "NaN", good.replace(b"1200", b"NaN"), "NaN is no number here: durations and sizes are whole"
    yield "infinity", good.replace(b"1200", b"-Infinity"), "-Infinity is no number here: durations and sizes are whole"
    yield "1e400", good.replace(b"1200", b"1e400"), "1e400 is too large for a number"
    yield "1.5", good.replace(b"1200", b"1.5"), "nodes[0]: duration must be a whole number, not 1.5"
    yield "digits", good.replace(b"1200", b"9" * 5000), "a number of 5000 digits is no size or duration"
    yield "key twice", good.replace(b'"version"', b'"name": "a", "version"'), "key 'name' occurs twice in one object"
    yield "deep", b"[" * 100_000 + b"]" * 100_000, "nested too deeply to be read"
    yield "list", b"[]", "must be an object, not a list"
    yield "null", b"null", "must be an object, not null"
    yield "control", b'{"a\x01b": 1}', "Invalid control character"


@pytest.mark.parametrize(("content", "said"), [case[1:] for case in raw_files()], ids=[case[0] for case in raw_files()])
def test_hostile_graph_files_get_one_clear_line(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.json"
    path.write_bytes(content)
    with pytest.raises(FormatError) as caught:
        load_graph(path)
    assert said in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("load", [load_graph, load_plan, load_trace])
def test_files_that_are_none(load: Callable[[Path], Any], tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"missing\.json: no such file$"):
        load(tmp_path / "missing.json")
    with pytest.raises(FormatError, match=r": is a folder, not a file$"):
        load(tmp_path)
    with pytest.raises(FormatError, match=r"cannot be read: embedded null|no such file") as caught:
        load(Path("a\0b"))
    assert "\n" not in str(caught.value)


def test_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret.json").write_text("{}")

    def refuse(self: Path, encoding: str) -> str:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(FormatError, match=r"secret\.json: cannot be read: Permission denied$"):
        load_graph(tmp_path / "secret.json")


def test_line_breaks_in_names_do_not_break_the_line(tmp_path: Path) -> None:
    path = tmp_path / "two\nlines.json"
    path.write_text("[]")
    with pytest.raises(FormatError) as caught:
        load_graph(path)
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------- documents that break the format


def change_of(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Set what lies at ``a.0.b``."""

    def change(document: Any) -> None:
        *parents, last = [int(key) if key.isdigit() else key for key in path.split(".")]
        for key in parents:
            document = document[key]
        document[last] = value

    return change


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("format", "lowtide.plan", "g: format is 'lowtide.plan', expected 'lowtide.graph'"),
        ("version", 2, "g: version 2 of lowtide.graph is not known, the newest here is 1: upgrade lowtide"),
        ("version", True, "g: version must be a whole number, not true or false"),
        ("colour", "red", "g: unknown key 'colour': remove it, or put it inside 'meta'"),
        ("nodes.0.colour", "red", "g: nodes[0]: unknown key 'colour': remove it, or put it inside 'meta'"),
        (
            "nodes.0.outputs.0.colour",
            1,
            "g: nodes[0]: outputs[0]: unknown key 'colour': remove it, or put it inside 'meta'",
        ),
        ("nodes", {}, "g: nodes must be a list, not an object"),
        ("nodes.0", 3, "g: nodes[0]: must be an object, not 3"),
        ("nodes.0.inputs.0", None, "g: nodes[0]: inputs[0] must be text, not null"),
        ("nodes.0.duration", -1, "g: nodes[0]: duration -1 is below 0"),
        ("nodes.0.duration", True, "g: nodes[0]: duration must be a whole number, not true or false"),
        ("nodes.0.recomputable", 1, "g: nodes[0]: recomputable must be true or false, not 1"),
        ("nodes.0.recomputable", None, "g: nodes[0]: recomputable must be true or false, not null"),
        ("nodes.0.after", None, "g: nodes[0]: after must be a list, not null"),
        ("nodes.0.meta", [], "g: nodes[0]: meta must be an object, not a list"),
        ("inputs.0.size_bytes", -64, "g: inputs[0]: size_bytes -64 is below 0"),
        ("inputs.0.size_bytes", "64", "g: inputs[0]: size_bytes must be a whole number, not '64'"),
        (
            "inputs.0.kind",
            "weight",
            "g: inputs[0]: kind 'weight' must be one of user, parameter, buffer, constant, state",
        ),
        ("inputs.0.evictable", "yes", "g: inputs[0]: evictable must be true or false, not 'yes'"),
        ("alignment", 0, "graph 'example': alignment 0 must be from 1 to 1073741824 bytes"),
        ("duration_unit", "ms", "graph 'example': duration_unit 'ms' must be 'ns' or 'unit'"),
    ],
)
def test_graph_documents_that_break_the_format(path: str, value: Any, said: str) -> None:
    document = graph_document()
    change_of(path, value)(document)
    with pytest.raises(LowtideError) as caught:
        graph_from_document(document, "g")
    assert str(caught.value) == said


@pytest.mark.parametrize("key", ["format", "version", "inputs", "nodes", "outputs", "order"])
def test_graph_keys_that_must_be_there(key: str) -> None:
    document = graph_document()
    del document[key]
    said = "format is 'None', expected 'lowtide.graph'" if key == "format" else f"key {key!r} is missing"
    with pytest.raises(FormatError) as caught:
        graph_from_document(document, "g")
    assert str(caught.value) == f"g: {said}"


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("status", "timeout", "p: status 'timeout' of a plan must be 'feasible' or 'optimal'"),
        ("scope.order", "random", "p: scope: order 'random' must be 'fixed' or 'free'"),
        ("scope.order", "staged", "p: scope: order 'staged' must be 'fixed' or 'free'"),  # not in version 1
        ("version", 3, "p: version 3 of lowtide.plan is not known, the newest here is 2: upgrade lowtide"),
        ("scope.max_copies", 0, "p: scope: max_copies must be at least 1, or null for any number"),
        ("steps.0", {}, "p: steps[0]: a step has one key, 'compute' or 'evict'"),
        ("steps.0", {"compute": "a", "evict": "b"}, "p: steps[0]: a step has one key, 'compute' or 'evict'"),
        ("steps.0.twice", 1, "p: steps[0]: unknown key 'twice': remove it, or put it inside 'meta'"),
        (
            "layout.placements.0.workspace",
            "a",
            "p: layout: placements[0]: a placement has one of the keys 'value' and 'workspace'",
        ),
        ("layout.placements.0.offset", -1, "p: layout: placements[0]: offset -1 is below 0"),
        ("durations.1", 0.5, "p: durations[1] must be a whole number, not 0.5"),
        ("durations.1", -2, "p: durations[1] -2 is below 0"),
        ("budget_bytes", None, "p: budget_bytes must be a whole number, not null"),
        ("incumbents", [[0.5, 3]], "p: incumbents[0]: must be [seconds, duration, bound]"),
        ("incumbents", [[-1, 3, 3]], "p: incumbents[0]: seconds must be a number, at least 0"),
        (
            "incumbents",
            [[0, True, 3]],
            "p: incumbents[0]: duration and bound must be whole numbers, at least 0, or null",
        ),
    ],
)
def test_plan_documents_that_break_the_format(path: str, value: Any, said: str) -> None:
    document = plan_document()
    change_of(path, value)(document)
    with pytest.raises(FormatError) as caught:
        plan_from_document(document, "p")
    assert str(caught.value) == said


HEADER = (
    '{"format":"lowtide.trace","version":1,"capacity_bytes":null,"alignment":1,"policy":null,"seed":0,"cost_model":""}'
)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "t: empty, a trace begins with its header"),
        (["", " "], "t: empty, a trace begins with its header"),
        (["{}"], "t: line 1: format is 'None', expected 'lowtide.trace'"),
        ([HEADER, "{"], "t: line 2: not JSON at line 1, column 2: Expecting property name enclosed in double quotes"),
        (
            [HEADER, "", '{"t":"grow","id":"a"}'],
            "t: line 3: event 'grow' must be one of call, alloc, free, evict, move, pin, unpin, release",
        ),
        ([HEADER, '{"t":"pin","id":""}'], "t: line 2: an id must be text or a whole number, not ''"),
        ([HEADER, '{"t":"pin","id":true}'], "t: line 2: an id must be text or a whole number, not true or false"),
        ([HEADER, '{"t":"pin","id":-1}'], "t: line 2: an id must be text or a whole number, not -1"),
        ([HEADER, '{"t":"pin","id":"a","x":1}'], "t: line 2: unknown key 'x': remove it, or put it inside 'meta'"),
        (
            [HEADER, '{"t":"alloc","id":"a","offset":0,"size":1,"kind":"big"}'],
            "t: line 2: kind 'big' must be one of value, scratch, small",
        ),
        ([HEADER, '{"t":"alloc","id":"a","offset":0,"size":-1}'], "t: line 2: size -1 is below 0"),
        ([HEADER, '{"t":"call","op":"a","in":"b","out":[]}'], "t: line 2: in must be a list, not 'b'"),
        (
            [HEADER, '{"t":"call","op":"a","in":[],"out":[],"alias":{"b":null}}'],
            "t: line 2: alias: an id must be text or a whole number, not null",
        ),
    ],
)
def test_traces_that_break_the_format(lines: list[str], said: str) -> None:
    with pytest.raises(FormatError) as caught:
        trace_from_lines(lines, "t")
    assert str(caught.value) == said


def test_events_without_their_optional_keys() -> None:
    trace = trace_from_lines(
        ['{"format":"lowtide.trace","version":1}', '{"t":"alloc","id":3,"offset":0,"size":1}', '{"t":"pin","id":"3"}'],
        "t",
    )
    assert trace.capacity_bytes is None
    assert trace.alignment == 1
    assert isinstance(trace.events[0], Memory)
    assert trace.events[1] == Mark(MarkKind.PIN, "3")


# ---------------------------------------------------------------- saving


def test_a_failure_in_the_middle_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old")

    def chunks() -> Iterator[str]:
        yield "new"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, chunks())
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["plan.json"]


def test_a_symbolic_link_stays_and_leads_to_what_is_written(tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("old")
    link.symlink_to(target)
    write_atomically(link, ["new"])
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_pipe_is_written_and_not_replaced_by_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_atomically(pipe, ["new"])
        assert os.read(reader, 100) == b"new"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert [entry.name for entry in tmp_path.iterdir()] == ["pipe"]


def test_a_long_name_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 250)
    write_atomically(path, ["new"])
    assert path.read_text() == "new"


def test_a_new_file_has_the_usual_permissions_and_nothing_else_is_left(tmp_path: Path) -> None:
    save_graph(chain_graph(2), tmp_path / "graph.json")
    (tmp_path / "plain").write_text("")
    assert (tmp_path / "graph.json").stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert {entry.name for entry in tmp_path.iterdir()} == {"graph.json", "plain"}


def test_saving_where_nothing_can_be_saved(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"cannot be written: No such file or directory$"):
        save_graph(chain_graph(1), tmp_path / "missing" / "graph.json")
    with pytest.raises(FormatError, match=r"cannot be written: Is a directory$"):
        save_graph(chain_graph(1), tmp_path)


def test_a_graph_and_its_document(tmp_path: Path) -> None:
    graph = chain_graph(3)
    assert graph_from_document(graph_to_document(graph), "g") == graph
