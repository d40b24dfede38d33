"""Laws of traces and graphs: one becomes the other and back, and nothing is lost on the way."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from lowtide.importers.trace_graph import graph_of_trace, trace_of_graph
from lowtide.ir import Call, Graph, InputKind, Mark, Trace, Value
from lowtide.ir.serde import trace_from_lines, trace_to_lines
from lowtide.ir.trace_sizes import LEAF_OP, memory_of_trace, size_by_value
from lowtide.referee import baseline, check_trace
from lowtide.testing import chain_graph, random_graph, training_chain_graph

seeds = st.integers(0, 2**32 - 1)


def graph_of(seed: int, num_nodes: int) -> Graph:
    return random_graph(Random(seed), num_nodes=num_nodes)


def normal_form(graph: Graph) -> Graph:
    """What a trace can tell: nodes in their order; outputs are all values that stay, but for unevictable inputs."""
    gone = overwritten_values(graph)
    kept = [i.name for i in graph.inputs if i.name in graph.outputs and i.evictable]
    nodes = tuple(graph.node_by_name[name] for name in graph.order)
    made = [
        value.name
        for node in nodes
        for value in node.outputs
        if value.name in graph.outputs or (not value.evictable and value.name not in gone)
    ]
    return replace(graph, nodes=nodes, outputs=(*kept, *made))


def overwritten_values(graph: Graph) -> set[str]:
    """Values whose storage a node overwrites, other than the overwriting values themselves and their aliases."""
    storage = {i.name: i.name for i in graph.inputs}
    gone: set[str] = set()
    for name in graph.order:
        node = graph.node_by_name[name]
        taken = {storage[value.overwrites] for value in node.outputs if value.overwrites is not None}
        gone |= {value for value, owner in storage.items() if owner in taken}
        own = {value.name: value for value in node.outputs}
        for value in node.outputs:
            source = end_of_aliases(value, own)
            target = source.overwrites or source.alias_of or source.name
            storage[value.name] = storage.get(target, target)
            if storage[value.name] in taken and source.overwrites is None:
                gone.add(value.name)
    return gone


def end_of_aliases(value: Value, siblings: dict[str, Value]) -> Value:
    while value.alias_of in siblings:
        value = siblings[value.alias_of]
    return value


@settings(deadline=None, max_examples=200)
@given(seeds, st.integers(1, 14))
def test_a_graph_comes_back_from_its_trace(seed: int, num_nodes: int) -> None:
    graph = graph_of(seed, num_nodes)
    back = graph_of_trace(trace_of_graph(graph))
    assert back == normal_form(graph)


@settings(deadline=None, max_examples=100)
@given(seeds, st.integers(1, 14))
def test_a_second_round_changes_nothing(seed: int, num_nodes: int) -> None:
    trace = trace_of_graph(graph_of(seed, num_nodes))
    again = trace_of_graph(graph_of_trace(trace), seed=trace.seed)
    assert again == trace
    assert size_by_value(again) == size_by_value(trace)


@settings(deadline=None, max_examples=100)
@given(seeds, st.integers(1, 14))
def test_the_file_keeps_what_the_graph_needs(seed: int, num_nodes: int) -> None:
    graph = graph_of(seed, num_nodes)
    read = trace_from_lines(list(trace_to_lines(trace_of_graph(graph))), "t")
    assert graph_of_trace(read) == normal_form(graph)


@settings(deadline=None, max_examples=200)
@example(990, 1)  # what is never read is most of it
@given(seeds, st.integers(1, 14))
def test_the_trace_is_legal_and_its_live_bytes_peak_where_the_baseline_does(seed: int, num_nodes: int) -> None:
    graph = graph_of(seed, num_nodes)
    trace = trace_of_graph(graph)
    figures = check_trace(trace)
    plain = baseline(graph)
    assert figures.duration == plain.duration
    assert peak_of_live_bytes(trace) == plain.peak_bytes


@settings(deadline=None, max_examples=100)
@example(990, 1)
@given(seeds, st.integers(1, 14))
def test_memory_of_trace_counts_all_leaves(seed: int, num_nodes: int) -> None:
    graph = graph_of(seed, num_nodes)
    counted = replace(graph, inputs=tuple(replace(i, kind=InputKind.USER) for i in graph.inputs))
    trace = trace_of_graph(counted)
    figures = memory_of_trace(trace)
    is_leaf = [isinstance(event, Call) and event.op == LEAF_OP for event in trace.events]
    at_steps = [memory for memory, is_before in zip(figures.memory_bytes, is_leaf, strict=True) if not is_before]
    assert max(at_steps) == baseline(counted).peak_bytes
    last = trace.events[-1]
    scratch = last.meta.get("workspace_bytes", 0) if isinstance(last, Call) else 0
    assert figures.memory_bytes[-1] == figures.end_bytes + scratch


def peak_of_live_bytes(trace: Trace) -> int:
    """Bytes of all storages with an unreleased value, at each node and release; counted from the events alone."""
    storage: dict[str, str] = {}
    size: dict[str, int] = {}
    alive: set[str] = set()
    peak = 0
    for event in trace.events:
        if isinstance(event, Mark):
            alive.discard(event.id)
            peak = max(peak, sum(size[owner] for owner in {storage[name] for name in alive}))
            continue
        assert isinstance(event, Call)
        counts = event.op != LEAF_OP or event.meta["kind"] == "user"
        for name in event.outputs:
            size[name] = event.meta.get("size_bytes", {}).get(name, 0) if counts else 0
        waiting = list(event.outputs)
        while waiting:
            name = waiting.pop(0)
            source = event.alias_by_output.get(name) or event.overwrites_by_output.get(name) or name
            if source in waiting:
                waiting.append(name)
                continue
            storage[name] = storage.get(source, source)
        alive.update(event.outputs)
        if event.op != LEAF_OP:
            held = sum(size[owner] for owner in {storage[name] for name in alive})
            peak = max(peak, held + event.meta.get("workspace_bytes", 0))
    return peak


def test_backward_is_what_comes_after_the_boundary() -> None:
    graph = training_chain_graph(3)
    calls = [event for event in trace_of_graph(graph).events if isinstance(event, Call) and event.op != LEAF_OP]
    boundary = [call.op for call in calls].index("lowtide.boundary")
    assert [call.backward for call in calls] == [index > boundary for index in range(len(calls))]


def test_another_order_is_carried_out_as_given() -> None:
    graph = chain_graph(3)
    trace = trace_of_graph(graph, order=graph.order)
    assert [event.meta["node"] for event in trace.events if isinstance(event, Call) and event.op != LEAF_OP] == [
        "n0",
        "n1",
        "n2",
    ]
