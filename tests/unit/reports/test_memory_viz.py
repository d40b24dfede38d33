"""The report for PyTorch's memory viewer: read by PyTorch's own reader, and checked against the report."""

from __future__ import annotations

import pickle
import pickletools

import pytest
from drawings import graph_named, plan_of

from lowtide import api
from lowtide.importers.generate import graph_from_spec
from lowtide.reports.memory_viz import memory_viz_pickle, memory_viz_snapshot
from lowtide.reports.plan_report import report_of_plan
from lowtide.reports.report import Report


def peak_of_history(report: Report) -> int:
    held = peak = 0
    for entry in memory_viz_snapshot(report)["device_traces"][0]:
        held += {"alloc": entry["size"], "free_completed": -entry["size"]}.get(entry["action"], 0)
        peak = max(peak, held)
    return peak


def test_history_has_the_peak_of_the_plan(report: Report) -> None:
    assert peak_of_history(report) == 17


def test_history_of_a_generated_plan_has_its_peak() -> None:
    graph = graph_from_spec("generate:unet?depth=3&blocks=2")
    result = api.plan(graph, budget="60%", planner="greedy")
    assert result.plan is not None
    assert peak_of_history(report_of_plan(graph, api.require_plan(result, graph))) == result.plan.peak_bytes


def test_no_address_is_taken_twice(report: Report) -> None:
    held: dict[int, int] = {}
    for entry in memory_viz_snapshot(report)["device_traces"][0]:
        if entry["action"] == "alloc":
            for address, size in held.items():
                assert address + size <= entry["addr"] or entry["addr"] + entry["size"] <= address
            held[entry["addr"]] = entry["size"]
        elif entry["action"] == "free_completed":
            assert held.pop(entry["addr"]) == entry["size"]
    assert list(held.values()) == [1]  # vd, the output


def test_blocks_fill_the_segment(report: Report) -> None:
    (segment,) = memory_viz_snapshot(report)["segments"]
    assert segment["total_size"] == sum(block["size"] for block in segment["blocks"]) == 18
    assert [(block["state"], block["size"]) for block in segment["blocks"]] == [
        ("active_allocated", 1),
        ("inactive", 17),
    ]


def test_without_addresses_sizes_and_times_still_stand() -> None:
    graph = graph_named()
    report = report_of_plan(graph, api.verify(graph, plan_of(graph, has_layout=False)))
    assert peak_of_history(report) == 17


def test_the_pickle_says_only_what_the_viewer_can_read(hostile_report: Report) -> None:
    """The viewer's JavaScript knows these opcodes; none of them runs anything."""
    known = "APPENDS BINGET BININT BININT1 BININT2 EMPTY_DICT EMPTY_LIST FRAME LONG1 LONG_BINGET MARK MEMOIZE PROTO"
    known += " SETITEMS SHORT_BINUNICODE STOP TUPLE2 APPEND NEWFALSE BINUNICODE EMPTY_TUPLE NEWTRUE NONE SETITEM"
    opcodes = {opcode.name for opcode, _, _ in pickletools.genops(memory_viz_pickle(hostile_report))}
    assert opcodes <= set(known.split())


def test_torch_reads_it(report: Report) -> None:
    viewer = pytest.importorskip("torch.cuda._memory_viz")
    snapshot = pickle.loads(memory_viz_pickle(report))
    entries = [line for line in viewer.trace(snapshot).splitlines() if " = " in line or line.startswith("del ")]
    assert entries[1:] == [
        "b = a[0:1.0B]",  # x
        "c = a[1:8.0B]",  # va
        "d = a[9:8.0B]",  # vb
        "del c # 8.0B",
        "e = a[1:8.0B]",  # vc
        "del d # 8.0B",
        "f = a[9:8.0B]",  # va again
        "del b # 1.0B",
        "g = a[0:1.0B]",  # vd
        "del f # 8.0B",
        "del e # 8.0B",
    ]
    assert "total_reserved: 18.0B\ntotal_allocated: 1.0B\n" in viewer.segsum(snapshot)
    flames = viewer.memory(snapshot, format_flamegraph=lambda lines: lines)
    assert "active_allocated;op:0:op;value:0:vd (first copy) 1\n" in flames
