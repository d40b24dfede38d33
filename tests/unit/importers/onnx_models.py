"""Small .onnx models, built with onnx.helper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")

SHAPE = (1, 4, 16, 16)
FLOAT = onnx.TensorProto.FLOAT


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Any:
    return onnx.helper.make_node(op, list(inputs), list(outputs), name=f"make_{outputs[0]}", **attributes)


def value(name: str, shape: Sequence[int | str] = SHAPE, dtype: int = FLOAT) -> Any:
    return onnx.helper.make_tensor_value_info(name, dtype, list(shape))


def constant(name: str, array: Any) -> Any:
    return onnx.numpy_helper.from_array(np.asarray(array), name)


def weight(name: str, shape: Sequence[int], seed: int = 0) -> Any:
    return constant(name, np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def model(
    nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any], weights: Sequence[Any] = (), **options: Any
) -> Any:
    graph = onnx.helper.make_graph(list(nodes), "net", list(inputs), list(outputs), list(weights))
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9, **options)


def save(made: Any, folder: Path, name: str = "net.onnx") -> Path:
    path = folder / name
    path.write_bytes(made.SerializeToString())
    return path


def two_branches() -> Any:
    """Two large tensors before two small ones: in the order of the file both large ones are alive at once."""
    nodes = [
        node("Conv", ["x", "wide_a"], ["large_a"], pads=[1] * 4),
        node("Conv", ["x", "wide_b"], ["large_b"], pads=[1] * 4),
        node("Conv", ["large_a", "narrow_a"], ["small_a"]),
        node("Conv", ["large_b", "narrow_b"], ["small_b"]),
        node("Mul", ["small_a", "small_b"], ["y"]),
    ]
    weights = [weight(f"wide_{name}", (256, 4, 3, 3), seed) for seed, name in enumerate("ab")]
    weights += [weight(f"narrow_{name}", (4, 256, 1, 1), seed) for seed, name in enumerate("ab")]
    return model(nodes, [value("x")], [value("y")], weights)


def long_skip() -> Any:
    """A cheap large tensor needed again past another large one: recomputation helps, order does not."""
    nodes = [
        node("Conv", ["x", "w0"], ["skipped"]),
        node("Conv", ["skipped", "w1"], ["narrow"], pads=[1] * 4),
        node("Conv", ["narrow", "w2"], ["wide"], pads=[1] * 4),
        node("Conv", ["wide", "w3"], ["narrow_again"], pads=[1] * 4),
        node("Conv", ["narrow_again", "w0"], ["widened"]),
        node("Mul", ["skipped", "widened"], ["mixed"]),
        node("Conv", ["mixed", "w5"], ["y"]),
    ]
    shapes = {"w0": (128, 4, 1, 1), "w1": (4, 128, 3, 3), "w2": (512, 4, 3, 3), "w3": (4, 512, 3, 3),
              "w5": (4, 128, 1, 1)}  # fmt: skip
    return model(nodes, [value("x")], [value("y")], [weight(name, shape) for name, shape in shapes.items()])


def with_branch() -> Any:
    """An If whose branches read values of the graph around it."""
    then = onnx.helper.make_graph([node("Neg", ["a"], ["chosen"])], "then", [], [value("chosen")])
    otherwise = onnx.helper.make_graph([node("Exp", ["a"], ["chosen"])], "otherwise", [], [value("chosen")])
    nodes = [
        node("Abs", ["x"], ["a"]),
        node("ReduceSum", ["a"], ["total"], keepdims=0),
        node("Greater", ["total", "zero"], ["is_large"]),
        node("If", ["is_large"], ["b"], then_branch=then, else_branch=otherwise),
        node("Mul", ["b", "x"], ["y"]),
    ]
    return model(nodes, [value("x")], [value("y")], [constant("zero", np.float32(0))])
