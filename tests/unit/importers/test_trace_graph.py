"""Trace to graph: what becomes of leaves, pins, blocks, recomputations, and of traces that make no sense."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lowtide.errors import FormatError, GraphError, InputError
from lowtide.importers.trace_graph import graph_of_trace, trace_of_graph
from lowtide.ir import Call, Event, InputKind, Mark, MarkKind, Status, Trace
from lowtide.ir.serde import load_trace
from lowtide.ir.trace_sizes import LEAF_OP
from lowtide.planners.greedy import GreedyPlanner
from lowtide.planners.protocol import PlanRequest
from lowtide.referee import baseline, replay
from lowtide.testing import chain_graph

GOLDEN = Path(__file__).parents[2] / "golden" / "trace_v1.jsonl"


def trace_of(*events: Event, **options: Any) -> Trace:
    header = {"capacity_bytes": None, "alignment": 1, "policy": None, "seed": 0, "cost_model": "unit"}
    return Trace(events=events, **{**header, **options})


def call(inputs: str, outputs: str, op: str = "f", **options: Any) -> Call:
    names = tuple(outputs.split())
    owners = [
        name
        for name in names
        if name not in options.get("alias_by_output", {}) and name not in options.get("overwrites_by_output", {})
    ]
    meta = {"size_bytes": dict.fromkeys(owners, 8), **options.pop("meta", {})}
    return Call(op=op, inputs=tuple(inputs.split()), outputs=names, meta=meta, **options)


def leaf(name: str, kind: str = "user") -> Call:
    return call("", name, op=LEAF_OP, meta={"kind": kind})


def release(name: str) -> Mark:
    return Mark(MarkKind.RELEASE, name)


def test_leaves_are_inputs_and_what_is_never_released_are_outputs() -> None:
    graph = graph_of_trace(
        trace_of(
            leaf("w", "parameter"),
            leaf("x"),
            leaf("y"),
            call("w x", "a", cost=3),
            release("x"),
            call("a y", "b c", cost=4, meta={"workspace_bytes": 5}),
            release("b"),
        )
    )
    assert [(i.name, i.kind, i.evictable) for i in graph.inputs] == [
        ("w", InputKind.PARAMETER, False),
        ("x", InputKind.USER, True),  # the program let go of it
        ("y", InputKind.USER, False),
    ]
    assert graph.outputs == ("a", "c")
    assert [(n.name, n.op, n.duration, n.workspace_bytes) for n in graph.nodes] == [
        ("op0", "f", 3, 0),
        ("op1", "f", 4, 5),
    ]
    assert (graph.name, graph.duration_unit) == ("trace", "ns")


def test_an_overwriting_call_comes_after_all_who_read_before_it() -> None:
    graph = graph_of_trace(
        trace_of(
            leaf("p", "parameter"),
            call("p", "v", alias_by_output={"v": "p"}),
            call("v", "a"),
            call("p", "b"),
            call("p b", "q", overwrites_by_output={"q": "p"}),
            release("p"),
            release("v"),
            call("q a", "r", overwrites_by_output={"r": "q"}),
            release("q"),
        )
    )
    assert [node.after for node in graph.nodes] == [(), (), (), ("op0", "op1", "op2"), ("op3",)]
    assert graph.outputs == ("a", "b", "r")
    assert baseline(graph).peak_bytes == 16  # a and b; q and r live in the parameter


def test_a_budgeted_trace_gives_sizes_by_its_blocks_and_loses_its_recomputations() -> None:
    graph = graph_of_trace(load_trace(GOLDEN))
    assert [(i.name, i.size_bytes, i.evictable) for i in graph.inputs] == [("x", 64, False)]
    assert [(n.op, n.inputs, [v.name for v in n.outputs]) for n in graph.nodes] == [
        ("aten.relu", ("x",), ["a"]),
        ("aten.view", ("a",), ["v"]),
        ("aten.dropout_", ("a",), ["b"]),
        ("aten.sum", ("b",), ["7"]),
    ]
    assert graph.value_by_name["a"].size_bytes == 64
    assert graph.value_by_name["b"].evictable
    assert graph.nodes[2].after == ("op1",)  # the view reads what dropout_ overwrites
    assert graph.outputs == ("b", "7")
    assert graph.value_by_name["7"].size_bytes == 64  # 8 bytes, aligned


def test_what_stays_pinned_is_not_evictable() -> None:
    trace = trace_of(
        call("", "a"),
        call("", "b"),
        *(Mark(kind, name) for name in "ab" for kind in (MarkKind.PIN, MarkKind.PIN, MarkKind.UNPIN)),
        Mark(MarkKind.UNPIN, "b"),
    )
    graph = graph_of_trace(trace)
    assert [graph.value_by_name[name].evictable for name in "ab"] == [False, True]


def test_a_view_of_what_its_own_call_overwrites_is_no_output() -> None:
    trace = trace_of(call("", "a"), call("a", "v b", alias_by_output={"v": "a"}, overwrites_by_output={"b": "a"}))
    assert graph_of_trace(trace).outputs == ("b",)


@pytest.mark.parametrize(
    ("events", "error", "message"),
    [
        (
            [call("ghost", "a")],
            InputError,
            "call 'f' reads 'ghost', which nothing made: bring it by a call of 'lowtide",
        ),
        ([call("", "a"), call("", "a")], GraphError, "value name 'a' occurs 2 times"),
        ([call("", "a", meta={"node": 3})], FormatError, "call 'f': meta.node must be text, not '3'"),
        ([call("", "a", meta={"after": "x"})], FormatError, "call 'f': meta.after must be a list of names, not 'x'"),
        ([call("", "a", meta={"recomputable": 0})], FormatError, "call 'f': meta.recomputable must be true or false"),
        ([leaf("a", "pet")], FormatError, "call 'lowtide.leaf': meta.kind 'pet' must be one of"),
        (
            [call("", "a", op=LEAF_OP, meta={"evictable": "no"})],
            FormatError,
            "leaf 'a': meta.evictable must be true or false, not 'no'",
        ),
    ],
)
def test_contradictions_are_told(events: list[Event], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        graph_of_trace(trace_of(*events))
    assert str(caught.value).startswith(message)


def test_an_order_must_hold_every_node_once() -> None:
    with pytest.raises(InputError, match="the order has 2 names, it must hold each of the 3 nodes once"):
        trace_of_graph(chain_graph(3), order=["n0", "n1"])


def test_greedy_plans_what_a_trace_shows() -> None:
    events: list[Event] = [leaf("x0", "parameter")]
    events += [call(f"x{index}", f"x{index + 1}", cost=1) for index in range(8)]
    for index in range(8, 0, -1):
        events += [call(f"x{index} g{index + 1}" if index < 8 else "x8", f"g{index}", cost=1), release(f"x{index}")]
        events += [release(f"g{index + 1}")] if index < 8 else []
    graph = graph_of_trace(trace_of(*events))
    peak = baseline(graph).peak_bytes
    assert peak == 9 * 8  # eight activations and a gradient
    proposal = GreedyPlanner().propose(PlanRequest(graph=graph, budget_bytes=6 * 8))
    assert proposal.status is Status.FEASIBLE
    assert proposal.steps is not None
    assert replay(graph, proposal.steps).peak_bytes <= 6 * 8
