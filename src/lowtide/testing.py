"""Builders and fakes, for tests of your own planner, policy or layout.

    graph = random_graph(Random(7), num_nodes=12)
    sequence = random_sequence(Random(7), graph)
    plan = honest_plan(graph, steps_from_sequence(graph, sequence))
    check_plan(graph, plan)

Random graphs hold every feature of the format: views, several outputs, overwriting, workspaces, first_only values,
recompute_inputs, unevictable values, parameters, after, nodes that must not be executed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TypeVar

from lowtide.ir import (
    Compute,
    Graph,
    Input,
    InputKind,
    Layout,
    Lifespan,
    Node,
    Placement,
    Plan,
    Scope,
    Status,
    Step,
    Value,
)
from lowtide.ir.serde import graph_sha256
from lowtide.planners.protocol import PlanRequest, Proposal
from lowtide.referee import check_layout
from lowtide.referee import replay as replay_steps
from lowtide.units import align_up

__all__ = [
    "FixedPlanner",
    "chain_graph",
    "diamond_graph",
    "honest_plan",
    "is_legal_sequence",
    "random_graph",
    "random_sequence",
    "relabelled_graph",
    "relabelled_steps",
    "scaled_graph",
    "stacked_layout",
    "training_chain_graph",
]

T = TypeVar("T")


def chain_graph(num_nodes: int, *, size_bytes: int = 64, duration: int = 1) -> Graph:
    """``x -> n0 -> n1 -> ...``: every node reads the value before it; the last value is the output."""
    nodes = [
        Node(
            name=f"n{index}",
            op="test.chain",
            duration=duration,
            inputs=(f"v{index - 1}" if index else "x",),
            outputs=(Value(f"v{index}", size_bytes),),
        )
        for index in range(num_nodes)
    ]
    return _graph("chain", (Input("x", size_bytes),), nodes, (nodes[-1].outputs[0].name,) if nodes else ())


def diamond_graph(*, size_bytes: int = 64) -> Graph:
    """``top`` is read by ``left`` and ``right``, which ``bottom`` reads together."""
    edges = {"top": ("x",), "left": ("top.out",), "right": ("top.out",), "bottom": ("left.out", "right.out")}
    nodes = [
        Node(name=name, op="test.diamond", duration=1, inputs=inputs, outputs=(Value(f"{name}.out", size_bytes),))
        for name, inputs in edges.items()
    ]
    return _graph("diamond", (Input("x", size_bytes),), nodes, ("bottom.out",))


def training_chain_graph(num_layers: int, *, size_bytes: int = 64, duration: int = 1) -> Graph:
    """A chain of layers, a boundary, and backward nodes that read the activations again, last layer first.

    Without recomputation all activations live at once; with it, about the square root of them need to.
    """
    forward = [
        Node(f"f{i}", "test.forward", duration, (f"a{i - 1}" if i else "x",), (Value(f"a{i}", size_bytes),))
        for i in range(num_layers)
    ]
    loss = Node("loss", "test.loss", duration, (f"a{num_layers - 1}",), (Value("loss.out", 0),))
    boundary = Node(
        "boundary", "lowtide.boundary", 0, ("loss.out",), (Value(f"g{num_layers}", size_bytes),), recomputable=False
    )
    backward = [
        Node(
            f"b{i}", "test.backward", duration, (f"g{i + 1}", f"a{i - 1}" if i else "x"), (Value(f"g{i}", size_bytes),)
        )
        for i in reversed(range(num_layers))
    ]
    inputs = (Input("x", size_bytes, evictable=False),)
    return _graph("training chain", inputs, [*forward, loss, boundary, *backward], ("loss.out", "g0"))


def _graph(name: str, inputs: tuple[Input, ...], nodes: Sequence[Node], outputs: tuple[str, ...]) -> Graph:
    order = tuple(node.name for node in nodes)
    return Graph(name=name, inputs=inputs, nodes=tuple(nodes), outputs=outputs, order=order, duration_unit="unit")


# ---------------------------------------------------------------- random graphs


def random_graph(rng: Random, *, num_nodes: int = 8, alignment: int = 1) -> Graph:
    """A small graph with any of the format's features, whose given order can be carried out.

    Args:
        rng: Where chance comes from; equal states give equal graphs.
        num_nodes: Number of nodes.
        alignment: Bytes; every size is a multiple of it.
    """
    builder = _RandomGraph(rng, alignment)
    for index in range(num_nodes):
        builder.add_node(f"n{index}")
    return builder.build()


class _RandomGraph:
    """Adds nodes one by one and remembers which values can still be read."""

    def __init__(self, rng: Random, alignment: int) -> None:
        self.rng = rng
        self.alignment = alignment
        self.inputs = [self._input(f"x{index}") for index in range(rng.randint(1, 3))]
        self.nodes: list[Node] = []
        self.storage_by_value = {graph_input.name: graph_input.name for graph_input in self.inputs}
        self.alive = list(self.storage_by_value)

    def build(self) -> Graph:
        """The graph; its outputs are some of the values that nothing overwrites."""
        outputs = self.rng.sample(self.alive, self.rng.randint(min(1, len(self.alive)), min(3, len(self.alive))))
        nodes = list(self.nodes)
        self.rng.shuffle(nodes)  # the order of nodes and the order of execution are two things
        return Graph(
            name="random",
            inputs=tuple(self.inputs),
            nodes=tuple(nodes),
            outputs=tuple(outputs),
            order=tuple(node.name for node in self.nodes),
            duration_unit="unit",
            alignment=self.alignment,
        )

    def add_node(self, name: str) -> None:
        """Add a node that reads values which are still alive."""
        rng = self.rng
        inputs = rng.sample(self.alive, min(len(self.alive), rng.randint(1, 3))) if self.alive else []
        others = [value for value in self.alive if value not in inputs]
        outputs: list[Value] = []
        for index in range(rng.choice((1, 1, 1, 2, 3))):
            outputs.append(self._output(f"{name}.{index}", inputs, outputs))
        earlier = [node.name for node in self.nodes]
        self.nodes.append(
            Node(
                name=name,
                op="test.random",
                duration=rng.randint(0, 9),
                inputs=tuple(inputs),
                outputs=tuple(outputs),
                workspace_bytes=self._size() if self._chance(0.2) else 0,
                recomputable=not self._chance(0.1),
                after=tuple(rng.sample(earlier, 1)) if earlier and self._chance(0.15) else (),
                recompute_inputs=tuple(rng.sample(others, 1)) if others and self._chance(0.15) else (),
            )
        )
        self._note(outputs)

    def _note(self, outputs: Sequence[Value]) -> None:
        taken = {self.storage_by_value[value.overwrites] for value in outputs if value.overwrites is not None}
        self.alive = [name for name in self.alive if self.storage_by_value[name] not in taken]
        for value in outputs:
            source = value.overwrites or value.alias_of or value.name
            self.storage_by_value[value.name] = self.storage_by_value.get(source, source)
            self.alive.append(value.name)

    def _output(self, name: str, inputs: Sequence[str], siblings: Sequence[Value]) -> Value:
        rng = self.rng
        evictable = not self._chance(0.1)
        taken = {self.storage_by_value[value.overwrites] for value in siblings if value.overwrites is not None}
        free = [value for value in inputs if self.storage_by_value[value] not in taken]
        aliased = {value.alias_of for value in siblings}
        unread = [value for value in free if not aliased & self._sharing(value, inputs)]
        if unread and self._chance(0.12):
            return Value(name, 0, overwrites=rng.choice(unread), evictable=evictable)
        if free and self._chance(0.2):
            return Value(name, 0, alias_of=rng.choice(free), evictable=evictable)
        if siblings and self._chance(0.2):
            sibling = rng.choice(list(siblings))
            return Value(name, 0, alias_of=sibling.name, first_only=sibling.first_only, evictable=evictable)
        return Value(name, self._size(), first_only=self._chance(0.1), evictable=evictable)

    def _sharing(self, value: str, inputs: Sequence[str]) -> set[str | None]:
        return {name for name in inputs if self.storage_by_value[name] == self.storage_by_value[value]}

    def _input(self, name: str) -> Input:
        kind = self.rng.choice((InputKind.USER, InputKind.USER, InputKind.PARAMETER, InputKind.BUFFER))
        graph_input = Input(name, self._size(), kind=kind)
        return replace(graph_input, evictable=False) if self._chance(0.2) else graph_input

    def _size(self) -> int:
        return self.alignment * self.rng.choice((0, 1, 2, 3, 5, 8))

    def _chance(self, probability: float) -> bool:
        return self.rng.random() < probability


# ---------------------------------------------------------------- sequences


def random_sequence(rng: Random, graph: Graph, *, num_recomputes: int = 4) -> tuple[str, ...]:
    """A legal sequence of executions: a random order of the nodes with up to ``num_recomputes`` more executions.

    Args:
        rng: Where chance comes from.
        graph: What is executed; its given order must be legal.
        num_recomputes: How many further executions are tried; those that would be illegal are left out.
    """
    sequence = tuple(graph.order)
    for _ in range(len(sequence)):  # swap neighbours
        position = rng.randrange(max(len(sequence) - 1, 1))
        swapped = (
            *sequence[:position],
            *reversed(sequence[position : position + 2]),
            *sequence[position + 2 :],
        )
        sequence = swapped if is_legal_sequence(graph, swapped) else sequence
    for _ in range(num_recomputes):
        name, position = rng.choice(sequence), rng.randint(0, len(sequence))
        longer = (*sequence[:position], name, *sequence[position:])
        sequence = longer if is_legal_sequence(graph, longer) else sequence
    return sequence


def is_legal_sequence(graph: Graph, sequence: Sequence[str]) -> bool:
    """Whether nodes can be executed in this sequence if nothing is evicted before its last use.

    Written without the referee, so that tests of it can use this.
    """
    where = {graph_input.name: (graph_input.name, 0) for graph_input in graph.inputs}  # the instance of each value
    count_by_node: dict[str, int] = {}
    for name in sequence:
        node = graph.node_by_name[name]
        count = count_by_node.get(name, 0)
        needed = {*node.inputs, *(node.recompute_inputs if count else ())}
        is_early = not count and not count_by_node.keys() >= set(node.after)
        if not needed <= where.keys() or is_early or (count and not node.recomputable):
            return False
        where = _after_execution(graph, node, count, where)
        count_by_node[name] = count + 1
    return len(count_by_node) == len(graph.nodes) and where.keys() >= set(graph.outputs)


def _after_execution(
    graph: Graph, node: Node, count: int, where: Mapping[str, tuple[str, int]]
) -> dict[str, tuple[str, int]]:
    made: dict[str, tuple[str, int]] = {}
    waiting = [value for value in node.outputs if not (count and value.first_only)]
    lost = {where[value.overwrites] for value in waiting if value.overwrites is not None}
    dead: set[str] = set()
    while waiting:
        value = waiting.pop(0)
        if value.alias_of is not None and value.alias_of in made:
            made[value.name] = made[value.alias_of]
            dead |= {value.name} if value.alias_of in dead else set()
        elif value.alias_of is not None and value.alias_of in where and value.alias_of in node.inputs:
            made[value.name] = where[value.alias_of]
            dead |= {value.name} if where[value.alias_of] in lost else set()
        elif value.alias_of is not None:
            waiting.append(value)  # its sibling comes later
        else:
            made[value.name] = (value.name, count) if value.overwrites is None else where[value.overwrites]
    left = {name: instance for name, instance in where.items() if instance not in lost}
    stays = {name for name in left if not graph.value_by_name[name].evictable}
    return left | {name: instance for name, instance in made.items() if name not in dead | stays}


# ---------------------------------------------------------------- the same, otherwise


def relabelled_graph(graph: Graph, rename: Callable[[str], str]) -> Graph:
    """The same graph with other names of nodes and values."""

    def renamed(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(map(rename, names))

    def value_of(value: Value) -> Value:
        return replace(
            value,
            name=rename(value.name),
            alias_of=None if value.alias_of is None else rename(value.alias_of),
            overwrites=None if value.overwrites is None else rename(value.overwrites),
        )

    nodes = [
        replace(
            node,
            name=rename(node.name),
            inputs=renamed(node.inputs),
            outputs=tuple(map(value_of, node.outputs)),
            after=renamed(node.after),
            recompute_inputs=renamed(node.recompute_inputs),
        )
        for node in graph.nodes
    ]
    inputs = [replace(graph_input, name=rename(graph_input.name)) for graph_input in graph.inputs]
    return replace(
        graph, inputs=tuple(inputs), nodes=tuple(nodes), outputs=renamed(graph.outputs), order=renamed(graph.order)
    )


def relabelled_steps(steps: Sequence[Step], rename: Callable[[str], str]) -> tuple[Step, ...]:
    """The same steps for the graph of :func:`relabelled_graph`."""
    return tuple(
        replace(step, node=rename(step.node)) if isinstance(step, Compute) else replace(step, value=rename(step.value))
        for step in steps
    )


def scaled_graph(graph: Graph, factor: int) -> Graph:
    """The same graph with every size and the alignment multiplied."""

    def sized(item: T) -> T:
        return replace(item, size_bytes=item.size_bytes * factor)  # type: ignore[type-var,attr-defined]  # Input or Value

    nodes = [
        replace(node, outputs=tuple(map(sized, node.outputs)), workspace_bytes=node.workspace_bytes * factor)
        for node in graph.nodes
    ]
    return replace(
        graph, inputs=tuple(map(sized, graph.inputs)), nodes=tuple(nodes), alignment=graph.alignment * factor
    )


# ---------------------------------------------------------------- plans and layouts


def stacked_layout(lifespans: Sequence[Lifespan], *, alignment: int) -> Layout:
    """A valid, wasteful layout: every instance has bytes of its own."""
    placements: list[Placement] = []
    offset = 0
    for span in lifespans:
        placements.append(Placement(span.name, span.occurrence, offset, span.size_bytes, span.is_workspace))
        offset += align_up(span.size_bytes, alignment)
    return Layout(tuple(placements))


def honest_plan(
    graph: Graph, steps: Sequence[Step], *, layout: Layout | None = None, budget_bytes: int | None = None
) -> Plan:
    """A plan whose claims are what the referee finds; its scope is free, its budget what it needs unless given.

    Raises:
        PlanRejected: The steps break a rule.
        LayoutRejected: The layout breaks a rule.
    """
    figures = replay_steps(graph, steps)
    footprint_bytes = None if layout is None else check_layout(graph, steps, layout).footprint_bytes
    needed_bytes = figures.peak_bytes if footprint_bytes is None else footprint_bytes
    return Plan(
        graph_sha256=graph_sha256(graph),
        planner="test",
        seed=0,
        threads=1,
        status=Status.FEASIBLE,
        scope=Scope(order="free"),
        budget_bytes=needed_bytes if budget_bytes is None else budget_bytes,
        peak_bytes=figures.peak_bytes,
        duration=figures.duration,
        baseline_duration=graph.baseline_duration,
        durations=tuple(node.duration for node in graph.nodes),
        steps=tuple(steps),
        footprint_bytes=footprint_bytes,
        layout=layout,
    )


@dataclass(frozen=True, slots=True)
class FixedPlanner:
    """A fake planner that answers every request alike.

    Attributes:
        proposal: Its answer.
        name: Its name.
    """

    proposal: Proposal
    name: str = "fixed"

    def propose(self, request: PlanRequest) -> Proposal:  # noqa: ARG002 - the answer does not depend on it
        """Return the proposal."""
        return self.proposal
