"""Sizes in traces: what is read from meta and blocks, what is counted, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from lowtide.errors import FormatError
from lowtide.ir import Call, Event, InputKind, Mark, MarkKind, Memory, MemoryKind, Trace
from lowtide.ir.trace_sizes import (
    LEAF_OP,
    leaf_kind,
    memory_of_trace,
    size_by_output,
    size_by_value,
    workspace_bytes,
)


def trace_of(*events: Event) -> Trace:
    return Trace(capacity_bytes=None, alignment=1, policy=None, seed=0, cost_model="", events=events)


def call(inputs: str, outputs: str, **options: Any) -> Call:
    return Call(op="f", inputs=tuple(inputs.split()), outputs=tuple(outputs.split()), **options)


def release(name: str) -> Mark:
    return Mark(MarkKind.RELEASE, name)


def test_memory_follows_storages_until_their_last_value_is_released() -> None:
    trace = trace_of(
        Call(op=LEAF_OP, inputs=(), outputs=("x",), meta={"size_bytes": {"x": 10}, "kind": "user"}),
        call("x", "a b", meta={"size_bytes": {"a": 3, "b": 4}, "workspace_bytes": 100}),
        call("a", "v", alias_by_output={"v": "a"}),
        release("a"),  # its view keeps the bytes
        call("b", "w c", alias_by_output={"w": "c"}, overwrites_by_output={"c": "b"}),
        release("b"),
        release("v"),
        release("w"),
        release("c"),
    )
    figures = memory_of_trace(trace)
    assert figures.memory_bytes == (10, 117, 17, 17, 17, 17, 14, 14, 10)
    assert (figures.peak_bytes, figures.end_bytes) == (117, 10)


def test_recomputations_and_evictions_change_nothing() -> None:
    trace = trace_of(
        call("", "a", meta={"size_bytes": {"a": 3}}),
        Mark(MarkKind.EVICT, "a"),
        call("", "a", recompute=True, meta={"workspace_bytes": 9}),
    )
    assert memory_of_trace(trace).memory_bytes == (3, 3, 3)


def test_sizes_come_from_blocks_where_calls_say_nothing() -> None:
    trace = trace_of(
        Memory(MemoryKind.ALLOC, "a", 0, 7),
        call("", "a b", meta={"size_bytes": {"b": 5}}),
        call("a", "v", alias_by_output={"v": "a"}),
    )
    assert size_by_value(trace) == {"a": 7, "b": 5, "v": 0}


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"size_bytes": 3}, "call 'f': meta.size_bytes must be an object of bytes by value"),
        ({"size_bytes": {"z": 3}}, "call 'f': meta.size_bytes names 'z', which is none of its outputs"),
        ({"size_bytes": {"a": -1}}, "call 'f': meta.size_bytes of 'a' '-1' must be a whole number of bytes"),
        ({"size_bytes": {"a": 2**53}}, "call 'f': meta.size_bytes of 'a' '9007199254740992' must be"),
        ({"size_bytes": {"a": True}}, "call 'f': meta.size_bytes of 'a' 'True' must be a whole number"),
    ],
)
def test_sizes_in_meta_are_checked(meta: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError) as caught:
        size_by_output(call("", "a", meta=meta))
    assert str(caught.value).startswith(message)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(FormatError, match=r"value 'a' of call 'f' has neither meta\.size_bytes nor a block"):
        size_by_value(trace_of(call("", "a")))
    with pytest.raises(FormatError, match=r"'v' shares the storage of 'a', which nothing made before"):
        memory_of_trace(trace_of(call("a", "v", alias_by_output={"v": "a"})))
    with pytest.raises(FormatError, match=r"meta\.workspace_bytes '1\.5' must be a whole number"):
        workspace_bytes(call("", "", meta={"workspace_bytes": 1.5}))
    with pytest.raises(FormatError, match=r"meta\.kind 'pet' must be one of user, parameter"):
        leaf_kind(call("", "a", meta={"kind": "pet"}))
    assert leaf_kind(call("", "a")) is InputKind.USER
