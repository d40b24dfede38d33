"""Laws of plans and layouts on random graphs with every feature of the format."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.errors import LayoutRejected, PlanRejected
from lowtide.ir import Compute, Evict, Graph, Input, Layout, Node, Step, Value
from lowtide.ir.sequence import baseline_steps, steps_from_sequence
from lowtide.referee import check_layout, check_plan, largest_working_set, replay
from lowtide.testing import (
    honest_plan,
    random_graph,
    random_sequence,
    relabelled_graph,
    relabelled_steps,
    scaled_graph,
    stacked_layout,
)


def load_oracle() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lowtide_test_oracle", Path(__file__).with_name("oracle.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


oracle = load_oracle()
randoms = st.integers(0, 2**32 - 1).map(Random)
laws = settings(max_examples=200, deadline=None, derandomize=True)


def graph_and_steps(rng: Random, *, alignment: int = 1) -> tuple[Graph, tuple[Step, ...]]:
    graph = random_graph(rng, num_nodes=rng.randint(1, 8), alignment=alignment)
    return graph, steps_from_sequence(graph, random_sequence(rng, graph, num_recomputes=5))


def packed_layout(graph: Graph, steps: Sequence[Step]) -> Layout:
    """Each instance as low as it fits, in order of the steps: valid, and full of shared addresses."""
    spans = replay(graph, steps).lifespans
    stacked = stacked_layout(spans, alignment=graph.alignment).placements
    placed: list[int] = []
    for index, span in enumerate(spans):
        offset = 0
        for other in sorted(range(index), key=lambda item: placed[item]):
            is_met = spans[other].interval.overlaps(span.interval)
            if is_met and placed[other] < offset + span.size_bytes and offset < placed[other] + spans[other].size_bytes:
                offset = placed[other] + spans[other].size_bytes
        placed.append(offset)
    return Layout(tuple(replace(item, offset=offset) for item, offset in zip(stacked, placed, strict=True)))


@laws
@given(randoms)
def test_the_referee_and_the_oracle_see_the_same_memory(rng: Random) -> None:
    graph, steps = graph_and_steps(rng)
    assert list(replay(graph, steps).memory_bytes) == oracle.memory_of(graph, steps)


@laws
@given(randoms)
def test_lifespans_add_up_to_the_memory_of_every_step(rng: Random) -> None:
    graph, steps = graph_and_steps(rng)
    figures = replay(graph, steps)
    for step, memory_bytes in enumerate(figures.memory_bytes):
        assert memory_bytes == sum(span.size_bytes for span in figures.lifespans if step in span.interval)


@laws
@given(randoms)
def test_an_accepted_plan_has_the_peak_and_duration_it_claims(rng: Random) -> None:
    graph, steps = graph_and_steps(rng)
    verified = check_plan(graph, honest_plan(graph, steps))
    memory_bytes = oracle.memory_of(graph, steps)
    assert verified.plan.peak_bytes == max(memory_bytes) <= verified.plan.budget_bytes
    duration = sum(graph.node_by_name[step.node].duration for step in steps if isinstance(step, Compute))
    assert verified.plan.duration == duration
    for wrong in (
        replace(verified.plan, peak_bytes=verified.plan.peak_bytes - 1),
        replace(verified.plan, duration=verified.plan.duration + 1),
        replace(verified.plan, budget_bytes=verified.plan.peak_bytes - 1),
    ):
        with pytest.raises(PlanRejected):
            check_plan(graph, wrong)


@laws
@given(randoms)
def test_without_any_one_eviction_that_frees_bytes_the_peak_is_never_lower(rng: Random) -> None:
    """One that frees none is another matter: see the next test."""
    graph, steps = graph_and_steps(rng)
    peak_bytes = replay(graph, steps).peak_bytes
    for index, step in enumerate(steps):
        if isinstance(step, Evict) and oracle.frees_an_instance(graph, steps, index):
            try:
                figures = replay(graph, [*steps[:index], *steps[index + 1 :]])
            except PlanRejected:
                continue  # a value would be left over at the end
            assert figures.peak_bytes >= peak_bytes


def test_evicting_a_base_that_is_recomputed_beside_its_view_costs_memory() -> None:
    """The exception to the law above: the view keeps the first instance, so that the base's second one is extra."""
    graph = Graph(
        "base and view",
        (Input("x", 0),),
        (
            Node("base", "op", 1, ("x",), (Value("b", 4),)),
            Node("view", "op", 0, ("b",), (Value("v", 0, alias_of="b"),)),
            Node("first", "op", 1, ("b",), (Value("f", 0),)),
            Node("last", "op", 1, ("v", "b", "f"), (Value("l", 4),)),
        ),
        ("l",),
        ("base", "view", "first", "last"),
    )
    steps = steps_from_sequence(graph, ["base", "view", "first", "base", "last"])
    kept = [step for index, step in enumerate(steps) if (index, step) != (3, Evict("b"))]
    assert len(kept) == len(steps) - 1
    assert (replay(graph, steps).peak_bytes, replay(graph, kept).peak_bytes) == (12, 8)


@laws
@given(randoms)
def test_evictions_cannot_come_earlier(rng: Random) -> None:
    """Moved before the execution in front of it, an eviction breaks a rule, or it was of no use there."""
    graph, steps = graph_and_steps(rng)
    peak_bytes = replay(graph, steps).peak_bytes
    for index, step in enumerate(steps):
        last = max((place for place in range(index) if isinstance(steps[place], Compute)), default=None)
        if isinstance(step, Evict) and last is not None:
            moved = [*steps[:last], step, *steps[last:index], *steps[index + 1 :]]
            memory_bytes = oracle.memory_of(graph, moved)
            assert memory_bytes is None or max(memory_bytes) >= peak_bytes


@laws
@given(randoms)
def test_the_baseline_takes_every_node_once_and_no_less_than_the_largest_working_set(rng: Random) -> None:
    graph, steps = graph_and_steps(rng)
    figures = replay(graph, baseline_steps(graph))
    assert figures.first_executions == graph.order
    assert figures.num_recomputes == 0
    assert figures.duration == graph.baseline_duration
    assert largest_working_set(graph).size_bytes <= min(figures.peak_bytes, replay(graph, steps).peak_bytes)


@laws
@given(randoms)
def test_other_names_change_nothing(rng: Random) -> None:
    graph, steps = graph_and_steps(rng)

    def rename(name: str) -> str:
        return f"{name[::-1]} é"

    other = replay(relabelled_graph(graph, rename), relabelled_steps(steps, rename))
    figures = replay(graph, steps)
    assert other.memory_bytes == figures.memory_bytes
    assert (other.duration, other.num_recomputes) == (figures.duration, figures.num_recomputes)
    assert [rename(span.name) for span in figures.lifespans] == [span.name for span in other.lifespans]
    renamed = relabelled_graph(graph, rename)
    assert relabelled_steps(baseline_steps(graph), rename) == baseline_steps(renamed)


@laws
@given(randoms, st.integers(2, 1000))
def test_scaled_sizes_change_nothing_but_the_sizes(rng: Random, factor: int) -> None:
    graph, steps = graph_and_steps(rng)
    figures, scaled = replay(graph, steps), replay(scaled_graph(graph, factor), steps)
    assert scaled.memory_bytes == tuple(size_bytes * factor for size_bytes in figures.memory_bytes)
    assert (scaled.peak_step, scaled.duration) == (figures.peak_step, figures.duration)
    assert [(span.name, span.interval) for span in scaled.lifespans] == [
        (span.name, span.interval) for span in figures.lifespans
    ]
    assert largest_working_set(scaled_graph(graph, factor)).size_bytes == largest_working_set(graph).size_bytes * factor


def corrupted(rng: Random, graph: Graph, steps: Sequence[Step]) -> list[Step]:
    """The steps with one of them dropped, repeated, swapped with another, or exchanged for any other."""
    broken = list(steps)
    one, other = rng.randrange(len(broken)), rng.randrange(len(broken))
    match rng.randrange(4):
        case 0:
            del broken[one]
        case 1:
            broken.insert(other, broken[one])
        case 2:
            broken[one], broken[other] = broken[other], broken[one]
        case _:
            broken[one] = rng.choice(
                [*map(Compute, graph.node_by_name), *map(Evict, graph.value_by_name), Compute("nothing")]
            )
    return broken


@settings(laws, max_examples=1000)
@given(randoms)
def test_corrupted_steps_are_refused_exactly_where_the_oracle_refuses_them(rng: Random) -> None:
    graph, steps = graph_and_steps(rng)
    broken = corrupted(rng, graph, steps)
    expected = oracle.memory_of(graph, broken)
    if expected is None:
        with pytest.raises(PlanRejected, match=r"^[^\n]+$"):
            replay(graph, broken)
    else:
        assert list(replay(graph, broken).memory_bytes) == expected


@settings(laws, max_examples=400)
@given(randoms)
def test_corrupted_layouts_are_refused_exactly_where_the_oracle_refuses_them(rng: Random) -> None:
    graph, steps = graph_and_steps(rng, alignment=rng.choice((1, 4)))
    layout = packed_layout(graph, steps)
    assert oracle.is_layout_valid(graph, steps, layout)
    check_layout(graph, steps, layout)
    if not layout.placements:
        return
    for _ in range(5):
        placements = list(layout.placements)
        index = rng.randrange(len(placements))
        item = placements[index]
        match rng.randrange(6):
            case 0:
                del placements[index]
            case 1:
                placements.append(item)
            case 2:
                placements[index] = replace(item, size_bytes=item.size_bytes + graph.alignment)
            case 3:
                placements[index] = replace(item, occurrence=item.occurrence + 1)
            case 4:
                placements[index] = replace(item, is_workspace=not item.is_workspace)
            case _:
                offset = rng.randint(-1, 12) * rng.choice((1, graph.alignment))
                placements[index] = replace(item, offset=offset)
        broken = Layout(tuple(placements))
        if oracle.is_layout_valid(graph, steps, broken):
            check_layout(graph, steps, broken)
        else:
            with pytest.raises(LayoutRejected, match=r"^[^\n]+$"):
                check_layout(graph, steps, broken)


@laws
@given(randoms)
def test_a_packed_layout_never_undercuts_the_peak(rng: Random) -> None:
    graph, steps = graph_and_steps(rng, alignment=4)
    verified = check_layout(graph, steps, packed_layout(graph, steps))
    assert verified.footprint_bytes >= replay(graph, steps).peak_bytes


def test_the_random_graphs_hold_every_feature() -> None:
    """The laws above say nothing about a feature that never comes up."""
    graphs = [random_graph(Random(seed), num_nodes=8) for seed in range(50)]
    nodes = [node for graph in graphs for node in graph.nodes]
    values = [value for node in nodes for value in node.outputs]
    counts = {
        "views": sum(value.alias_of is not None for value in values),
        "views of siblings": sum(
            value.alias_of in {sibling.name for sibling in node.outputs} for node in nodes for value in node.outputs
        ),
        "overwriting": sum(value.overwrites is not None for value in values),
        "first_only": sum(value.first_only for value in values),
        "unevictable": sum(not value.evictable for value in values),
        "several outputs": sum(len(node.outputs) > 1 for node in nodes),
        "workspaces": sum(node.workspace_bytes > 0 for node in nodes),
        "once only": sum(not node.recomputable for node in nodes),
        "after": sum(bool(node.after) for node in nodes),
        "recompute_inputs": sum(bool(node.recompute_inputs) for node in nodes),
        "not counted": sum(not item.is_counted for graph in graphs for item in graph.inputs),
        "of no bytes": sum(value.owns_storage and value.size_bytes == 0 for value in values),
        "recomputed": sum(len(random_sequence(Random(7), graph)) > len(graph.order) for graph in graphs),
    }  # fmt: skip
    assert min(counts.values()) >= 10, counts
