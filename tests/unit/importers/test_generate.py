from collections.abc import Callable
from statistics import NormalDist

import pytest

from lowtide.errors import InputError
from lowtide.importers.generate import graph_from_spec
from lowtide.importers.generate_layered import LayeredOptions, layered
from lowtide.ir import Graph
from lowtide.ir.serde import graph_sha256
from lowtide.referee import baseline


def num_edges(graph: Graph) -> int:
    return sum(len(node.inputs) for node in graph.nodes)


# Nodes without the boundary, peak and duration of instances published for the same families.
PUBLISHED = [
    ("transformer?layers=2", 53, 592, 1226),
    ("transformer?layers=4", 101, 1104, None),
    ("transformer?layers=40", 965, 10320, 21062),
    ("transformer?layers=80", 1925, 20560, None),
    ("unet?depth=5&blocks=8", 610, 100848, 17140),
    ("resnet?blocks=72", 1169, 83648, 20155),
]


@pytest.mark.parametrize(("spec", "num_nodes", "peak", "duration"), PUBLISHED)
def test_training_graphs_equal_published_ones(spec: str, num_nodes: int, peak: int, duration: int | None) -> None:
    graph = graph_from_spec(f"generate:{spec}&keep_gradients=0")
    assert len(graph.nodes) == num_nodes + 1
    assert baseline(graph).peak_bytes == peak
    assert duration is None or graph.baseline_duration == duration


@pytest.mark.parametrize("spec", ["transformer?layers=3", "unet?depth=3&blocks=1", "resnet?blocks=9"])
def test_boundary_separates_forward_and_backward(spec: str) -> None:
    graph = graph_from_spec(spec)
    assert graph.boundary is not None
    assert graph.boundary.inputs == ("loss",)
    middle = graph.order.index(graph.boundary.name)
    forward, backward = graph.order[:middle], graph.order[middle + 1 :]
    assert not any(name.endswith(("backward", "gradient")) for name in forward)
    assert all(name.endswith(("backward", "gradient")) for name in backward)
    after_boundary = {"tangent"}
    for name in backward:
        assert after_boundary.intersection(graph.node_by_name[name].inputs), f"{name} does not depend on the tangent"
        after_boundary.add(name)


@pytest.mark.parametrize("spec", ["transformer?layers=3", "unet?depth=3&blocks=2", "resnet?blocks=18"])
def test_kept_gradients_are_outputs(spec: str) -> None:
    graph = graph_from_spec(spec)
    gradients = [node.name for node in graph.nodes if node.op == "weight_gradient"]
    assert graph.outputs == ("loss", *gradients)
    assert len(gradients) == sum(node.op in ("linear", "conv") for node in graph.nodes)
    other = graph_from_spec(f"{spec}&keep_gradients=0")
    assert other.outputs == ()
    assert other.nodes == graph.nodes


@pytest.mark.parametrize("spec", ["transformer?layers=3", "unet?depth=3&blocks=2", "resnet?blocks=18"])
def test_only_the_last_backward_values_have_no_reader(spec: str) -> None:
    graph = graph_from_spec(spec)
    unread = [value for value, readers in graph.readers_by_value.items() if not readers]
    assert [value for value in unread if not value.endswith("gradient")] == [graph.order[-1]]


def test_peak_grows_linearly_with_depth() -> None:
    peaks = [baseline(graph_from_spec(f"transformer?layers={n}&keep_gradients=0")).peak_bytes for n in (10, 20, 30)]
    assert peaks[1] - peaks[0] == peaks[2] - peaks[1] == 10 * 256


def test_layered_graph_is_deterministic() -> None:
    graph = graph_from_spec("generate:layered?n=60&seed=3")
    assert graph == layered(LayeredOptions(n=60, seed=3))
    assert graph != graph_from_spec("generate:layered?n=60&seed=4")
    # Noted once: benchmarks name graphs by their seed, so neither platform nor release may change them.
    assert [node.duration for node in graph.nodes[:6]] == [0, 539, 94, 577, 101, 675]
    assert [node.outputs[0].size_bytes for node in graph.nodes[:6]] == [3220, 4780, 4520, 790, 2350, 150]
    assert graph.order[:8] == ("n0", "n2", "n9", "n3", "n1", "n5", "n7", "n8")
    assert graph_sha256(graph) == "576799c101eab55a4cc708b190e0c7aef28c75b638ca2f837c608eaa77afb17e"


@pytest.mark.parametrize(("n", "published_edges"), [(100, 236), (250, 944), (500, 2461), (1000, 5875)])
def test_layered_graphs_have_about_as_many_edges_as_published(n: int, published_edges: int) -> None:
    mean = sum(num_edges(layered(LayeredOptions(n=n, seed=seed))) for seed in range(8)) / 8
    assert 0.85 * published_edges <= mean <= 1.15 * published_edges


@pytest.mark.parametrize("seed", range(5))
def test_layered_graph_has_the_shape_of_the_definition(seed: int) -> None:
    graph = layered(LayeredOptions(n=300, seed=seed))
    sources = [node.name for node in graph.nodes if not node.inputs]
    sinks = [value for value, readers in graph.readers_by_value.items() if not readers]
    assert sources == ["n0"]
    assert sinks == ["n299"]
    assert (graph.nodes[0].duration, graph.nodes[-1].duration) == (0, 0)
    assert (graph.order[0], graph.order[-1]) == ("n0", "n299")
    durations = [node.duration for node in graph.nodes[1:-1]]
    assert min(durations) >= 0
    assert 900 <= max(durations) <= 999
    sizes = [node.outputs[0].size_bytes for node in graph.nodes]
    assert min(sizes) >= 10  # int(1000 * round(x, 2)) with x > 0
    assert graph.order != tuple(node.name for node in graph.nodes)


def test_layered_sizes_have_the_mean_of_the_mixture() -> None:
    sizes = [node.outputs[0].size_bytes for node in layered(LayeredOptions(n=5000)).nodes]
    assert sum(sizes) / len(sizes) == pytest.approx(1000 * _mixture_mean(), rel=0.05)


def _mixture_mean() -> float:
    """Mean of the mixture, redrawn as a whole (component and value) until above 0."""
    mass = weighted = 0.0
    for weight, mean, deviation in ((0.3, 0.5, 0.5), (0.3, 1.0, 1.0), (0.3, 3.0, 1.5), (0.1, 4.0, 1.5)):
        normal = NormalDist(mean, deviation)
        above = 1 - normal.cdf(0)
        mass += weight * above
        weighted += weight * (mean * above + deviation**2 * normal.pdf(0))
    return weighted / mass


@pytest.mark.parametrize(
    ("spec", "tenth"),
    [
        ("layered?n=10000", "layered?n=1000"),
        ("transformer?layers=400", "transformer?layers=40"),
        ("unet?depth=8&blocks=80", "unet?depth=8&blocks=8"),
        ("resnet?blocks=620", "resnet?blocks=62"),
    ],
)
def test_work_grows_with_the_number_of_nodes_and_edges(
    spec: str, tenth: str, num_calls: Callable[[Callable[[], object]], int]
) -> None:
    large, small = graph_from_spec(spec), graph_from_spec(tenth)
    assert len(large.nodes) > 9000
    growth = _num_nodes_and_edges(large) / _num_nodes_and_edges(small)
    assert num_calls(lambda: graph_from_spec(spec)) < 1.3 * growth * num_calls(lambda: graph_from_spec(tenth))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("generate:ring", "unknown family 'ring': use one of layered, resnet, transformer, unet"),
        ("generate:layered?nodes=3", "layered has no option 'nodes': use n, seed, width_factor, density, skip"),
        ("generate:transformer?layer=3", "transformer has no option 'layer': did you mean 'layers'?"),
        ("generate:layered?n", "write each option once, as n=250"),
        ("generate:layered?n=5&n=6", "write each option once, as n=250"),
        ("generate:layered?n=2.5", "n '2.5' must be a whole number"),
        ("generate:layered?n=2", "layered graph: n 2 must be from 3 to 1000000 nodes"),
        ("generate:layered?density=x", "density 'x' must be a decimal number such as 0.2"),
        ("generate:layered?density=2", "layered graph: density must be from 0 to 1, and skip from 0 to below 1"),
        ("generate:layered?width_factor=1", "layered graph: width_factor 1.0 must be above 0 and below 1"),
        ("generate:unet?keep_gradients=2", "keep_gradients '2' must be 0 or 1"),
        ("generate:unet?depth=0", "generated unet: depth 0 must be from 1 to 40"),
        ("generate:transformer?width=20", "generated transformer: width 20 must be a multiple of 16"),
        ("generate:resnet?blocks=-1", "generated resnet: blocks -1 must be from 1 to 55555"),
        ("generate:layered?" + "n=5&" * 500, "has 2008 characters, at most 1000 are read"),
    ],
)
def test_wrong_descriptions_end_in_one_line(spec: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        graph_from_spec(spec)
    assert str(caught.value).endswith(message)
    assert "\n" not in str(caught.value)


def _num_nodes_and_edges(graph: Graph) -> int:
    return len(graph.nodes) + sum(len(node.inputs) for node in graph.nodes)
