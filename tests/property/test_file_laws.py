"""Laws of files: what is saved is loaded, and whatever is loaded either is something or says in one line why not."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.errors import LowtideError
from lowtide.ir import (
    BlockKind,
    Call,
    Event,
    Graph,
    Incumbent,
    Mark,
    MarkKind,
    Memory,
    MemoryKind,
    Plan,
    Scope,
    Status,
    Trace,
)
from lowtide.ir.sequence import steps_from_sequence
from lowtide.ir.serde import (
    compact_json,
    graph_from_document,
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
    trace_to_lines,
)
from lowtide.referee import check_plan, check_trace, replay
from lowtide.testing import honest_plan, random_graph, random_sequence, relabelled_graph, stacked_layout

laws = settings(max_examples=150, deadline=None, derandomize=True)
randoms = st.integers(0, 2**32 - 1).map(Random)
names = st.text(min_size=1, max_size=8)
numbers = st.integers(0, 2**53 - 1)
finite = st.floats(allow_nan=False, allow_infinity=False)
metas = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**60), 2**60) | finite | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=6,
    ),
    max_size=3,
)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Random graphs with odd names, and annotations everywhere."""
    rng = draw(randoms)
    graph = random_graph(rng, num_nodes=rng.randint(1, 6), alignment=rng.choice((1, 64)))
    odd = draw(st.text(max_size=3))
    graph = relabelled_graph(graph, lambda name: f"{name}{odd}")
    nodes = [
        replace(node, meta=draw(metas), outputs=tuple(replace(value, meta=draw(metas)) for value in node.outputs))
        for node in graph.nodes
    ]
    inputs = [replace(graph_input, meta=draw(metas)) for graph_input in graph.inputs]
    return replace(graph, name=draw(st.text(max_size=5)), nodes=tuple(nodes), inputs=tuple(inputs), meta=draw(metas))


@st.composite
def plans(draw: st.DrawFn) -> tuple[Graph, Plan]:
    """Legal plans, with and without layout, own graph, bound, incumbents and annotations."""
    graph, rng = draw(graphs()), draw(randoms)
    steps = steps_from_sequence(graph, random_sequence(rng, graph))
    layout = stacked_layout(replay(graph, steps).lifespans, alignment=graph.alignment) if draw(st.booleans()) else None
    plan = honest_plan(graph, steps, layout=layout)
    is_optimal = draw(st.booleans())
    return graph, replace(
        plan,
        planner=draw(names),
        seed=draw(numbers),
        threads=draw(st.integers(1, 64)),
        status=Status.OPTIMAL if is_optimal else Status.FEASIBLE,
        scope=Scope(order="free", max_copies=draw(st.none() | st.integers(20, 30))),
        lower_bound_duration=plan.duration if is_optimal else None,
        incumbents=tuple(
            Incumbent(round(seconds, 6), draw(st.none() | st.integers(plan.duration, 2**40)), None)
            for seconds in draw(st.lists(st.floats(0, 1e6), max_size=3))
        ),
        graph=graph if draw(st.booleans()) else None,
        meta=draw(metas) or None,
    )


calls = st.builds(
    Call,
    op=st.text(max_size=5),
    inputs=st.lists(names, max_size=3).map(tuple),
    outputs=st.lists(names, max_size=3).map(tuple),
    alias_by_output=st.dictionaries(names, names, max_size=2),
    overwrites_by_output=st.dictionaries(names, names, max_size=2),
    cost=numbers,
    rng=st.booleans(),
    backward=st.booleans(),
    recompute=st.booleans(),
    meta=metas,
)
memories = st.builds(Memory, st.sampled_from(MemoryKind), names, numbers, numbers, st.sampled_from(BlockKind))
events: st.SearchStrategy[Event] = calls | memories | st.builds(Mark, st.sampled_from(MarkKind), names)
traces = st.builds(
    Trace,
    capacity_bytes=st.none() | numbers,
    alignment=st.integers(1, 512),
    policy=st.none() | st.text(max_size=5),
    seed=numbers,
    cost_model=st.text(max_size=5),
    events=st.lists(events, max_size=6).map(tuple),
    meta=metas,
)


def through_a_file(value: Any, save: Callable[[Any, Path], None], load: Callable[[Path], Any]) -> Any:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        save(value, path)
        return load(path)


@laws
@given(graphs())
def test_a_saved_graph_is_loaded_with_its_annotations(graph: Graph) -> None:
    loaded = through_a_file(graph, save_graph, load_graph)
    assert loaded == graph
    assert graph_to_document(loaded) == graph_to_document(graph)  # meta, which == leaves out, is in there
    assert [node.meta for node in loaded.nodes] == [node.meta for node in graph.nodes]


@laws
@given(plans())
def test_a_saved_plan_is_loaded_and_as_good_as_before(graph_and_plan: tuple[Graph, Plan]) -> None:
    graph, plan = graph_and_plan
    loaded = through_a_file(plan, save_plan, load_plan)
    assert loaded == plan
    assert plan_to_document(loaded) == plan_to_document(plan)
    assert check_plan(graph, loaded).replay == check_plan(graph, plan).replay


@laws
@given(traces)
def test_a_saved_trace_is_loaded_with_its_annotations(trace: Trace) -> None:
    loaded = through_a_file(trace, save_trace, load_trace)
    assert loaded == trace
    assert list(trace_to_lines(loaded)) == list(trace_to_lines(trace))


@laws
@given(traces)
def test_any_trace_is_accepted_or_refused_in_one_line(trace: Trace) -> None:
    try:
        check_trace(trace)
    except LowtideError as error:
        one_line(error)


def one_line(error: LowtideError) -> None:
    assert len(str(error).splitlines()) == 1, repr(str(error))


# ---------------------------------------------------------------- documents gone bad

JUNK: list[Any] = [
    None, True, False, 0, 1, -1, 7, 2**53, 2**70, -(2**70), 0.5, 1e308, "", "x", "n0", "n1.0", "x0", "user", "free",
    [], {}, [[]], [None], [1, 2, 3], {"a": 1}, {"meta": {}}, {"name": "n0"}, {"compute": "n0"}, "a\nb", "\x85",
]  # fmt: skip


def places_of(document: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a document."""
    pairs = document.items() if isinstance(document, dict) else enumerate(document)
    found = []
    for key, value in pairs:
        found.append((document, key))
        if isinstance(value, dict | list):
            found += places_of(value)
    return found


def spoil(rng: Random, document: Any) -> None:
    """Change a document in one place."""
    container, key = rng.choice(places_of(document))
    match rng.randrange(4):
        case 0:
            container[key] = copy.deepcopy(rng.choice(JUNK))
        case 1:
            del container[key]
        case 2 if isinstance(container, dict):
            container[rng.choice(["meta", "colour", "name", "size_bytes", "alias_of", "overwrites", "first_only"])] = (
                copy.deepcopy(rng.choice(JUNK))
            )
        case 2:
            container.insert(key, copy.deepcopy(rng.choice(JUNK)))
        case _:
            other, other_key = rng.choice(places_of(document))
            container[key] = copy.deepcopy(other[other_key])


def spoilt(rng: Random, document: Any) -> Any:
    document = json.loads(compact_json(document))
    for _ in range(rng.randint(1, 3)):
        if places_of(document):
            spoil(rng, document)
    return document


@settings(laws, max_examples=1500)
@given(randoms)
def test_spoilt_graphs_are_refused_in_one_line(rng: Random) -> None:
    graph = random_graph(rng, num_nodes=rng.randint(1, 5))
    document = spoilt(rng, graph_to_document(graph))
    try:
        loaded = graph_from_document(document, "graph.json")
        replay(loaded, steps_from_sequence(loaded, loaded.order))
        assert graph_from_document(json.loads(compact_json(graph_to_document(loaded))), "again") == loaded
    except LowtideError as error:
        one_line(error)


@settings(laws, max_examples=1500)
@given(randoms)
def test_spoilt_plans_are_refused_in_one_line(rng: Random) -> None:
    graph = random_graph(rng, num_nodes=rng.randint(1, 5))
    steps = steps_from_sequence(graph, random_sequence(rng, graph))
    layout = stacked_layout(replay(graph, steps).lifespans, alignment=1) if rng.random() < 0.5 else None
    plan = replace(honest_plan(graph, steps, layout=layout), graph=graph if rng.random() < 0.3 else None)
    document = spoilt(rng, plan_to_document(plan))
    try:
        check_plan(graph, plan_from_document(document, "plan.json"))
    except LowtideError as error:
        one_line(error)


@settings(laws, max_examples=500)
@given(randoms)
def test_spoilt_traces_are_refused_in_one_line(rng: Random) -> None:
    golden = (Path(__file__).parents[1] / "golden" / "trace_v1.jsonl").read_text().splitlines()
    documents = spoilt(rng, [json.loads(line) for line in golden])
    try:
        check_trace(trace_from_lines([compact_json(document) for document in documents], "trace.jsonl"))
    except LowtideError as error:
        one_line(error)


@settings(laws, max_examples=300)
@given(
    randoms,
    st.sampled_from([("graph_v1.json", load_graph), ("plan_v2.json", load_plan), ("trace_v1.jsonl", load_trace)]),
)
def test_spoilt_bytes_are_refused_in_one_line(rng: Random, file: tuple[str, Callable[[Path], Any]]) -> None:
    name, load = file
    content = bytearray((Path(__file__).parents[1] / "golden" / name).read_bytes())
    for _ in range(rng.randint(1, 4)):
        position = rng.randrange(len(content))
        match rng.randrange(3):
            case 0:
                content[position] = rng.randrange(256)
            case 1:
                del content[position : position + rng.randrange(1, 40)]
            case _:
                content[position:position] = rng.choice([b"\x00", b"\xff", b'"', b"{", b"]", b"NaN", b"1e999", b"-"])
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(bytes(content))
        try:
            load(path)
        except LowtideError as error:
            one_line(error)


def test_what_json_cannot_hold_is_refused_on_saving() -> None:
    graph = random_graph(Random(0))
    for meta, said in (
        ({"a": float("nan")}, "cannot be written as JSON: Out of range float values are not JSON compliant"),
        ({"a": object}, "cannot be written as JSON: Object of type type is not JSON serializable"),
    ):
        with pytest.raises(LowtideError) as caught:
            save_graph(replace(graph, meta=meta), Path("never-written.json"))
        assert str(caught.value).startswith(said)
    assert not Path("never-written.json").exists()
