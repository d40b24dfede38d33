"""Traces: blocks and events that could have been."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lowtide.errors import TraceRejected
from lowtide.ir import BlockKind, Call, Event, Mark, MarkKind, Memory, MemoryKind, Trace
from lowtide.ir.serde import trace_from_lines
from lowtide.referee import check_trace

GOLDEN = Path(__file__).parents[2] / "golden" / "trace_v1.jsonl"


def alloc(name: str, offset: int, size_bytes: int = 4) -> Memory:
    return Memory(MemoryKind.ALLOC, name, offset, size_bytes)


def free(name: str, offset: int, size_bytes: int = 4, block: BlockKind = BlockKind.VALUE) -> Memory:
    return Memory(MemoryKind.FREE, name, offset, size_bytes, block)


def call(text: str, **options: Any) -> Call:
    """``"a b -> c"``."""
    inputs, outputs = text.split("->")
    return Call("op", tuple(inputs.split()), tuple(outputs.split()), **options)


def mark(kind: str, name: str) -> Mark:
    return Mark(MarkKind(kind), name)


def trace(*events: Event, capacity_bytes: int | None = 16, alignment: int = 4) -> Trace:
    return Trace(capacity_bytes, alignment, "coop", 0, "", events)


X, A = alloc("x", 0), alloc("a", 4)
RUN = (X, A, call("x -> a"))

LEGAL: dict[str, tuple[Event, ...]] = {
    "nothing": (),
    "blocks before their call": RUN,
    "blocks after their call": (X, call("x -> a"), A, call("a -> b")),
    "bytes used again": (*RUN, mark("evict", "a"), free("a", 4), alloc("b", 4), call("x -> b")),
    "touching blocks": (alloc("a", 0), alloc("b", 8), alloc("c", 4)),
    "no bytes anywhere": (alloc("a", 0), alloc("b", 0, 0), alloc("c", 0, 0)),
    "evicted, recomputed, read": (
        *RUN,
        mark("evict", "a"),
        free("a", 4),
        A,
        call("x -> a", recompute=True),
        call("a -> b"),
    ),
    "outside the arena": (*RUN, call("parameter a -> small"), call("small -> c")),
    "view keeps the bytes of its base": (
        *RUN,
        call("a -> v", alias_by_output={"v": "a"}),
        mark("evict", "a"),
        call("v -> b"),
    ),
    "overwritten and recomputed": (
        *RUN,
        call("a -> b", overwrites_by_output={"b": "a"}),
        call("b -> c"),
    ),
    "pinned twice": (*RUN, *[mark("pin", "a")] * 2, *[mark("unpin", "a")] * 2, mark("evict", "a")),
    "moved": (*RUN, mark("move", "a"), free("a", 4), alloc("a", 12), call("a -> b")),
    "released and recomputed from": (
        *RUN,
        alloc("b", 8),
        call("a -> b"),
        mark("release", "a"),
        mark("evict", "b"),
        call("a -> b", recompute=True),
    ),
    "without allocations anything is resident": (call("x -> a"), call("a ghost -> b")),
    "overwritten value recomputed beside the block it once had": (
        *RUN,
        call("a -> b", overwrites_by_output={"b": "a"}),
        mark("move", "b"),
        free("a", 4),
        alloc("b", 4),
        alloc("a", 12),
        call("x -> a", recompute=True),
        call("a b -> c"),
    ),
}

BROKEN: dict[str, tuple[tuple[Event, ...], str]] = {
    "share bytes": (
        (X, alloc("a", 0, 8)),
        "disjoint at step 1: block 'a' at [0, 8) and block 'x' at [0, 4) share bytes",
    ),
    "inside another": (
        (alloc("x", 0, 16), A),
        "disjoint at step 1: block 'a' at [4, 8) and block 'x' at [0, 16) share bytes",
    ),
    "unaligned": ((alloc("a", 2),), "aligned at step 0: block 'a' at [2, 6) is no aligned block (alignment 4)"),
    "below 0": ((alloc("a", -4),), "aligned at step 0: block 'a' at [-4, 0) is no aligned block (alignment 4)"),
    "above capacity": ((alloc("a", 12, 8),), "capacity at step 0: block 'a' at [12, 20) ends above the capacity 16"),
    "allocated twice": (
        (A, alloc("a", 8)),
        "alloc-once at step 1: block 'a' at [8, 12) already has a block: free it first",
    ),
    "freed twice": (
        (A, free("a", 4), free("a", 4)),
        "free-matches at step 2: block 'a' at [4, 8) is freed, but has no block",
    ),
    "freed elsewhere": (
        (A, free("a", 8)),
        "free-matches at step 1: block 'a' at [8, 12) is freed, but block 'a' at [4, 8) is what was allocated",
    ),
    "freed as another kind": (
        (A, free("a", 4, block=BlockKind.SCRATCH)),
        "free-matches at step 1: scratch block 'a' at [4, 8) is freed, but block 'a' at [4, 8) is what was allocated",
    ),
    "input evicted": (
        (*RUN, mark("evict", "a"), call("a -> b")),
        "inputs-resident at step 4: input 'a' of 'op' is not resident",
    ),
    "input freed": (
        (*RUN, free("a", 4), call("a -> b")),
        "inputs-resident at step 4: input 'a' of 'op' is not resident",
    ),
    "input not yet allocated": (
        (X, call("a -> b"), A),
        "inputs-resident at step 1: input 'a' of 'op' is not resident",
    ),
    "base of a view freed": (
        (*RUN, call("a -> v", alias_by_output={"v": "a"}), free("a", 4), call("v -> b")),
        "inputs-resident at step 5: input 'v' of 'op' is not resident",
    ),
    "overwritten": (
        (*RUN, call("a -> b", overwrites_by_output={"b": "a"}), call("a -> c")),
        "inputs-resident at step 4: input 'a' of 'op' is not resident",
    ),
    "view of what was overwritten": (
        (
            *RUN,
            call("a -> v", alias_by_output={"v": "a"}),
            call("a -> b", overwrites_by_output={"b": "a"}),
            call("v -> c"),
        ),
        "inputs-resident at step 5: input 'v' of 'op' is not resident",
    ),
    "evicted twice": (
        (*RUN, mark("evict", "a"), mark("evict", "a")),
        "evict-resident at step 4: value 'a' has evict, but is not resident",
    ),
    "pinned while absent": (
        (*RUN, free("a", 4), mark("pin", "a")),
        "pin-resident at step 4: value 'a' has pin, but is not resident",
    ),
    "pinned and evicted": (
        (*RUN, mark("pin", "a"), mark("evict", "a")),
        "pinned at step 4: value 'a' has evict while it is pinned",
    ),
    "pinned twice, unpinned once": (
        (*RUN, mark("pin", "a"), mark("pin", "a"), mark("unpin", "a"), mark("evict", "a")),
        "pinned at step 6: value 'a' has evict while it is pinned",
    ),
    "pinned and moved": (
        (*RUN, mark("pin", "a"), mark("move", "a")),
        "pinned at step 4: value 'a' has move while it is pinned",
    ),
    "pinned and freed": (
        (*RUN, mark("pin", "a"), free("a", 4)),
        "pinned at step 4: block 'a' at [4, 8) is freed while value 'a' is pinned",
    ),
    "base of a pinned view freed": (
        (*RUN, call("a -> v", alias_by_output={"v": "a"}), mark("pin", "v"), free("a", 4)),
        "pinned at step 5: block 'a' at [4, 8) is freed while value 'v' is pinned",
    ),
    "view read after its base was freed and recomputed": (
        (
            *RUN,
            call("a -> v", alias_by_output={"v": "a"}),
            free("a", 4),
            A,
            call("x -> a", recompute=True),
            call("v -> b"),
        ),
        "inputs-resident at step 7: input 'v' of 'op' is not resident",
    ),
    "unknown": (
        (*RUN, mark("evict", "z")),
        "known at step 3: value 'z' has evict, but was neither computed nor allocated",
    ),
    "unpinned": ((*RUN, mark("unpin", "a")), "pin-matches at step 3: value 'a' is unpinned, but not pinned"),
    "move without a block": (
        (*RUN, call("a -> v", alias_by_output={"v": "a"}), mark("move", "v")),
        "move at step 4: value 'v' is moved, but has no block of its own",
    ),
    "move of the overwritten value": (
        (*RUN, call("a -> b", overwrites_by_output={"b": "a"}), mark("move", "a")),
        "move-resident at step 4: value 'a' has move, but is not resident",
    ),
    "overwriting value read by the old id of its block": (
        (
            *RUN,
            call("a -> b", overwrites_by_output={"b": "a"}),
            mark("move", "b"),
            free("a", 4),
            alloc("b", 4),
            free("b", 4),
            call("b -> c"),
        ),
        "inputs-resident at step 8: input 'b' of 'op' is not resident",
    ),
    "overwritten value read after the block was renamed": (
        (
            *RUN,
            call("a -> b", overwrites_by_output={"b": "a"}),
            mark("move", "b"),
            free("a", 4),
            alloc("b", 4),
            call("a -> c"),
        ),
        "inputs-resident at step 7: input 'a' of 'op' is not resident",
    ),
    "move without free": (
        (*RUN, mark("move", "a"), alloc("a", 12)),
        "move at step 4: block 'a' at [12, 16) is moved: its free comes next, not alloc",
    ),
    "move without end": (
        (*RUN, mark("move", "a"), free("a", 4)),
        "move: value 'a' is moved, but the trace ends before its free and alloc",
    ),
    "released twice": (
        (*RUN, mark("release", "a"), mark("release", "a")),
        "released at step 4: value 'a' is released twice",
    ),
    "read after release": (
        (*RUN, mark("release", "a"), call("a -> b")),
        "released at step 4: input 'a' of 'op' was released before",
    ),
    "computed twice": (
        (*RUN, call("x -> a")),
        "recompute at step 3: output 'a' of 'op' was computed before: recompute is False",
    ),
    "recomputed, never computed": (
        (X, call("x -> a", recompute=True)),
        "recompute at step 1: output 'a' of 'op' was never computed before: recompute is True",
    ),
    "output twice": ((call("x -> a a"),), "outputs at step 0: 'op' names an output twice"),
    "alias of nothing": (
        (call("x -> a", alias_by_output={"a": "y"}),),
        "alias at step 0: 'op': 'a' cannot be an alias of 'y' here",
    ),
    "alias of itself": (
        (call("x -> a b", alias_by_output={"a": "b", "b": "a"}),),
        "alias at step 0: 'op': 'a' is an alias of itself",
    ),
    "overwrites no input": (
        (call("x -> a", overwrites_by_output={"a": "y"}),),
        "overwrites at step 0: 'op': 'a' cannot overwrite 'y' here",
    ),
}


@pytest.mark.parametrize("case", LEGAL)
def test_legal_traces_are_accepted(case: str) -> None:
    check_trace(trace(*LEGAL[case]))


@pytest.mark.parametrize("case", BROKEN)
def test_broken_traces_say_where_and_what(case: str) -> None:
    events, said = BROKEN[case]
    with pytest.raises(TraceRejected) as caught:
        check_trace(trace(*events))
    assert str(caught.value) == said


def test_figures() -> None:
    figures = check_trace(
        trace(
            *RUN,
            call("a -> b", cost=7),
            mark("evict", "a"),
            free("a", 4),
            alloc("c", 12),
            call("x -> a", recompute=True, cost=2),
        )
    )
    assert (figures.peak_bytes, figures.footprint_bytes, figures.duration) == (8, 16, 9)
    assert (figures.num_calls, figures.num_recomputes, figures.num_evictions) == (3, 1, 1)


def test_allocations_need_a_capacity_and_an_alignment() -> None:
    with pytest.raises(
        TraceRejected, match=r"^capacity at step 0: block 'x' at \[0, 4\) is allocated, but the trace has"
    ):
        check_trace(trace(X, capacity_bytes=None))
    with pytest.raises(TraceRejected, match=r"^alignment: alignment 0 must be at least 1 byte$"):
        check_trace(trace(alignment=0))


# Lines of the golden trace that can be lost without a contradiction: a block may be freed without a word, a value that
# is never computed may come from outside, and nothing comes after the end.
HARMLESS = [
    ("evict", "a"),
    ("evict", "v"),
    ("call", "aten.dropout_"),
    ("release", "a"),
    ("alloc", 7),
    ("call", "aten.sum"),
]


def test_losing_any_other_line_of_the_golden_trace_is_noticed() -> None:
    lines = GOLDEN.read_text().splitlines()
    accepted = []
    for index in range(1, len(lines)):
        try:
            check_trace(trace_from_lines([*lines[:index], *lines[index + 1 :]], "t"))
        except TraceRejected:
            continue
        event = json.loads(lines[index])
        accepted.append((event["t"], event.get("id", event.get("op"))))
    assert accepted == HARMLESS
