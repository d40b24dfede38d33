"""Flat arrays, the sequence of a set of recomputations, and the two memory profiles against the referee."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from lowtide.ir import Compute, Graph, Input, InputKind, Node, Value
from lowtide.ir.sequence import steps_from_sequence
from lowtide.planners.core import load_bytes_by_stage, native_problem
from lowtide.planners.flat import FlatGraph, Recomputation, flatten, recomputations_in, sequence_of
from lowtide.planners.profile import memory_bytes_by_execution, peak_bytes
from lowtide.referee import replay


def random_recomputations(flat: FlatGraph, rng: random.Random, number: int) -> list[Recomputation]:
    pairs = [(rng.randrange(len(flat.nodes)), rng.randrange(len(flat.nodes))) for _ in range(number)]
    chosen = {Recomputation(stage, node) for stage, node in pairs if node < stage <= flat.last_stage[node]}
    return rng.sample(sorted(chosen), len(chosen))


@pytest.mark.parametrize("rich", [False, True])
def test_any_set_is_legal_and_both_profiles_equal_the_referees(
    rich: bool,
    random_graph: Callable[..., Graph],
) -> None:
    num_recomputations = 0
    for seed in range(250):
        graph = random_graph(seed, num_nodes=4 + seed % 15, rich=rich)
        flat = flatten(graph)
        problem = native_problem(flat)
        rng = random.Random(seed)
        for number in (0, 2, 5, 20, 60):
            chosen = random_recomputations(flat, rng, number)
            num_recomputations += len(chosen)
            sequence = sequence_of(flat, chosen)
            steps = steps_from_sequence(graph, sequence)
            replayed = replay(graph, steps)
            computing = [m for m, step in zip(replayed.memory_bytes, steps, strict=True) if isinstance(step, Compute)]
            assert memory_bytes_by_execution(graph, sequence) == computing
            assert peak_bytes(graph, sequence) == replayed.peak_bytes
            assert max(load_bytes_by_stage(problem, chosen)) == replayed.peak_bytes
    assert num_recomputations > 2000


@pytest.mark.parametrize("rich", [False, True])
def test_what_a_sequence_executes_again_is_found_in_it(rich: bool, random_graph: Callable[..., Graph]) -> None:
    num_recomputations = 0
    for seed in range(100):
        flat = flatten(random_graph(seed, num_nodes=4 + seed % 15, rich=rich))
        chosen = random_recomputations(flat, random.Random(seed), 20)
        found = recomputations_in(flat, sequence_of(flat, chosen))
        assert sorted(found) == sorted(chosen)
        num_recomputations += len(found)
    assert num_recomputations > 200


def test_load_of_each_stage_is_the_most_of_its_executions(random_graph: Callable[..., Graph]) -> None:
    for seed in range(100):
        graph = random_graph(seed, num_nodes=12, rich=False)  # without views a stage is its recomputations and its node
        flat = flatten(graph)
        chosen = random_recomputations(flat, random.Random(seed), 10)
        memory = iter(memory_bytes_by_execution(graph, sequence_of(flat, chosen)))
        per_stage = [1 + sum(r.stage == stage for r in chosen) for stage in range(len(flat.nodes))]
        expected = [max(next(memory) for _ in range(count)) for count in per_stage]
        assert load_bytes_by_stage(native_problem(flat), chosen) == expected


def test_the_arrays_of_a_small_graph() -> None:
    graph = Graph(
        "g",
        (Input("x", 8), Input("w", 16, kind=InputKind.PARAMETER)),
        (
            Node("a", "norm", 5, ("x", "w"), (Value("a.out", 4), Value("a.state", 2, first_only=True)), 3),
            Node("v", "view", 1, ("a.out",), (Value("v.out", 0, alias_of="a.out"),)),
            Node("b", "drop", 7, ("v.out",), (Value("b.out", 6),), recompute_inputs=("a.state",)),
        ),
        ("b.out",),
        ("a", "v", "b"),
    )
    flat = flatten(graph)
    assert flat.roots == ("x", "w", "a.out", "a.state", "b.out")
    assert flat.size_bytes == [8, 0, 4, 2, 6]
    assert flat.producer == [-1, -1, 0, 0, 2]
    assert flat.is_recreated == [False, False, True, False, True]
    assert flat.is_kept == [False, True, False, False, True]
    assert flat.reads == [[0, 1], [2], [2]]
    assert flat.recompute_reads == [[], [], [3]]
    assert flat.duration == [5, 1, 7]
    assert flat.recompute_duration == [6, 1, 7]  # a's view is executed again with it
    assert flat.workspace_bytes == [3, 0, 0]
    assert flat.last_stage == [2, 1, 2]


def test_views_are_executed_again_only_where_a_newer_copy_is_read() -> None:
    graph = Graph(
        "g",
        (Input("x", 8),),
        (
            Node("a", "op", 1, ("x",), (Value("a.out", 4),)),
            Node("v", "view", 0, ("a.out",), (Value("v.out", 0, alias_of="a.out"),)),
            Node("w", "view", 0, ("v.out",), (Value("w.out", 0, alias_of="v.out"),)),
            Node("b", "op", 1, ("w.out",), (Value("b.out", 4),)),
            Node("c", "op", 1, ("b.out",), (Value("c.out", 4),)),
            Node("d", "op", 1, ("c.out", "w.out"), (Value("d.out", 4),)),
            Node("e", "op", 1, ("d.out", "w.out"), (Value("e.out", 4),)),
        ),
        ("e.out",),
        ("a", "v", "w", "b", "c", "d", "e"),
    )
    flat = flatten(graph)
    assert sequence_of(flat, []) == ["a", "v", "w", "b", "c", "d", "e"]
    assert sequence_of(flat, [Recomputation(4, 0)]) == ["a", "v", "w", "b", "a", "c", "v", "w", "d", "e"]


def test_a_graph_output_that_is_a_view_refers_to_the_last_copy() -> None:
    graph = Graph(
        "g",
        (Input("x", 8),),
        (
            Node("a", "op", 1, ("x",), (Value("a.out", 4),)),
            Node("v", "view", 0, ("a.out",), (Value("v.out", 0, alias_of="a.out"),)),
            Node("b", "op", 1, ("x",), (Value("b.out", 4),)),
        ),
        ("v.out", "b.out"),
        ("a", "v", "b"),
    )
    sequence = sequence_of(flatten(graph), [Recomputation(2, 0)])
    assert sequence == ["a", "v", "a", "b", "v"]
    # x + a + ..., and no second instance of a: the old one died with the old view
    assert replay(graph, steps_from_sequence(graph, sequence)).memory_bytes[-1] == 8


def test_an_empty_graph_has_no_stages() -> None:
    flat = flatten(Graph("empty", (), (), (), ()))
    assert load_bytes_by_stage(native_problem(flat), []) == []
    assert sequence_of(flat, []) == []
