"""A plan and a trace worked out by hand.

step     0   1   2      3   4      5   6      7   8      9
plan     a   b   ev va  c   ev vb  a   ev x   d   ev va  ev vc
held     9   17  9      17  9      17  16     17  9      1
plain    9   16  16     24  24     24  24     17  17     17

op       0 f   1 g   2 h   3 f again   4 k
x        ■─────■─────■─────■───────────■              @0
a        ■─────■           ■───────────■              @4, then @8
b              ■─────■                                @8
c                    ■─────■───────────■              @4
d                                      ■              @12
"""

from __future__ import annotations

from lowtide.ir import (
    Call,
    Compute,
    Evict,
    Graph,
    Input,
    Layout,
    Mark,
    MarkKind,
    Memory,
    MemoryKind,
    Node,
    Placement,
    Plan,
    Scope,
    Status,
    Trace,
    Value,
)
from lowtide.ir.serde import graph_sha256
from lowtide.ir.trace_sizes import LEAF_OP

HOSTILE = '</script><img src=x onerror="alert(1)"><!-- \'\u2028 𝛼β$x_{$ @name'
"""A name that ends scripts, begins tags and comments, and is mathematics to matplotlib and a column to Bokeh."""


def graph_named(prefix: str = "") -> Graph:
    """The graph, every name with a prefix; ``a`` belongs to a module."""
    p = prefix
    return Graph(
        name=f"{p}four",
        inputs=(Input(f"{p}x", 1),),
        nodes=(
            Node(f"{p}a", f"{p}op", 1, (f"{p}x",), (Value(f"{p}va", 8),), meta={"module": f"{p}encoder.a"}),
            Node(f"{p}b", "op", 1, (f"{p}va",), (Value(f"{p}vb", 8),)),
            Node(f"{p}c", "op", 1, (f"{p}vb",), (Value(f"{p}vc", 8),)),
            Node(f"{p}d", "op", 1, (f"{p}va", f"{p}vc"), (Value(f"{p}vd", 1),)),
        ),
        outputs=(f"{p}vd",),
        order=(f"{p}a", f"{p}b", f"{p}c", f"{p}d"),
        duration_unit="unit",
    )


def plan_of(graph: Graph, prefix: str = "", *, has_layout: bool = True) -> Plan:
    """The plan of the drawing."""
    p = prefix
    steps = (
        Compute(f"{p}a"),
        Compute(f"{p}b"),
        Evict(f"{p}va"),
        Compute(f"{p}c"),
        Evict(f"{p}vb"),
        Compute(f"{p}a"),
        Evict(f"{p}x"),
        Compute(f"{p}d"),
        Evict(f"{p}va"),
        Evict(f"{p}vc"),
    )
    places = (("x", 0, 0, 1), ("va", 0, 1, 8), ("vb", 0, 9, 8), ("vc", 0, 1, 8), ("va", 1, 9, 8), ("vd", 0, 0, 1))
    placements = tuple(Placement(f"{p}{name}", occurrence, *place) for name, occurrence, *place in places)
    return Plan(
        graph_sha256=graph_sha256(graph),
        planner="by-hand",
        seed=0,
        threads=1,
        status=Status.FEASIBLE,
        scope=Scope("fixed", None),
        budget_bytes=18,
        peak_bytes=17,
        footprint_bytes=17 if has_layout else None,
        duration=5,
        baseline_duration=4,
        lower_bound_duration=5,
        durations=(1, 1, 1, 1),
        steps=steps,
        layout=Layout(placements) if has_layout else None,
    )


def block(event: MemoryKind, name: str, offset: int) -> Memory:
    return Memory(event, name, offset, 4)


def call(op: str, inputs: tuple[str, ...], output: str, *, recompute: bool = False) -> Call:
    meta = {"size_bytes": {output: 4}}
    return Call(op=op, inputs=inputs, outputs=(output,), cost=10, recompute=recompute, meta=meta)


def drawn_trace() -> Trace:
    """The trace of the drawing; ``b`` has no later use, and is released before ``a`` is computed again."""
    take, give = MemoryKind.ALLOC, MemoryKind.FREE
    leaf = Call(op=LEAF_OP, inputs=(), outputs=("x",), meta={"size_bytes": {"x": 4}, "kind": "user"})
    return Trace(
        capacity_bytes=16,
        alignment=4,
        policy="by-hand",
        seed=0,
        cost_model="units",
        meta={"name": "drawing", "duration_unit": "unit"},
        events=(
            block(take, "x", 0),
            leaf,
            block(take, "a", 4),
            call("f", ("x",), "a"),
            block(take, "b", 8),
            call("g", ("a",), "b"),
            Mark(MarkKind.EVICT, "a"),
            block(give, "a", 4),
            block(take, "c", 4),
            call("h", ("b",), "c"),
            Mark(MarkKind.RELEASE, "b"),
            block(give, "b", 8),
            block(take, "a", 8),
            call("f", ("x",), "a", recompute=True),
            block(take, "d", 12),
            call("k", ("a", "c"), "d"),
        ),
    )
