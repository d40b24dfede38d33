"""Random layered graphs, as the benchmarks of the field generate them.

    source ─▶ layer 1 ─▶ layer 2 ─▶ ... ─▶ sink        edges between neighbours: one per node, others by density
                 └──────────(skip)──▶

Source: the RL1-RL4 instances of Bartan et al., "Moccasin" (ICML 2023), after the synthetic graphs of Gagrani et al.,
"Neural topological ordering for computation graphs" (NeurIPS 2022): w is ``width_factor``, the layers have a mean width
of sqrt(n w / (1 - w)). Departure: drawn with Python's ``random.Random``, so that one seed gives one graph on every
platform; the published instances themselves are files, not seeds.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from lowtide.errors import InputError
from lowtide.ir import Graph, Node, Value

__all__ = ["LayeredOptions", "layered"]

_MIXTURE_WEIGHTS = (0.3, 0.3, 0.3, 0.1)
_MIXTURE_MEANS = (0.5, 1.0, 3.0, 4.0)
_MIXTURE_DEVIATIONS = (0.5, 1.0, 1.5, 1.5)
_WIDTH_SPREAD = 0.75
_MAX_DURATION = 999


@dataclass(frozen=True, slots=True, kw_only=True)
class LayeredOptions:
    """What a random layered graph looks like.

    Attributes:
        n: Number of nodes, source and sink included; at least 3.
        seed: Same options and seed, same graph, on every platform.
        width_factor: Between 0 and 1, exclusive; larger gives fewer and wider layers. The default
            gives about as many edges as RL1-RL4 have.
        density: Probability of each further edge between neighbouring layers.
        skip: Share of edges that skip layers, of all edges between inner layers.
    """

    n: int = 250
    seed: int = 0
    width_factor: float = 0.33
    density: float = 0.2
    skip: float = 0.14

    def __post_init__(self) -> None:
        if not 3 <= self.n <= 1_000_000:
            raise InputError(f"layered graph: n {self.n} must be from 3 to 1000000 nodes")
        if not 0 < self.width_factor < 1:
            raise InputError(f"layered graph: width_factor {self.width_factor} must be above 0 and below 1")
        if not 0 <= self.density <= 1 or not 0 <= self.skip < 1:
            raise InputError("layered graph: density must be from 0 to 1, and skip from 0 to below 1")


def layered(options: LayeredOptions) -> Graph:
    """Draw a random layered graph.

    Args:
        options: Its size, shape and seed.

    Returns:
        A graph without inputs and outputs, in abstract units (alignment 1); source and sink take no time; the given
        order is a random topological order.
    """
    rng = random.Random(options.seed)
    layers = _draw_layers(options, rng)
    inputs = [sorted(sources) for sources in _draw_edges(layers, options, rng)]
    inner = range(1, options.n - 1)
    durations = [0, *(rng.randint(0, _MAX_DURATION) for _ in inner), 0]
    nodes = tuple(
        Node(
            name=f"n{index}",
            op="op",
            duration=durations[index],
            inputs=tuple(f"n{source}" for source in inputs[index]),
            outputs=(Value(name=f"n{index}", size_bytes=_draw_size(rng)),),
        )
        for index in range(options.n)
    )
    return Graph(
        name=f"layered-{options.n}-seed{options.seed}",
        inputs=(),
        nodes=nodes,
        outputs=(),
        order=tuple(f"n{index}" for index in _draw_order(inputs, rng)),
        duration_unit="unit",
    )


def _draw_layers(options: LayeredOptions, rng: random.Random) -> list[range]:
    """Split the nodes into layers: the source, inner layers of random width, the sink."""
    width = math.sqrt(options.n * options.width_factor / (1 - options.width_factor))
    layers = [range(1)]
    while (start := layers[-1].stop) < options.n - 1:
        drawn = rng.uniform(width * (1 - _WIDTH_SPREAD), width * (1 + _WIDTH_SPREAD))
        layers.append(range(start, min(start + max(1, round(drawn)), options.n - 1)))
    return [*layers, range(options.n - 1, options.n)]


def _draw_edges(layers: Sequence[range], options: LayeredOptions, rng: random.Random) -> list[set[int]]:
    """For each node, the nodes that it reads."""
    inputs: list[set[int]] = [set() for _ in range(options.n)]
    has_reader = [False] * options.n
    num_edges = 0
    for before, layer in itertools.pairwise(layers):
        for node in layer:
            mandatory = rng.choice(before)
            inputs[node] = {source for source in before if source == mandatory or rng.random() < options.density}
            num_edges += len(inputs[node])
            for source in inputs[node]:
                has_reader[source] = True
    layer_by_node = [index for index, layer in enumerate(layers) for _ in layer]
    _draw_skips(inputs, layers, round(num_edges * options.skip / (1 - options.skip)), rng)
    for node in range(options.n - 1):  # whatever nobody in the next layer reads would be dead: give it a reader
        if not has_reader[node]:
            inputs[rng.choice(layers[layer_by_node[node] + 1])].add(node)
    return inputs


def _draw_skips(inputs: list[set[int]], layers: Sequence[range], num_skips: int, rng: random.Random) -> None:
    """Add edges between inner layers that are not neighbours."""
    num_inner = len(layers) - 2
    if num_inner < 3:
        return
    for _ in range(num_skips):
        from_layer = rng.randint(1, num_inner - 2)
        to_layer = rng.randint(from_layer + 2, num_inner)
        inputs[rng.choice(layers[to_layer])].add(rng.choice(layers[from_layer]))


def _draw_size(rng: random.Random) -> int:
    """A size from four Gaussians, redrawn until it is above 0."""
    while True:
        (component,) = rng.choices(range(len(_MIXTURE_WEIGHTS)), weights=_MIXTURE_WEIGHTS)
        size = round(rng.gauss(_MIXTURE_MEANS[component], _MIXTURE_DEVIATIONS[component]), 2)
        if size > 0:
            return int(1000 * size)


def _draw_order(inputs: Sequence[Sequence[int]], rng: random.Random) -> list[int]:
    """A random topological order: at every position any node whose inputs are there, each as likely."""
    readers: list[list[int]] = [[] for _ in inputs]
    num_waiting = [len(sources) for sources in inputs]
    for node, sources in enumerate(inputs):
        for source in sources:
            readers[source].append(node)
    ready = [node for node, num in enumerate(num_waiting) if num == 0]
    order: list[int] = []
    while ready:
        index = rng.randrange(len(ready))
        ready[index], ready[-1] = ready[-1], ready[index]
        node = ready.pop()
        order.append(node)
        for reader in readers[node]:
            num_waiting[reader] -= 1
            if num_waiting[reader] == 0:
                ready.append(reader)
    return order
