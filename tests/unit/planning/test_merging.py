"""In-place operations merged into the producers of what they overwrite, and plans unfolded again."""

from __future__ import annotations

import random

import pytest

from lowtide import api
from lowtide.ir import Compute, Graph, Input, InputKind, Node, Status, Value
from lowtide.ir.sequence import steps_from_sequence
from lowtide.planners.protocol import Proposal
from lowtide.planning.merging import MergedGraph, merge_in_place
from lowtide.referee import baseline, replay


def op(name: str, *inputs: str, size_bytes: int = 8, duration: int = 2, workspace_bytes: int = 0) -> Node:
    return Node(name, "op", duration, inputs, (Value(f"{name}.out", size_bytes),), workspace_bytes=workspace_bytes)


def in_place(name: str, target: str, *inputs: str, recomputable: bool = True, workspace_bytes: int = 0) -> Node:
    return Node(
        name,
        "op_",
        1,
        (target, *inputs),
        (Value(f"{name}.out", 0, overwrites=target),),
        recomputable=recomputable,
        workspace_bytes=workspace_bytes,
    )


def view(name: str, base: str) -> Node:
    return Node(name, "view", 0, (base,), (Value(f"{name}.out", 0, alias_of=base),))


def graph_of(*nodes: Node, outputs: tuple[str, ...]) -> Graph:
    inputs = (Input("x", 8), Input("w", 4, kind=InputKind.BUFFER))
    return Graph("g", inputs, nodes, outputs, tuple(node.name for node in nodes), duration_unit="unit")


def merged_of(graph: Graph) -> MergedGraph:
    merged = merge_in_place(graph)
    assert merged is not None
    return merged


def test_a_producer_and_what_follows_it_in_place_are_one_node() -> None:
    graph = graph_of(
        op("a", "x", workspace_bytes=3),
        in_place("r", "a.out", "w", workspace_bytes=5),
        view("v", "r.out"),
        in_place("s", "v.out"),
        op("b", "s.out"),
        outputs=("b.out",),
    )
    merged = merged_of(graph)
    assert merged.parts_by_node == {"a": ("a", "r", "v", "s")}
    assert merged.graph.order == ("a", "b")
    assert merged.graph.node_by_name["a"] == Node(
        "a", "op+op_+view+op_", 4, ("x", "w"), (Value("s.out", 8),), workspace_bytes=5
    )


def test_siblings_and_views_that_are_still_there_stay_values_of_the_merged_node() -> None:
    norm = Node("n", "norm", 4, ("x",), (Value("y", 8), Value("mean", 2), Value("seed", 1, first_only=True)))
    graph = graph_of(norm, in_place("r", "y"), view("m", "mean"), in_place("s", "r.out"), outputs=("s.out", "m.out"))
    assert merged_of(graph).graph.node_by_name["n"].outputs == (
        Value("mean", 2),
        Value("seed", 1, first_only=True),
        Value("m.out", 0, alias_of="mean"),
        Value("s.out", 8),
    )


def test_after_names_the_merged_node() -> None:
    late = Node("c", "op", 1, ("x",), (Value("c.out", 8),), after=("r", "a"))
    graph = graph_of(op("a", "x"), in_place("r", "a.out"), late, outputs=("c.out", "r.out"))
    assert merged_of(graph).graph.node_by_name["c"].after == ("a",)


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param((op("a", "x"), op("b", "a.out"), in_place("r", "a.out", "b.out")), id="another node between"),
        pytest.param((op("a", "x"), in_place("r", "a.out", recomputable=False)), id="never again"),
        pytest.param((in_place("r", "w"),), id="an input of the graph"),
        pytest.param((op("a", "x"), op("r", "a.out")), id="nothing in place"),
        pytest.param(
            (
                Node("a", "op", 1, ("x",), (Value("y", 8), Value("n", 0, overwrites="x"))),
                in_place("r", "y"),
            ),
            id="a producer that overwrites",
        ),
        pytest.param(
            (
                op("a", "x"),
                Node("r", "op_", 1, ("a.out",), (Value("r.out", 0, overwrites="a.out"), Value("mask", 8))),
            ),
            id="an in-place operation with a result of its own",
        ),
        pytest.param(
            (
                Node("a", "op", 1, ("x",), (Value("y", 8), Value("seed", 1, first_only=True))),
                Node("r", "op_", 1, ("y",), (Value("r.out", 0, overwrites="y"),), recompute_inputs=("seed",)),
            ),
            id="own results read by recomputations",
        ),
    ],
)
def test_what_cannot_be_one_node_is_left(nodes: tuple[Node, ...]) -> None:
    assert merge_in_place(graph_of(*nodes, outputs=(nodes[-1].outputs[0].name,))) is None


def random_graph(seed: int) -> Graph:
    """A chain with skips, in-place operations behind most nodes, and views of them."""
    rng = random.Random(seed)
    readable, nodes = ["x"], []
    for number in range(rng.randint(3, 14)):
        others = rng.sample(readable[-5:], min(len(readable[-5:]), rng.randint(1, 3)))
        nodes.append(
            Node(
                f"n{number}",
                "op",
                rng.randint(1, 9),
                tuple(others),
                tuple(Value(f"n{number}.{i}", rng.randint(1, 9)) for i in range(rng.randint(1, 2))),
                workspace_bytes=rng.choice([0, 0, 4]),
            )
        )
        newest = f"n{number}.0"
        for again in range(rng.randint(0, 2)):
            if rng.random() < 0.3:
                nodes.append(view(f"v{number}.{again}", newest))
                newest = f"v{number}.{again}.out"
            extra = [name for name in rng.sample(readable, 1) if rng.random() < 0.5]
            nodes.append(in_place(f"i{number}.{again}", newest, *extra, workspace_bytes=rng.choice([0, 0, 6])))
            newest = f"i{number}.{again}.out"
        readable.append(newest)
    return graph_of(*nodes, outputs=(readable[-1],))


def test_any_plan_of_the_merged_graph_is_one_of_the_graph_and_needs_no_more() -> None:
    num_merged = num_again = 0
    for seed in range(300):
        graph = random_graph(seed)
        merged = merge_in_place(graph)
        if merged is None:
            continue
        num_merged += len(merged.parts_by_node)
        rng = random.Random(seed)
        sequence: list[str] = []
        for name in merged.graph.order:
            if sequence and rng.random() < 0.7:
                sequence.append(rng.choice(sequence))
                num_again += 1
            sequence.append(name)
        steps = steps_from_sequence(merged.graph, _with_inputs(merged.graph, sequence))
        planned = replay(merged.graph, steps)
        unfolded = merged.proposal(Proposal(Status.OPTIMAL, steps, lower_bound_duration=planned.duration))
        assert (unfolded.status, unfolded.lower_bound_duration) == (Status.FEASIBLE, None)
        assert unfolded.steps is not None
        replayed = replay(graph, unfolded.steps)
        assert replayed.duration == planned.duration
        assert replayed.peak_bytes <= planned.peak_bytes
        assert replayed.first_executions == graph.order
        assert replay(graph, steps_from_sequence(graph, graph.order)).peak_bytes == baseline(graph).peak_bytes
    assert num_merged > 500
    assert num_again > 500


def _with_inputs(graph: Graph, sequence: list[str]) -> list[str]:
    """Every execution beyond the first after those of all its ancestors, so that nothing is missing."""
    seen: set[str] = set()
    legal: list[str] = []
    for name in sequence:
        if name in seen:
            ancestors, pending = {name}, [name]
            while pending:
                for value in graph.node_by_name[pending.pop()].inputs:
                    producer = graph.producer_by_value.get(value)
                    if producer is not None and producer.name not in ancestors:
                        ancestors.add(producer.name)
                        pending.append(producer.name)
            legal += [node for node in graph.order if node in ancestors]
        else:
            legal.append(name)
        seen.add(name)
    return legal


def residual_chain(depth: int) -> Graph:
    """Blocks of norm, relu in place; a backward pass reads every block's result."""
    forward: list[Node] = []
    backward: list[Node] = []
    value, gradient = "x", "loss.out"
    for number in range(depth):
        forward += [op(f"n{number}", value), in_place(f"r{number}", f"n{number}.out")]
        value = f"r{number}.out"
    for number in reversed(range(depth)):
        backward.append(op(f"b{number}", gradient, f"r{number}.out", duration=3))
        gradient = f"b{number}.out"
    return graph_of(*forward, op("loss", value, size_bytes=1), *backward, outputs=(gradient,))


@pytest.mark.parametrize("planner", ["greedy", "search"])
def test_what_is_overwritten_is_recomputed(planner: str) -> None:
    graph = residual_chain(8)
    result = api.plan(graph, budget="60%", planner=planner, keep_order=True, time_limit_seconds=5, layout=None)
    assert result.plan is not None
    executed = [step.node for step in result.plan.steps if isinstance(step, Compute)]
    again = [name for name in set(executed) if executed.count(name) > 1]
    assert any(name.startswith("r") for name in again)
    assert result.lower_bound_duration is not None
    assert result.lower_bound_duration <= result.plan.duration
