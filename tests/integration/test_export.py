"""Inference graphs of real models: structure, sizes, aliases, and that executing the graph gives the model's bits."""

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lowtide import models
from lowtide.errors import CompileError
from lowtide.importers.torch_costs import CostMode
from lowtide.importers.torch_export import capture_inference, import_program
from lowtide.ir import Graph, InputKind
from lowtide.ir.serde import graph_from_document, graph_to_document
from lowtide.referee import baseline


class Branches(nn.Module):
    """Views, several outputs, None and a number, a buffer, a constant, an op in place, a returned input."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.register_buffer("scale", torch.full((8, 1, 1), 2.0))
        self.constant = torch.arange(4.0)

    def forward(self, x: Tensor) -> dict[str, Any]:
        scaled = self.norm(self.conv(x)) * self.scale
        first, second = scaled.chunk(2, dim=1)
        return {
            "relu": nn.functional.relu(first.clone(), inplace=True),
            "flat": second.flatten(1),
            "nothing": None,
            "input": x,
            "constant": self.constant + 1,
            "number": 3,
        }


@pytest.fixture(scope="module")
def branches() -> Graph:
    return capture_inference(Branches(), (torch.rand(2, 3, 8, 8),), costs="estimated")


def test_inputs_have_kinds_and_belong_to_the_caller(branches: Graph) -> None:
    kinds = {graph_input.name: graph_input.kind for graph_input in branches.inputs}
    assert kinds["x"] is InputKind.USER
    assert kinds["p_conv_weight"] is InputKind.PARAMETER
    assert kinds["b_scale"] is InputKind.BUFFER
    assert kinds["c_constant"] is InputKind.CONSTANT
    assert not any(graph_input.evictable for graph_input in branches.inputs)
    assert [i.size_bytes for i in branches.inputs if i.name == "x"] == [2 * 3 * 8 * 8 * 4]
    assert [i.size_bytes for i in branches.inputs if i.name == "p_conv_bias"] == [64]  # 32 bytes, rounded up


def test_views_are_aliases_and_unpacking_is_folded(branches: Graph) -> None:
    nodes = {node.op: node for node in branches.nodes}
    assert not any("getitem" in node.name for node in branches.nodes)
    split = nodes["aten.split.Tensor"]
    assert [(value.size_bytes, value.alias_of) for value in split.outputs] == [(0, "mul.out")] * 2
    assert nodes["aten.relu"].outputs[0].alias_of is None
    assert branches.base_by_value[branches.outputs[1]] == "mul.out"
    assert branches.value_by_name["mul.out"].size_bytes == 2 * 8 * 8 * 8 * 4
    assert branches.value_by_name["mul.out"].meta["shape"] == [2, 8, 8, 8]
    assert nodes["aten.mul.Tensor"].op == "aten.mul.Tensor"


def test_outputs_are_the_tensors_returned(branches: Graph) -> None:
    producers = [branches.producer_by_value[value].op for value in branches.outputs if value != "x"]
    assert branches.outputs[2] == "x"
    assert producers == ["aten.relu", "aten.view", "aten.add.Tensor"]


def test_estimated_captures_are_equal_and_survive_a_file(branches: Graph) -> None:
    again = capture_inference(Branches(), (torch.rand(2, 3, 8, 8),), costs="estimated")
    assert again == branches
    assert graph_from_document(graph_to_document(branches), "x") == branches
    assert (branches.alignment, branches.duration_unit, branches.name) == (64, "ns", "Branches")


def test_the_model_keeps_its_mode() -> None:
    model = Branches().train()
    model.norm.eval()
    capture_inference(model, (torch.rand(2, 3, 8, 8),), costs="estimated")
    assert (model.training, model.conv.training, model.norm.training) == (True, True, False)


def execute(graph_module: torch.fx.GraphModule, order: list[str], values: dict[Any, Any]) -> dict[Any, Any]:
    """Run the ops of an fx graph in the order of a Graph, by node name."""
    by_name = {node.name: node for node in graph_module.graph.nodes}
    for name in order:
        node = by_name[name]
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda argument: values[argument])
        values[node] = node.target(*args, **kwargs)
        for user in node.users:
            if user.target is operator.getitem:
                values[user] = values[node][user.args[1]]
    return values


@pytest.mark.parametrize("build", [models.unet_tiny, models.resnet50_like_tiny])
def test_executing_the_graph_gives_the_models_bits(build: Callable[[], models.ExampleModel]) -> None:
    model, inputs, _ = build()
    model.eval()
    program = torch.export.export(model, inputs, strict=False).run_decompositions({})
    imported = import_program(program, mode=CostMode.ESTIMATED, cache=None, name="model")
    graph_module = program.graph_module
    state = {**dict(model.named_parameters()), **dict(model.named_buffers()), **program.constants}
    values: dict[Any, Any] = {}
    given = iter(inputs)
    for spec, node in zip(
        program.graph_signature.input_specs, graph_module.graph.find_nodes(op="placeholder"), strict=True
    ):
        values[node] = state[spec.target] if spec.target is not None else next(given)
    with torch.no_grad():
        expected = model(*inputs)
        values = execute(graph_module, list(imported.graph.order), values)
    (output,) = graph_module.graph.find_nodes(op="output")
    assert torch.equal(values[output.args[0][0]], expected)


def test_freeing_after_the_last_use_is_far_below_the_sum() -> None:
    model, inputs, _ = models.unet_tiny()
    graph = capture_inference(model, inputs, costs="estimated")
    total = sum(value.size_bytes for node in graph.nodes for value in node.outputs)
    assert baseline(graph).peak_bytes < total / 2


def test_profiled_durations_are_measured(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWTIDE_CACHE", str(tmp_path))
    model, inputs, _ = models.unet_tiny()
    graph = capture_inference(model, inputs, costs="profiled")
    assert all(node.duration > 0 or node.is_view for node in graph.nodes)
    assert [path.name.startswith("costs-") for path in tmp_path.iterdir()] == [True]


class DataDependent(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1 if x.sum() > 0 else x


class DataDependentShape(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.nonzero()


def test_a_branch_on_data_is_refused_with_its_place() -> None:
    with pytest.raises(CompileError) as caught:
        capture_inference(DataDependent(), (torch.ones(3),), costs="estimated")
    message = str(caught.value)
    assert message.startswith("torch.export cannot capture DataDependent: Could not guard on data-dependent expression")
    assert f"at {__file__}:" in message
    assert "in forward: return x + 1 if x.sum() > 0 else x" in message
    assert "\n" not in message


def test_a_shape_that_depends_on_data_is_refused() -> None:
    with pytest.raises(CompileError, match=r"has a symbolic size \(.* = u0\): lowtide plans concrete shapes only"):
        capture_inference(DataDependentShape(), (torch.ones(3),), costs="estimated")


def test_wrong_inputs_are_refused_in_one_line() -> None:
    with pytest.raises(CompileError, match=r"torch.export cannot capture Branches") as caught:
        capture_inference(Branches(), (torch.rand(2, 5, 8, 8),), costs="estimated")
    assert "\n" not in str(caught.value)


def test_what_torch_export_made_is_taken() -> None:
    model, inputs = torch.nn.Linear(4, 4), (torch.ones(2, 4),)
    graph = capture_inference(model, inputs, costs="estimated")
    program: Any = torch.export.export(model, inputs)
    again = capture_inference(program, inputs, costs="estimated", name=graph.name)
    assert [(node.op, node.inputs) for node in again.nodes] == [(node.op, node.inputs) for node in graph.nodes]


def test_what_torchscript_made_is_refused() -> None:
    with pytest.raises(CompileError, match="takes no model that TorchScript made: give the module that was scripted"):
        capture_inference(torch.jit.trace(torch.nn.ReLU(), torch.ones(3)), (torch.ones(3),), costs="estimated")
