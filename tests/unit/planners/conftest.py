"""Graphs for the planners' tests, random ones with everything a graph can have, and what the least duration is."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lowtide.ir import BOUNDARY_OP, Graph, Input, InputKind, Node, Value
from lowtide.referee import baseline, largest_working_set


@dataclass
class _Builder:
    """Grows a graph node by node, so that only values that are resident at that moment are read."""

    rng: random.Random
    inputs: list[Input] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    readable: list[str] = field(default_factory=list)
    root: dict[str, str] = field(default_factory=dict)

    def pick(self, most: int) -> tuple[str, ...]:
        recent = self.readable[-6:] if self.rng.random() < 0.7 else self.readable
        return tuple(self.rng.sample(recent, min(len(recent), self.rng.randint(1, most))))

    def add_input(self) -> None:
        kind = self.rng.choice([InputKind.USER, InputKind.USER, InputKind.PARAMETER])
        name = f"x{len(self.inputs)}"
        self.inputs.append(
            Input(name, self.rng.randint(0, 9), kind=kind, evictable=self.rng.choice([None, True, False]))
        )
        self.readable.append(name)
        self.root[name] = name

    def add_node(self, *, rich: bool) -> None:
        choice = self.rng.random()
        if rich and choice < 0.25:
            self.add_view()
        elif rich and choice < 0.32:
            self.add_overwrite()
        else:
            self.add_plain(rich=rich)

    def add_view(self) -> None:
        base = self.rng.choice(self.readable)
        number = len(self.nodes)
        inputs = [base]
        if self.rng.random() < 0.2:
            inputs += [name for name in self.pick(1) if name != base]
        values = [
            Value(f"v{number}.{i}", 0, alias_of=base, evictable=self.rng.random() > 0.05)
            for i in range(self.rng.randint(1, 2))
        ]
        self.append(
            Node(
                f"n{number}",
                "view",
                self.rng.choice([0, 0, 1]),
                tuple(inputs),
                tuple(values),
                recomputable=self.rng.random() > 0.1,
                workspace_bytes=self.rng.choice([0, 0, 0, 1]),
            )
        )

    def add_overwrite(self) -> None:
        number = len(self.nodes)
        target = self.rng.choice(self.readable)
        values = (Value(f"v{number}", self.rng.randint(0, 9), overwrites=target),)
        others = [name for name in self.pick(2) if name != target]
        self.append(Node(f"n{number}", "inplace", self.rng.randint(0, 9), (target, *others), values))

    def add_plain(self, *, rich: bool) -> None:
        number, rng = len(self.nodes), self.rng
        values = [Value(f"v{number}.0", rng.randint(1, 9))]
        while rich and rng.random() < 0.35:
            values.append(
                Value(
                    f"v{number}.{len(values)}",
                    rng.randint(0, 9),
                    first_only=rng.random() < 0.2,
                    evictable=rng.random() > 0.1,
                )
            )
        if rich and rng.random() < 0.15:
            base = rng.choice(values)
            values.append(
                Value(
                    f"v{number}.{len(values)}", 0, alias_of=base.name, first_only=base.first_only or rng.random() < 0.1
                )
            )
        states = [value.name for value in values if value.first_only and value.alias_of is None]
        extra = tuple(states) if rng.random() < 0.7 else ()
        if rich and rng.random() < 0.1:
            extra = (*extra, *(name for name in self.pick(1) if name not in extra))
        self.append(
            Node(
                f"n{number}",
                "op",
                rng.randint(0, 9),
                self.pick(3),
                tuple(values),
                workspace_bytes=rng.choice([0, 0, 0, 5]) if rich else 0,
                recomputable=not rich or rng.random() > 0.1,
                after=(f"n{rng.randrange(number)}",) if rich and number and rng.random() < 0.1 else (),
                recompute_inputs=extra if rich else (),
            )
        )

    def append(self, node: Node) -> None:
        self.nodes.append(node)
        for value in node.outputs:
            if value.overwrites is not None:
                taken = self.root[value.overwrites]
                self.readable = [name for name in self.readable if self.root[name] != taken]
        for value in node.outputs:
            source = value.alias_of if value.alias_of is not None else value.overwrites
            # A storage after an overwriting counts as a new one here: old values of it can no longer be read.
            self.root[value.name] = value.name if source is None or value.overwrites else self.root[source]
            self.readable.append(value.name)


def _build(seed: int, *, num_nodes: int, rich: bool = True) -> Graph:
    builder = _Builder(random.Random(seed))
    for _ in range(builder.rng.randint(1, 3)):
        builder.add_input()
    while len(builder.nodes) < num_nodes:
        builder.add_node(rich=rich)
    outputs = tuple(dict.fromkeys(builder.rng.choices(builder.readable, k=builder.rng.randint(1, 3))))
    order = tuple(node.name for node in builder.nodes)
    nodes = list(builder.nodes)
    builder.rng.shuffle(nodes)
    return Graph("random", tuple(builder.inputs), tuple(nodes), outputs, order)


@pytest.fixture(scope="session")
def random_graph() -> Callable[..., Graph]:
    """Make a random graph: ``random_graph(seed, num_nodes=12, rich=True)``; rich: with all the format has."""
    return _build


@pytest.fixture(scope="session")
def training_graph() -> Callable[..., Graph]:
    """Make the joint graph of a chain of equal layers: ``training_graph(num_layers=16)``.

    Layer i is ``a_i = op(a_{i-1}, w_i)``; its backward reads the layer's input and the gradient of its output.
    """

    def build(num_layers: int, size_bytes: int = 10, duration: int = 10) -> Graph:
        weights = tuple(Input(f"w{i}", 7, kind=InputKind.PARAMETER) for i in range(num_layers))
        forward = [
            Node(f"f{i}", "layer", duration, (f"a{i - 1}" if i else "x", f"w{i}"), (Value(f"a{i}", size_bytes),))
            for i in range(num_layers)
        ]
        loss = Node("loss", "sum", 1, (f"a{num_layers - 1}",), (Value("l", 1),))
        boundary = Node("boundary", BOUNDARY_OP, 0, ("l",), (Value("t", 1),), recomputable=False)
        backward: list[Node] = []
        for i in reversed(range(num_layers)):
            gradient = "t" if i == num_layers - 1 else f"g{i + 1}"
            read = (gradient, f"a{i}", f"a{i - 1}" if i else "x")
            values = (Value(f"g{i}", size_bytes), Value(f"dw{i}", 1))
            backward.append(Node(f"b{i}", "layer_backward", 2 * duration, read, values))
        nodes = (*forward, loss, boundary, *backward)
        outputs = ("l", *(f"dw{i}" for i in range(num_layers)))
        order = tuple(node.name for node in nodes)
        return Graph("chain", (Input("x", size_bytes), *weights), nodes, outputs, order)

    return build


@pytest.fixture(scope="session")
def with_backward() -> Callable[[Graph], Graph]:
    """Append a boundary and, for each value that can still be read, a node that reads it, last made first."""

    def extend(graph: Graph) -> Graph:
        dead = {value.overwrites for node in graph.nodes for value in node.outputs if value.overwrites is not None}
        base = graph.base_by_value
        gone = {base[name] for name in dead}
        readable = [
            v.name for name in graph.order for v in graph.node_by_name[name].outputs if base[v.name] not in gone
        ]
        boundary = Node("boundary", BOUNDARY_OP, 0, graph.outputs, (Value("t", 1),), recomputable=False)
        backward: list[Node] = []
        for number, name in enumerate(reversed(readable)):
            gradient = backward[-1].outputs[0].name if backward else "t"
            backward.append(Node(f"back{number}", "op", 1, (gradient, name), (Value(f"g{number}", 3),)))
        outputs = (*graph.outputs, *(backward[-1].outputs[0].name for _ in backward[-1:]))
        added = (boundary, *backward)
        order = (*graph.order, *(node.name for node in added))
        return Graph(graph.name, graph.inputs, (*graph.nodes, *added), outputs, order)

    return extend


@pytest.fixture(scope="session")
def plain_graph() -> Callable[[int, int], Graph]:
    """Make a graph of so many nodes by a seed: one to two outputs a node, no aliases; tight enough to recompute."""

    def build(seed: int, num_nodes: int) -> Graph:
        rng = random.Random(seed)
        nodes: list[Node] = []
        for index in range(num_nodes):
            made = [value.name for node in nodes for value in node.outputs]
            inputs = rng.sample(made, min(len(made), rng.choice((1, 1, 2, 2, 3))))
            outputs = [Value(f"v{index}.{i}", rng.randint(1, 9)) for i in range(rng.choice((1, 1, 1, 2)))]
            workspace_bytes = rng.choice((0, 0, 3))
            nodes.append(Node(f"n{index}", "op", rng.randint(0, 9), tuple(inputs), tuple(outputs), workspace_bytes))
        kept = (nodes[-1].outputs[0].name, *([nodes[0].outputs[0].name] if rng.random() < 0.3 else []))
        return Graph("plain", (), tuple(nodes), kept, tuple(node.name for node in nodes), "unit")

    return build


@pytest.fixture(scope="session")
def budgets() -> Callable[[Graph], list[int]]:
    """Budgets from the largest working set to just below the baseline's peak; none where there is nothing between."""

    def choose(graph: Graph) -> list[int]:
        low, high = largest_working_set(graph).size_bytes, baseline(graph).peak_bytes
        return sorted({low, (low + high) // 2, high - 1}) if low < high else []

    return choose


@pytest.fixture(scope="session")
def least_duration() -> Callable[..., int | None]:
    """The exhaustive optimum: see ``bounds/exhaustive.py``."""
    path = Path(__file__).parent / "bounds" / "exhaustive.py"
    spec = importlib.util.spec_from_file_location("lowtide_test_exhaustive", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[..., int | None] = module.least_duration
    return found
