"""The benchmark on ExecuTorch: its nets are those of the ONNX table, and a row has what its table shows."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="builds torch modules")
onnx = pytest.importorskip("onnx", reason="compares with .onnx nets")
pytest.importorskip("executorch", reason="lowers and runs .pte files")

from benchmarks.edge.executorch_models import measure_model, table  # noqa: E402
from benchmarks.edge.executorch_nets import built_torch_nets  # noqa: E402
from benchmarks.edge.onnx_nets import FAMILIES, built_onnx_nets  # noqa: E402


@pytest.mark.parametrize("name", FAMILIES)
def test_nets_are_those_of_onnx(name: str) -> None:
    ((model, inputs),) = built_torch_nets(name).values()
    graph = onnx.load_from_string(built_onnx_nets(name)[name]).graph
    (output,) = graph.output
    with torch.no_grad():
        assert list(model(*inputs).shape) == [entry.dim_value for entry in output.type.tensor_type.shape.dim]
    convolutions = [module for module in model.modules() if isinstance(module, torch.nn.Conv2d)]
    assert len(convolutions) == sum(node.op_type == "Conv" for node in graph.node)
    num_weights = sum(onnx.numpy_helper.to_array(weight).size for weight in graph.initializer if len(weight.dims) == 4)
    assert sum(module.weight.numel() for module in convolutions) == num_weights


class TwoBranches(torch.nn.Module):
    """Written breadth first: the other order needs half."""

    def forward(self, x: Any) -> Any:
        first, second = torch.sin(x.repeat(1, 4)), torch.cos(x.repeat(1, 4))
        return first.mean(1) + second.mean(1)


def test_a_row() -> None:
    options = argparse.Namespace(seconds=2.0, seed=0, repeats=1)
    row = measure_model(TwoBranches(), (torch.randn(64, 16),), "portable", options) | {
        "model": "two_branches", "delegate": "portable"
    }  # fmt: skip
    assert row["num_different_outputs"] == 0
    assert row["after_bytes"] == row["planned_bytes"] < row["before_bytes"]
    assert row["before"]["cpu_seconds"] > 0
    line = table([row]).splitlines()[-1]
    assert line.startswith("| two_branches | portable | ")
    assert " yes " in line
