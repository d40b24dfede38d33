"""Nets of known families with random weights as .onnx, as exporters of PyTorch write them: Conv, then activation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx


class _Net:
    """Builds one net: tensors are (1, channels, height, width), float32."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.shapes: dict[str, tuple[int, int]] = {}
        self.rng = np.random.default_rng(0)

    def input(self, side: int, channels: int) -> str:
        self.shapes["x"] = (side, channels)
        return "x"

    def node(self, op: str, inputs: Sequence[str], side: int, channels: int, **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(op, list(inputs), [name], name=f"{op}_{name}", **attributes))
        self.shapes[name] = (side, channels)
        return name

    def weight(self, array: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(onnx.numpy_helper.from_array(np.asarray(array, np.float32), name))
        return name

    def conv(
        self, source: str, channels: int, *, size: int = 3, stride: int = 1, group: int = 1, act: str | None = "Relu"
    ) -> str:
        side, depth = self.shapes[source]
        fan_in = size * size * depth // group
        weights = self.weight(self.rng.standard_normal((channels, depth // group, size, size)) / np.sqrt(fan_in))
        y = self.node(
            "Conv", [source, weights, self.weight(np.zeros(channels))], -(-side // stride), channels,
            pads=[size // 2] * 4, strides=[stride] * 2, group=group,
        )  # fmt: skip
        return y if act is None else self.act(y, act)

    def act(self, source: str, op: str = "Relu", **attributes: Any) -> str:
        return self.node(op, [source], *self.shapes[source], **attributes)

    def norm(self, source: str) -> str:
        depth = self.shapes[source][1]
        scales = [self.weight(np.ones(depth)), self.weight(np.zeros(depth))]
        moments = [self.weight(np.zeros(depth)), self.weight(np.ones(depth))]
        return self.node("BatchNormalization", [source, *scales, *moments], *self.shapes[source])

    def add(self, first: str, second: str) -> str:
        return self.node("Add", [first, second], *self.shapes[first])

    def scaled(self, source: str) -> str:
        return self.node("Mul", [source, self.weight(0.2)], *self.shapes[source])

    def concat(self, parts: Sequence[str]) -> str:
        if len(parts) == 1:
            return parts[0]
        return self.node("Concat", parts, self.shapes[parts[0]][0], sum(self.shapes[part][1] for part in parts), axis=1)

    def pool(self, source: str, op: str = "MaxPool") -> str:
        side, depth = self.shapes[source]
        return self.node(op, [source], side // 2, depth, kernel_shape=[2, 2], strides=[2, 2])

    def upsample(self, source: str) -> str:
        side, depth = self.shapes[source]
        return self.node("Resize", [source, "", self.weight([1, 1, 2, 2])], 2 * side, depth, mode="nearest")

    def build(self, y: str) -> bytes:
        values = [
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, depth, side, side])
            for name, (side, depth) in ((name, self.shapes[name]) for name in ("x", y))
        ]
        graph = onnx.helper.make_graph(self.nodes, "net", values[:1], values[1:], self.weights)
        opsets = [onnx.helper.make_opsetid("", 17)]
        return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def _mobilenet(net: _Net) -> bytes:
    y = net.conv(net.input(192, 3), 16, stride=2)
    for channels, repeats, stride in ((16, 1, 1), (24, 2, 2), (32, 3, 2), (64, 4, 2), (96, 3, 1), (160, 3, 2)):
        for number in range(repeats):
            step, before = stride if number == 0 else 1, y
            wide = 6 * net.shapes[y][1]
            y = net.conv(net.conv(y, wide, size=1), wide, stride=step, group=wide)
            y = net.conv(y, channels, size=1, act=None)
            y = net.add(before, y) if step == 1 and net.shapes[before][1] == channels else y
    return net.build(y)


def _resnet(net: _Net) -> bytes:
    y = net.conv(net.input(128, 3), 32)
    for channels, stride in ((32, 1), (32, 1), (64, 2), (64, 1), (128, 2), (128, 1)):
        shortcut = net.conv(y, channels, size=1, stride=stride, act=None) if stride > 1 else y
        y = net.act(net.add(net.conv(net.conv(y, channels, stride=stride), channels, act=None), shortcut))
    return net.build(y)


def _densenet(net: _Net, growth: int = 32) -> bytes:
    """DenseNet-121's blocks at 128 x 128: normalisation before activation before convolution, nothing to fold."""
    y = net.pool(net.conv(net.input(128, 3), 2 * growth, size=7, stride=2))
    for number, depth in enumerate((6, 12, 24, 16)):
        parts = [y]
        for _ in range(depth):
            narrow = net.conv(net.act(net.norm(net.concat(parts))), 4 * growth, size=1)
            parts.append(net.conv(narrow, growth, act=None))
        y = net.act(net.norm(net.concat(parts)))
        if number < 3:
            y = net.pool(net.conv(y, net.shapes[y][1] // 2, size=1, act=None), "AveragePool")
    return net.build(y)


def _unet(net: _Net) -> bytes:
    y, skips = net.conv(net.input(128, 3), 16), []
    for channels in (16, 32, 64):
        skips.append(net.conv(y, channels))
        y = net.conv(net.pool(skips[-1]), 2 * channels)
    for skip in reversed(skips):
        y = net.conv(net.upsample(y), net.shapes[skip][1], size=1)
        y = net.conv(net.concat([skip, y]), net.shapes[skip][1])
    return net.build(net.conv(y, 1, size=1, act="Sigmoid"))


def _rrdb(net: _Net, width: int = 32, growth: int = 16) -> bytes:
    """Residual in residual dense blocks and one upsampling, as restoration nets have them."""
    first = y = net.conv(net.input(64, 3), width, act=None)
    for _ in range(2):
        outer = y
        for _ in range(3):
            parts = [y]
            for _ in range(4):
                parts.append(net.act(net.conv(net.concat(parts), growth, act=None), "LeakyRelu", alpha=0.2))
            y = net.add(net.scaled(net.conv(net.concat(parts), width, act=None)), y)
        y = net.add(net.scaled(y), outer)
    y = net.add(net.conv(y, width, act=None), first)
    y = net.conv(net.upsample(y), growth)
    return net.build(net.conv(net.conv(y, growth), 3, act=None))


def _branches(net: _Net) -> bytes:
    """Four branches that widen and shrink again, written breadth first, as exporters write them."""
    x = net.input(96, 8)
    wide = [net.conv(x, 32) for _ in range(4)]
    return net.build(net.conv(net.concat([net.conv(each, 8) for each in wide]), 8, size=1))


FAMILIES: dict[str, Callable[[Any], Any]] = {
    "mobilenet_v2_like": _mobilenet,
    "resnet_like": _resnet,
    "densenet_121_like": _densenet,
    "unet_like": _unet,
    "rrdb_like": _rrdb,
    "four_branches": _branches,
}


def built_onnx_nets(only: str) -> dict[str, bytes]:
    """The nets whose names hold ``only``."""
    return {name: build(_Net()) for name, build in FAMILIES.items() if only in name}
