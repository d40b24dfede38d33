"""Training graphs captured from models: nodes, storages, random ops, statistics, boundary."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import lowtide
from lowtide.errors import CompileError
from lowtide.ir import Graph, InputKind, Node


class Normed(nn.Module):
    """A convolution, BatchNorm, ReLU, two dropouts, and a linear layer on a view."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8 * 16, 4)
        self.register_buffer("scale", torch.full((4,), 2.0))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.norm(self.convolution(image)))
        hidden = nn.functional.dropout(hidden, 0.2)
        hidden = nn.functional.dropout(hidden, 0.3)
        return self.head(hidden.flatten(1)) * self.scale


@pytest.fixture(scope="module")
def graph() -> Graph:
    return lowtide.capture(Normed(), (torch.randn(2, 3, 4, 4),), costs="estimated")


def nodes_of(graph: Graph, op: str) -> list[Node]:
    return [node for node in graph.nodes if node.op == op]


def test_inputs_have_their_kind_and_stay_with_the_caller(graph: Graph) -> None:
    kinds = [graph_input.kind for graph_input in graph.inputs]
    assert kinds.count(InputKind.PARAMETER) == 6
    assert kinds.count(InputKind.BUFFER) == 4
    assert kinds.count(InputKind.USER) == 1
    assert not any(graph_input.evictable for graph_input in graph.inputs)


def test_modules_are_named_as_in_the_model(graph: Graph) -> None:
    convolution = nodes_of(graph, "aten.convolution")[0]
    assert convolution.meta["module"] == "convolution"
    backward = nodes_of(graph, "aten.convolution_backward")[0]
    assert backward.meta["module"] == "convolution"
    root = nodes_of(graph, "aten.relu")[0]  # the function relu, called in the model's own forward
    assert "module" not in root.meta


def test_sizes_are_those_of_storages_rounded_up(graph: Graph) -> None:
    convolution = nodes_of(graph, "aten.convolution")[0]
    assert convolution.outputs[0].size_bytes == 2 * 8 * 4 * 4 * 4
    assert graph.alignment == 64
    bias = next(i for i in graph.inputs if i.kind is InputKind.PARAMETER and i.meta["shape"] == [4])
    assert bias.size_bytes == 64


def test_views_share_the_storage_of_their_base(graph: Graph) -> None:
    views = [node for node in graph.nodes if node.is_view]
    assert views
    for view in views:
        for value in view.outputs:
            assert value.alias_of in view.inputs
            assert value.size_bytes == 0


def test_random_ops_are_chained_and_carry_their_generator_state(graph: Graph) -> None:
    first, second = nodes_of(graph, "lowtide.dropout_noise")
    assert second.after == (first.name,)
    for node in (first, second):
        state = node.outputs[-1]
        assert (state.first_only, state.size_bytes) == (True, 5056)
        assert node.recompute_inputs == (state.name,)
        assert node.recomputable


def test_running_statistics_count_once(graph: Graph) -> None:
    (norm,) = nodes_of(graph, "aten._native_batch_norm_legit_functional")
    assert [value.first_only for value in norm.outputs] == [False, False, False, True, True]
    assert norm.recomputable


def test_what_reads_a_buffer_that_is_written_to_later_runs_once(graph: Graph) -> None:
    counter = next(i for i in graph.inputs if i.kind is InputKind.BUFFER and i.meta["shape"] == [])
    (addition,) = graph.readers_by_value[counter.name]
    assert not addition.recomputable


def test_the_boundary_reads_the_outputs_and_brings_the_tangents(graph: Graph) -> None:
    boundary = graph.boundary
    assert boundary is not None
    (tangent,) = boundary.outputs
    assert not tangent.evictable
    assert not boundary.recomputable
    held = [name for name in boundary.inputs if not graph.value_by_name[name].evictable]
    assert len(held) == 1  # the model's output; new statistics are copied and dropped
    assert boundary.workspace_bytes == 2 * 2 * 4 * 4  # room for a loss outside of the model: twice the output
    assert boundary.inputs


def test_a_scalar_output_is_the_loss_and_needs_no_room_for_one() -> None:
    graph = lowtide.capture(
        Normed(), (torch.randn(2, 3, 4, 4),), loss=lambda output: output.square().mean(), costs="estimated"
    )
    assert graph.boundary is not None
    assert graph.boundary.workspace_bytes == 0


def test_gradients_are_the_outputs(graph: Graph) -> None:
    assert len(graph.outputs) == 6
    backward = graph.order[graph.order.index(graph.boundary.name) :]  # type: ignore[union-attr]
    assert all(graph.producer_by_value[name].name in backward for name in graph.outputs)


def test_estimated_costs_make_the_same_graph_twice(graph: Graph) -> None:
    again = lowtide.capture(Normed(), (torch.randn(2, 3, 4, 4),), costs="estimated")
    assert again == graph


def test_capturing_moves_neither_generator_nor_weights() -> None:
    torch.manual_seed(3)
    model, image = Normed(), torch.randn(2, 3, 4, 4)
    state, weights = torch.get_rng_state(), [tensor.clone() for tensor in model.state_dict().values()]
    lowtide.capture(model, (image,), costs="profiled")
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(weights, model.state_dict().values(), strict=True))


def test_nothing_to_train_is_said() -> None:
    model = Normed().requires_grad_(requires_grad=False)
    with pytest.raises(CompileError, match="no output requires a gradient: nothing to train"):
        lowtide.capture(model, (torch.randn(2, 3, 4, 4),), costs="estimated")


@pytest.mark.parametrize(("raised", "num_warnings"), [(KeyboardInterrupt, 0), (ZeroDivisionError, 1)])
def test_ctrl_c_while_backward_is_traced_is_no_anomaly(raised: type[BaseException], num_warnings: int) -> None:
    """AOTAutograd traces in anomaly mode: torch warns of whatever ends it, with a traceback of forward."""
    name = f"lowtide_test::raises_{raised.__name__.lower()}"

    @torch.library.custom_op(name, mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    def backward(_context: object, _gradient: torch.Tensor) -> torch.Tensor:
        raise raised

    double.register_fake(torch.empty_like)
    double.register_autograd(backward)

    class Doubled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return double(self.linear(x))  # type: ignore[no-any-return]  # torch.library's ops are untyped

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with pytest.raises((KeyboardInterrupt, CompileError)):
            lowtide.capture(Doubled(), (torch.ones(1, 2),), costs="estimated")
    assert sum(str(one.message).startswith("Error detected in") for one in warned) == num_warnings
