"""Op logs of DTR's simulator: what each instruction becomes, and what a damaged log is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lowtide.errors import FormatError
from lowtide.importers.oplogs import oplog_from_lines, read_oplog
from lowtide.importers.trace_graph import graph_of_trace
from lowtide.ir import Call, Mark, Trace
from lowtide.ir.trace_sizes import memory_of_trace
from lowtide.referee import baseline, check_trace


def line(instruction: str, **keys: Any) -> str:
    return json.dumps({"INSTRUCTION": instruction, **keys})


def constant(name: str, size_bytes: Any = "100") -> list[str]:
    return [line("CONSTANT", NAME=name), line("MEMORY", NAME=name, MEMORY=size_bytes)]


def call(op: str, arguments: list[str], results: dict[str, tuple[int, int]], time: Any = "7") -> list[str]:
    """A CALL with the MEMORY and ALIAS of each result."""
    lines = [line("CALL", NAME=op, ARGS=arguments, RESULT=list(results), TIME=time)]
    for name, (size_bytes, alias) in results.items():
        lines += [line("MEMORY", NAME=name, MEMORY=str(size_bytes)), line("ALIAS", NAME=name, ALIAS=str(alias))]
    return lines


def release(name: str) -> list[str]:
    return [line("RELEASE", NAME=name)]


def told(trace: Trace) -> list[str]:
    texts = []
    for event in trace.events:
        if isinstance(event, Mark):
            texts.append(f"{event.event} {event.id}")
            continue
        assert isinstance(event, Call)
        outputs = [
            name
            + (f"@{event.alias_by_output[name]}" if name in event.alias_by_output else "")
            + (f"!{event.overwrites_by_output[name]}" if name in event.overwrites_by_output else "")
            for name in event.outputs
        ]
        texts.append(f"{event.op}({' '.join(event.inputs)}) {' '.join(outputs)}")
    return texts


def test_calls_views_mutations_and_releases() -> None:
    trace = oplog_from_lines(
        [
            *constant("w"),
            *call("mm", ["w", "w"], {"x": (64, -1)}, time=31000),
            *call("view", ["x"], {"y": (64, 0)}, time="0"),
            line("MUTATE", NAME="add_", ARGS=["y", "w"], MUTATE=[0], TIME="5"),
            *call("relu", ["x"], {"z": (64, -1)}),
            *release("x"),  # y still names the storage
            *call("sum", ["y"], {"s": (4, -1)}),
            *release("y"),
        ],
        "log",
    )
    assert told(trace) == [
        "lowtide.leaf() v0",
        "mm(v0) v1",
        "view(v1) v2@v1",
        "add_(v2 v0 v1) v3!v1",
        "release v2",
        "release v1",
        "relu(v3) v4",
        "sum(v3) v5",
        "release v3",
    ]
    leaf, mm, view, add, *_ = (event for event in trace.events if isinstance(event, Call))
    assert leaf.meta == {"size_bytes": {"v0": 100}, "kind": "constant"}
    assert (mm.cost, view.cost, add.cost) == (31000, 0, 5)
    assert mm.meta == {"size_bytes": {"v1": 64}}
    assert (trace.alignment, trace.capacity_bytes, trace.policy) == (1, None, None)
    check_trace(trace)


def test_copies_are_further_names_of_one_storage() -> None:
    trace = oplog_from_lines(
        [
            *constant("a"),
            *call("f", ["a"], {"b": (8, -1)}),
            line("COPY", DST="c", SRC="b"),
            *release("b"),
            *call("g", ["c"], {"d": (8, -1)}),
            line("COPY_FROM", DST="c", SRC="d"),  # the last name of f's result goes elsewhere
            *release("d"),
            *call("h", ["c"], {"e": (8, -1)}),
        ],
        "log",
    )
    assert told(trace) == ["lowtide.leaf() v0", "f(v0) v1", "g(v1) v2", "release v1", "h(v2) v3"]


def test_several_results_and_backward() -> None:
    trace = oplog_from_lines(
        [
            *constant("a"),
            *call("split", ["a"], {"b": (8, -1), "c": (16, -1)}),
            line("ANNOTATE", ANNOTATION="BACKWARD"),
            *call("f", ["c"], {"d": (8, -1)}),
        ],
        "log",
    )
    split, f = (event for event in trace.events if isinstance(event, Call) and event.op != "lowtide.leaf")
    assert split.meta["size_bytes"] == {"v1": 8, "v2": 16}
    assert (split.backward, f.backward) == (False, True)
    named = oplog_from_lines([*constant("a"), *call("relu_backward", ["a"], {"b": (8, -1)})], "log")
    assert [event.backward for event in named.events if isinstance(event, Call)] == [False, True]


def test_what_is_before_start_does_not_count_but_may_be_released() -> None:
    lines = [
        *constant("old"),
        *call("f", ["old"], {"warm": (8, -1)}),
        line("ANNOTATE", ANNOTATION="START"),
        *constant("a"),
        *release("warm"),
        *release("old"),
    ]
    assert told(oplog_from_lines(lines, "log")) == ["lowtide.leaf() v0"]


def test_a_log_can_be_planned_and_its_memory_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "chain.log"
    lines = [*constant("x0", "64")]
    for index in range(5):
        lines += call("f", [f"x{index}"], {f"x{index + 1}": (100, -1)}, time="3")
    for index in range(4, 0, -1):
        lines += call("b", [f"x{index}", f"x{index + 1}"], {f"g{index}": (100, -1)}) + release(f"x{index + 1}")
    path.write_text("\n".join(lines) + "\n\n")
    trace = read_oplog(path, alignment=64)
    graph = graph_of_trace(trace)
    assert len(graph.nodes) == 9
    assert {i.kind for i in graph.inputs} == {"constant"}
    assert baseline(graph).duration == 5 * 3 + 4 * 7
    # Five activations at once and the first gradient; the leaf counts in the trace only. 100 bytes are 128 aligned.
    assert baseline(graph).peak_bytes == 6 * 128
    assert memory_of_trace(trace).peak_bytes == 6 * 128 + 64


DAMAGED = {
    "truncated JSON": (['{"INSTRUCTION": "CALL", "NA'], "log: line 1: not JSON at line 1, column 25"),
    "no object": (["[1]"], "log: line 1: must be an object with the key INSTRUCTION"),
    "unknown instruction": ([line("JUMP")], "log: line 1: INSTRUCTION 'JUMP' must be one of CONSTANT, MEMORY"),
    "no instruction": (["{}"], "log: line 1: INSTRUCTION 'None' must be one of"),
    "missing key": ([line("CALL", NAME="f", ARGS=[], TIME="1")], "log: line 1: CALL has no RESULT: the log is damaged"),
    "undefined tensor": (
        call("f", ["ghost"], {"b": (8, -1)}),
        "log: line 1: CALL uses 'ghost', which is defined by no line before",
    ),
    "use after release": (
        [*constant("a"), *release("a"), *call("f", ["a"], {"b": (8, -1)})],
        "log: line 4: CALL uses 'a', which was released before",
    ),
    "negative size": (constant("a", "-1"), "log: line 2: MEMORY -1 must be from 0 to 9007199254740991"),
    "huge size": (constant("a", 2**53), "log: line 2: MEMORY 9007199254740992 must be from 0 to"),
    "size of many digits": (constant("a", "9" * 5000), "log: line 2: MEMORY must be a whole number, not '99999"),
    "size in words": (constant("a", "many"), "log: line 2: MEMORY must be a whole number, not 'many'"),
    "size is true": (constant("a", True), "log: line 2: MEMORY must be a whole number, not 'True'"),
    "double release": ([*constant("a"), *release("a"), *release("a")], "log: line 4: 'a' is released twice"),
    "undefined release": (release("a"), "log: line 1: 'a' is released, but no line defines it"),
    "NaN time": (
        ['{"INSTRUCTION": "MUTATE", "NAME": "f", "ARGS": [], "MUTATE": [], "TIME": NaN}'],
        "log: line 1: NaN is no number here",
    ),
    "negative time": (call("f", [], {}, time="-3"), "log: line 1: TIME -3 must be from 0 to"),
    "time with a fraction": (call("f", [], {}, time=1.5), "log: line 1: TIME must be a whole number, not '1.5'"),
    "memory of another": (
        [line("CONSTANT", NAME="a"), line("MEMORY", NAME="b", MEMORY="1")],
        "log: line 2: MEMORY of 'b' where the MEMORY of 'a' must come",
    ),
    "cut off": (
        call("f", [], {"a": (1, -1)})[:-1],
        "log: line 1: the log ends before the ALIAS of 'a': it is cut off",
    ),
    "stray memory": ([line("MEMORY", NAME="a", MEMORY="1")], "log: line 1: MEMORY of 'a' follows no CALL or CONSTANT"),
    "alias of no argument": (
        [*constant("a"), *call("f", ["a"], {"b": (8, 1)})],
        "log: line 3: result 'b' is an alias of ARGS[1], but there are 1 arguments",
    ),
    "alias below -1": (call("f", [], {"b": (8, -2)}), "log: line 3: ALIAS -2 must be from -1 to"),
    "mutated argument": (
        [*constant("a"), line("MUTATE", NAME="f", ARGS=["a"], MUTATE=[1], TIME="1")],
        "log: line 3: MUTATE[0] 1 must be from 0 to 0",
    ),
    "defined twice": ([*constant("a"), *constant("a")], "log: line 3: 'a' is defined twice"),
    "copy of nothing": ([line("COPY", DST="b", SRC="a")], "log: line 1: COPY uses 'a', which is defined by no line"),
    "copy to nothing": (
        [*constant("a"), line("COPY_FROM", DST="b", SRC="a")],
        "log: line 3: COPY_FROM uses 'b', which is defined by no line",
    ),
    "name of no text": ([line("RELEASE", NAME=3)], "log: line 1: NAME must be text, not '3'"),
    "arguments of no texts": (
        [line("CALL", NAME="f", ARGS=[1], RESULT=[], TIME=1)],
        "log: line 1: ARGS[0] must be text",
    ),
    "arguments of no list": ([line("CALL", NAME="f", ARGS="a", RESULT=[], TIME=1)], "log: line 1: ARGS must be a list"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_damage_is_told_with_line_and_reason(damage: str) -> None:
    lines, message = DAMAGED[damage]
    with pytest.raises(FormatError) as caught:
        oplog_from_lines(lines, "log")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no such file"):
        read_oplog(tmp_path / "none.log")
