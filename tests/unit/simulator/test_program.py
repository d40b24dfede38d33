"""What a trace becomes for the native engine, and what is refused."""

from __future__ import annotations

import pytest
from programs import MIB, leaf, op, release, trace_of

from lowtide.errors import FormatError, InputError
from lowtide.ir import Call, Mark, MarkKind
from lowtide.simulator.program import compile_trace


def view(text: str) -> Call:
    source, name = (side.strip() for side in text.split("->"))
    return Call("view", (source,), (name,), alias_by_output={name: source})


def test_views_are_no_instructions_and_their_readers_read_the_storage() -> None:
    compiled = compile_trace(trace_of(leaf("x"), op("x -> a"), view("a -> v"), view("v -> w"), op("w -> b")))
    assert [call and call.op for call in compiled.calls] == ["lowtide.leaf", "op", "op"]
    last = compiled.calls[-1]
    assert last is not None
    assert (last.inputs, last.outputs, last.alias_by_output) == (("a",), ("b",), {})
    assert compiled.names == ("x", "a", "b")


def test_a_storage_is_released_with_the_last_value_on_it() -> None:
    compiled = compile_trace(
        trace_of(leaf("x"), op("x -> a"), view("a -> v"), *release("a"), op("v -> b"), *release("v"), op("b -> c"))
    )
    assert [call and call.outputs for call in compiled.calls] == [("x",), ("a",), ("b",), None, ("c",)]
    assert compiled.peak_bytes == 3 * MIB
    assert compiled.end_bytes == 3 * MIB  # x, b and c


def test_an_op_in_place_makes_a_new_version_of_the_same_bytes() -> None:
    compiled = compile_trace(trace_of(leaf("x"), op("x -> a"), op("a -> b", in_place=True), op("b -> c")))
    overwriting = compiled.calls[2]
    assert overwriting is not None
    assert overwriting.overwrites_by_output == {"b": "a"}
    assert compiled.peak_bytes == 3 * MIB  # x, a and then b, c


def test_figures_count_leaves_scratch_and_what_stays() -> None:
    scratch = Call("op", ("a",), ("b",), cost=5, meta={"size_bytes": {"b": MIB}, "workspace_bytes": 4 * MIB})
    compiled = compile_trace(trace_of(leaf("x", 2 * MIB), op("x -> a"), scratch, *release("a", "b")))
    assert (compiled.num_calls, compiled.base_cost) == (2, 1005.0)
    assert compiled.peak_bytes == 8 * MIB
    assert compiled.end_bytes == compiled.floor_bytes == 2 * MIB


def test_recomputations_and_evictions_in_a_trace_are_left_out() -> None:
    again = Call("op", ("x",), ("a",), cost=1000, recompute=True)
    plain = trace_of(leaf("x"), op("x -> a"), op("a -> b"))
    recomputing = trace_of(leaf("x"), op("x -> a"), Mark(MarkKind.EVICT, "a"), again, op("a -> b"))
    assert compile_trace(recomputing).calls == compile_trace(plain).calls


def test_what_cannot_have_happened_is_refused() -> None:
    with pytest.raises(InputError, match=r"event 1 \('op'\): value 'y' was not made before, or is gone"):
        compile_trace(trace_of(leaf("x"), op("y -> a")))
    with pytest.raises(InputError, match="value 'a' was not made before, or is gone"):
        compile_trace(trace_of(leaf("x"), op("x -> a"), *release("a"), op("a -> b")))
    with pytest.raises(FormatError, match=r"has neither meta\.size_bytes nor a block"):
        compile_trace(trace_of(leaf("x"), Call("op", ("x",), ("a",))))
