"""What is dropped from a traced graph, and what must stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="prepares graphs of torch")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from lowtide.importers.torch_prepare import add_tangents_last, drop_noops, storage_id  # noqa: E402


def _traced(function: Callable[..., Any], *inputs: Any) -> torch.fx.Graph:
    graph: torch.fx.Graph = make_fx(function, tracing_mode="fake")(*inputs).graph
    return graph


def _ops(graph: torch.fx.Graph) -> list[str]:
    return [str(node.target).split(".")[1] for node in graph.nodes if node.op == "call_function"]


def test_idle_clone_is_dropped_and_its_storage_merged() -> None:
    graph = _traced(lambda x: (x * 2).clone() + 1, torch.rand(3))
    product, clone = [node for node in graph.nodes if node.op == "call_function"][:2]
    ids = storage_id(clone.meta["val"]), storage_id(product.meta["val"])
    assert drop_noops(graph) == {ids[0]: ids[1]}
    assert _ops(graph) == ["mul", "add"]


def test_storages_merge_over_two_clones() -> None:
    graph = _traced(lambda x: (x * 2).clone().clone() + 1, torch.rand(3))
    nodes = [node for node in graph.nodes if node.op == "call_function"][:3]
    product, first, second = (storage_id(node.meta["val"]) for node in nodes)
    assert drop_noops(graph) == {first: product, second: product}


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: (x * 2).clone(), "the caller gets it and may write to it"),
        (lambda x: (x * 2).clone().view(-1), "the caller gets a view of it"),
        (lambda x: (x.t().clone(memory_format=torch.contiguous_format)) + 1, "its layout is another"),
    ],
)
def test_clones_that_change_something_stay(function: Callable[..., Any], reason: str) -> None:
    graph = _traced(function, torch.rand(3, 4))
    assert drop_noops(graph) == {}
    assert "clone" in _ops(graph), reason


def test_clone_of_an_input_that_is_written_to_afterwards_stays() -> None:
    graph = _traced(lambda x: x.clone() + 1, torch.rand(3))
    (placeholder,) = graph.find_nodes(op="placeholder")
    assert drop_noops(graph, written_inputs=[placeholder]) == {}
    assert _ops(graph) == ["clone", "add"]
    assert drop_noops(graph) != {}
    assert _ops(graph) == ["add"]


def test_clone_of_what_the_graph_writes_to_stays() -> None:
    def function(x: Any) -> Any:
        product = x * 2
        before = product.clone()
        product.add_(1)
        return before * product

    graph = _traced(function, torch.rand(3))
    drop_noops(graph)
    assert _ops(graph) == ["mul", "clone", "add_", "mul"]


def test_detach_and_dead_ops_go_but_random_ops_stay() -> None:
    def function(x: Any) -> Any:
        torch.rand(3)
        x.exp()
        return x.detach() * 2

    graph = _traced(function, torch.rand(3))
    drop_noops(graph)
    assert _ops(graph) == ["rand", "mul"]


def _strides(module: Any) -> list[tuple[int, ...]]:
    return [node.meta["val"].stride() for node in module.graph.nodes if node.op == "call_function"]


def test_tangents_are_added_last_and_layouts_follow() -> None:
    tangent, inner = torch.rand(2, 4, 3, 3).contiguous(memory_format=torch.channels_last), torch.rand(2, 4, 3, 3)
    module = make_fx(lambda t, g: (t + g) * 2, tracing_mode="fake")(tangent, inner)
    first, second = module.graph.find_nodes(op="placeholder")
    assert _strides(module) == [tangent.stride()] * 2
    add_tangents_last(module, [first])
    (total, _) = (node for node in module.graph.nodes if node.op == "call_function")
    assert total.args == (second, first)
    assert _strides(module) == [inner.stride()] * 2


@pytest.mark.parametrize("turned", [torch.rand(4, 3).t(), torch.rand(3, 4)], ids=["another layout", "the same"])
def test_a_sum_keeps_its_order_where_what_follows_needs_its_layout_or_nothing_changes(turned: Any) -> None:
    module = make_fx(lambda t, g: (t + g).view(-1), tracing_mode="fake")(torch.rand(3, 4), turned)
    first, second = module.graph.find_nodes(op="placeholder")
    values = [node.meta["val"] for node in module.graph.nodes if "val" in node.meta]
    add_tangents_last(module, [first])
    (total, _) = (node for node in module.graph.nodes if node.op == "call_function")
    assert total.args == (first, second)
    assert all(value is node.meta["val"] for value, node in zip(values, module.graph.nodes, strict=False))
