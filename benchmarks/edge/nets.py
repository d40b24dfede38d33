"""Nets of known shapes with random weights, built operator by operator: what converters make of the usual families.

Each is there in float32 and in int8. Activations are fused into the convolutions, as converters do, except where a net
of the family has one between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from lowtide.emit.tflite_builder import TfliteBuilder

_SCALE = 0.05


class _Net:
    """Builds one net: tensors are (1, height, width, channels), all of one type."""

    def __init__(self, dtype: str) -> None:
        self.builder = TfliteBuilder(description="lowtide benchmark, random weights")
        self.dtype = dtype
        self.shapes: dict[int, tuple[int, int]] = {}
        self._fifth: int | None = None
        self.rng = np.random.default_rng(0)

    def tensor(self, side: int, channels: int) -> int:
        scale = _SCALE if self.dtype == "INT8" else None
        index = self.builder.tensor(f"t{len(self.shapes)}", (1, side, side, channels), dtype=self.dtype, scale=scale)
        self.shapes[index] = (side, channels)
        return index

    def conv(self, source: int, channels: int, *, size: int = 3, stride: int = 1) -> int:
        side, depth = self.shapes[source]
        target = self.tensor(-(-side // stride), channels)
        weights = self.rng.standard_normal((channels, size, size, depth)) / np.sqrt(size * size * depth)
        self.builder.conv(source, target, weights, stride=stride)
        return target

    def depthwise(self, source: int, *, stride: int = 1) -> int:
        side, depth = self.shapes[source]
        target = self.tensor(-(-side // stride), depth)
        weights = self.rng.standard_normal((1, 3, 3, depth)) / 3
        self.builder.conv(source, target, weights, stride=stride, kind="DEPTHWISE_CONV_2D")
        return target

    def add(self, first: int, second: int) -> int:
        target = self.tensor(*self.shapes[first])
        self.builder.operator("ADD", [first, second], [target], options="AddOptions", version=2)
        return target

    def concat(self, parts: Sequence[int]) -> int:
        if len(parts) == 1:
            return parts[0]
        side = self.shapes[parts[0]][0]
        target = self.tensor(side, sum(self.shapes[part][1] for part in parts))
        self.builder.operator("CONCATENATION", parts, [target], options="ConcatenationOptions", axis=3, version=2)
        return target

    def leaky(self, source: int) -> int:
        target = self.tensor(*self.shapes[source])
        self.builder.operator("LEAKY_RELU", [source], [target], options="LeakyReluOptions", alpha=0.2, version=2)
        return target

    def scaled(self, source: int) -> int:
        if self._fifth is None:
            data = np.array([4], np.int8) if self.dtype == "INT8" else np.array([0.2], np.float32)
            scale = _SCALE if self.dtype == "INT8" else None
            self._fifth = self.builder.tensor("fifth", (1,), dtype=self.dtype, data=data, scale=scale)
        target = self.tensor(*self.shapes[source])
        self.builder.operator("MUL", [source, self._fifth], [target], options="MulOptions", version=2)
        return target

    def pool(self, source: int) -> int:
        side, depth = self.shapes[source]
        target = self.tensor(side // 2, depth)
        self.builder.operator(
            "MAX_POOL_2D", [source], [target], options="Pool2DOptions", version=2,
            padding=1, strideW=2, strideH=2, filterWidth=2, filterHeight=2,
        )  # fmt: skip
        return target

    def upsample(self, source: int) -> int:
        side, depth = self.shapes[source]
        target = self.tensor(2 * side, depth)
        size = self.builder.tensor(f"size{target}", (2,), dtype="INT32", data=np.array([2 * side] * 2, np.int32))
        self.builder.operator(
            "RESIZE_NEAREST_NEIGHBOR", [source, size], [target], options="ResizeNearestNeighborOptions", version=2
        )
        return target

    def build(self, x: int, y: int) -> bytes:
        return self.builder.build(inputs=[x], outputs=[y], signature="serving_default")


def _mobilenet(net: _Net) -> bytes:
    x = net.tensor(96, 3)
    y = net.conv(x, 16, stride=2)
    for channels, repeats, stride in ((16, 1, 1), (24, 2, 2), (32, 3, 2), (64, 4, 2), (96, 3, 1), (160, 3, 2)):
        for number in range(repeats):
            step = stride if number == 0 else 1
            before = y
            y = net.conv(y, 6 * net.shapes[y][1], size=1)
            y = net.depthwise(y, stride=step)
            y = net.conv(y, channels, size=1)
            y = net.add(before, y) if step == 1 and net.shapes[before][1] == channels else y
    return net.build(x, y)


def _resnet(net: _Net) -> bytes:
    x = net.tensor(64, 3)
    y = net.conv(x, 16)
    for channels, stride in ((16, 1), (16, 1), (32, 2), (32, 1), (64, 2), (64, 1)):
        shortcut = net.conv(y, channels, size=1, stride=stride) if stride > 1 else y
        y = net.add(net.conv(net.conv(y, channels, stride=stride), channels), shortcut)
    return net.build(x, y)


def _densenet(net: _Net, growth: int = 12) -> bytes:
    x = net.tensor(48, 3)
    y = net.conv(x, 2 * growth)
    for depth in (6, 8, 6):
        parts = [y]
        for _ in range(depth):
            parts.append(net.conv(net.conv(net.concat(parts), 4 * growth, size=1), growth))
        whole = net.concat(parts)
        y = net.pool(net.conv(whole, net.shapes[whole][1] // 2, size=1))
    return net.build(x, y)


def _unet(net: _Net) -> bytes:
    x = net.tensor(64, 3)
    y, skips = net.conv(x, 16), []
    for channels in (16, 32, 64):
        skips.append(net.conv(y, channels))
        y = net.conv(net.pool(skips[-1]), 2 * channels)
    for skip in reversed(skips):
        y = net.conv(net.upsample(y), net.shapes[skip][1], size=1)
        y = net.conv(net.concat([skip, y]), net.shapes[skip][1])
    return net.build(x, net.conv(y, 1, size=1))


def _rrdb(net: _Net, width: int = 32, growth: int = 16) -> bytes:
    """Residual in residual dense blocks and one upsampling, as restoration nets have them.

    LEAKY_RELU and the scaling of residuals are operators of their own: converters fuse neither.
    """
    x = net.tensor(32, 3)
    first = net.conv(x, width)
    y = net.add(net.conv(_dense_in_residual(net, first, growth, num_blocks=2), width), first)
    y = net.leaky(net.conv(net.upsample(y), growth))
    return net.build(x, net.conv(net.leaky(net.conv(y, growth)), 3))


def _esrgan(net: _Net, side: int, width: int, *, num_blocks: int) -> bytes:
    """ESRGAN's trunk (Wang et al. 2018) at one resolution, as restoration nets have it that do not upsample.

    Residual in residual dense blocks with as many channels and growth as there are in its proportion, the skip across
    all of them, then two convolutions.
    """
    x = net.tensor(side, 3)
    first = net.conv(x, width)
    y = _dense_in_residual(net, first, width // 2, num_blocks=num_blocks)
    y = net.leaky(net.conv(net.add(net.conv(y, width), first), width))
    return net.build(x, net.conv(y, 3))


def _dense_in_residual(net: _Net, y: int, growth: int, *, num_blocks: int) -> int:
    """Blocks of three dense blocks of five convolutions each, with inner and outer skips scaled by a fifth."""
    width = net.shapes[y][1]
    for _ in range(num_blocks):
        outer = y
        for _ in range(3):
            parts = [y]
            for _ in range(4):
                parts.append(net.leaky(net.conv(net.concat(parts), growth)))
            y = net.add(net.scaled(net.conv(net.concat(parts), width)), y)
        y = net.add(net.scaled(y), outer)
    return y


def _branches(net: _Net) -> bytes:
    """Four branches that widen and shrink again, written breadth first, as exporters write them."""
    x = net.tensor(48, 8)
    wide = [net.conv(x, 32) for _ in range(4)]
    narrow = [net.conv(each, 8) for each in wide]
    return net.build(x, net.conv(net.concat(narrow), 8, size=1))


_FAMILIES: dict[str, Callable[[_Net], bytes]] = {
    "mobilenet_v2_like": _mobilenet,
    "resnet_like": _resnet,
    "densenet_like": _densenet,
    "unet_like": _unet,
    "rrdb_like": _rrdb,
    "esrgan_like_96": partial(_esrgan, side=96, width=8, num_blocks=1),
    "esrgan_like_48": partial(_esrgan, side=48, width=32, num_blocks=2),
    "four_branches": _branches,
}


def built_nets(only: str) -> dict[str, bytes]:
    """The nets whose names hold ``only``, float and int8."""
    return {
        f"{name}_{dtype.lower()}": build(_Net(dtype))
        for name, build in _FAMILIES.items()
        for dtype in ("FLOAT32", "INT8")
        if only in f"{name}_{dtype.lower()}"
    }
