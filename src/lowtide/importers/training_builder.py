"""Collects the nodes of a generated training graph: forward, loss, boundary, backward."""

from __future__ import annotations

from lowtide.ir import BOUNDARY_OP, Graph, Node, Value

__all__ = ["TrainingBuilder"]


class TrainingBuilder:
    """Adds nodes in the order of execution; every node has one output, named like the node."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._weight_gradients: list[str] = []
        self._loss: str | None = None

    def forward(self, name: str, op: str, duration: int, size: int, *inputs: str) -> str:
        """Add a node; returns the name of its value, of ``size`` units."""
        self._nodes.append(
            Node(name=name, op=op, duration=duration, inputs=inputs, outputs=(Value(name=name, size_bytes=size),))
        )
        return name

    def gradient(self, name: str, duration: int, size: int, *inputs: str) -> str:
        """Add a backward node that gives the gradient of an activation; returns the name of that."""
        return self.forward(f"{name}.backward", "backward", duration, size, *inputs)

    def weight_gradient(self, name: str, duration: int, size: int, *inputs: str) -> None:
        """Add a backward node that gives the gradient of a weight."""
        value = self.forward(f"{name}.weight_gradient", "weight_gradient", duration, size, *inputs)
        self._weight_gradients.append(value)

    def loss(self, duration: int, *inputs: str) -> str:
        """Add the loss and the boundary after it; returns the name of the tangent, which starts the backward pass."""
        self._loss = self.forward("loss", "loss", duration, 1, *inputs)
        tangent = Value(name="tangent", size_bytes=1)
        self._nodes.append(
            Node(
                name="boundary",
                op=BOUNDARY_OP,
                duration=0,
                inputs=(self._loss,),
                outputs=(tangent,),
                recomputable=False,
            )
        )
        return tangent.name

    def graph(self, *, name: str, keep_gradients: bool) -> Graph:
        """The graph of all nodes; loss and weight gradients are its outputs, or nothing is."""
        assert self._loss is not None
        return Graph(
            name=name,
            inputs=(),
            nodes=tuple(self._nodes),
            outputs=(self._loss, *self._weight_gradients) if keep_gradients else (),
            order=tuple(node.name for node in self._nodes),
            duration_unit="unit",
        )
