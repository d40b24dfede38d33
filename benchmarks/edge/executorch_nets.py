"""The nets of ``onnx_nets`` as torch modules, of the same sizes: what one hands to ExecuTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from benchmarks.edge.onnx_nets import FAMILIES

_ACTIVATIONS: dict[str, Callable[..., Any]] = {"Relu": functional.relu, "Sigmoid": torch.sigmoid}


class _Net:
    """Builds one net with the words of ``onnx_nets``: values are fx nodes, (1, channels, height, width), float32."""

    def __init__(self) -> None:
        self.graph = fx.Graph()
        self.modules = nn.Module()
        self.shapes: dict[fx.Node, tuple[int, int]] = {}

    def input(self, side: int, channels: int) -> fx.Node:
        return self._noted(self.graph.placeholder("x"), side, channels)

    def conv(
        self,
        source: fx.Node,
        channels: int,
        *,
        size: int = 3,
        stride: int = 1,
        group: int = 1,
        act: str | None = "Relu",
    ) -> fx.Node:
        side, depth = self.shapes[source]
        conv = nn.Conv2d(depth, channels, size, stride, size // 2, groups=group)
        y = self._noted(self._module(conv, source), -(-side // stride), channels)
        return y if act is None else self.act(y, act)

    def act(self, source: fx.Node, op: str = "Relu", *, alpha: float = 0.0) -> fx.Node:
        if op == "LeakyRelu":
            return self._call(functional.leaky_relu, source, alpha)
        return self._call(_ACTIVATIONS[op], source)

    def norm(self, source: fx.Node) -> fx.Node:
        return self._noted(self._module(nn.BatchNorm2d(self.shapes[source][1]), source), *self.shapes[source])

    def add(self, first: fx.Node, second: fx.Node) -> fx.Node:
        return self._call(torch.add, first, second)

    def scaled(self, source: fx.Node) -> fx.Node:
        return self._call(torch.mul, source, 0.2)

    def concat(self, parts: Sequence[fx.Node]) -> fx.Node:
        if len(parts) == 1:
            return parts[0]
        whole = self.graph.call_function(torch.cat, (list(parts), 1))
        return self._noted(whole, self.shapes[parts[0]][0], sum(self.shapes[part][1] for part in parts))

    def pool(self, source: fx.Node, op: str = "MaxPool") -> fx.Node:
        side, depth = self.shapes[source]
        pool = functional.max_pool2d if op == "MaxPool" else functional.avg_pool2d
        return self._noted(self.graph.call_function(pool, (source, 2)), side // 2, depth)

    def upsample(self, source: fx.Node) -> fx.Node:
        side, depth = self.shapes[source]
        wide = self.graph.call_function(functional.interpolate, (source,), {"scale_factor": 2, "mode": "nearest"})
        return self._noted(wide, 2 * side, depth)

    def build(self, y: fx.Node) -> nn.Module:
        self.graph.output(y)
        return fx.GraphModule(self.modules, self.graph).eval()

    def _call(self, function: Callable[..., Any], source: fx.Node, *others: Any) -> fx.Node:
        return self._noted(self.graph.call_function(function, (source, *others)), *self.shapes[source])

    def _module(self, module: nn.Module, source: fx.Node) -> fx.Node:
        name = f"m{len(self.modules._modules)}"
        self.modules.add_module(name, module)
        return self.graph.call_module(name, (source,))

    def _noted(self, node: fx.Node, side: int, channels: int) -> fx.Node:
        self.shapes[node] = (side, channels)
        return node


def built_torch_nets(only: str) -> dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]]:
    """The nets whose names hold ``only``, with random weights, and their example inputs."""
    found = {}
    for name, build in FAMILIES.items():
        if only in name:
            torch.manual_seed(0)
            net = _Net()
            model = build(net)
            side, channels = next(iter(net.shapes.values()))
            found[name] = (model, (torch.randn(1, channels, side, side),))
    return found
