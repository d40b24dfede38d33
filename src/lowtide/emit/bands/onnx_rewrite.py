"""An .onnx model whose stretches are computed band by band, in onnx's own operators and those that the model has.

weights, attributes    shared with the original nodes; of padded ones each band has its own ``pads``
values within          those of a stretch are gone, pieces take their place; inputs and outputs stay
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lowtide.emit.bands.net import Form, StepKind
from lowtide.emit.bands.onnx_net import OnnxNet
from lowtide.emit.bands.stretch import BandStep, Padding, Piece, Stretch, steps_of_bands
from lowtide.emit.onnx_names import all_names, fresh_name
from lowtide.importers.onnx import OnnxImport
from lowtide.importers.onnx_file import onnx_module

__all__ = ["with_bands"]

_ROW_AXIS = 2
_OPSET_WITH_SLICE_INPUTS = 10


def with_bands(source: OnnxImport, numbered: OnnxNet, bands: Sequence[tuple[Stretch, int]]) -> Any:
    """Compute stretches band by band.

    Args:
        source: The imported model; it stays as it is.
        numbered: The same in numbers.
        bands: Stretches of it that share no node, and how many bands each.

    Returns:
        A ``ModelProto``: the optimised model with bands.

    Raises:
        ValueError: A stretch cannot have that many bands, or two of them overlap.
    """
    return _Rewrite(source, numbered).run(bands)


class _Rewrite:
    """Collects nodes; names are given as pieces are met."""

    def __init__(self, source: OnnxImport, numbered: OnnxNet) -> None:
        self.onnx = onnx_module()
        self.source = source
        self.numbered = numbered
        self.model = self.onnx.ModelProto()
        self.model.CopyFrom(source.optimised.model)
        self.taken = all_names(self.model.graph) | {node.name for node in source.graph.nodes}
        self.opset = next((entry.version for entry in self.model.opset_import if entry.domain in ("", "ai.onnx")), 1)
        self.nodes: list[Any] = []
        self.name_by_piece: dict[Piece, str] = {}
        self.constant_by_elements: dict[tuple[int, ...], str] = {}

    def run(self, bands: Sequence[tuple[Stretch, int]]) -> Any:
        originals = [self._named(position) for position in range(len(self.model.graph.node))]
        next_position = 0
        for stretch, num_bands in sorted(bands, key=lambda entry: entry[0].positions):
            steps = steps_of_bands(self.numbered.net, stretch, num_bands)
            if steps is None or stretch.positions.start < next_position:
                raise ValueError(f"nodes {stretch.positions} cannot be computed in {num_bands} bands here")
            self.nodes += originals[next_position : stretch.positions.start]
            self.name_by_piece.clear()
            for step in steps:
                self.nodes.append(self._node(step))
            next_position = stretch.positions.end
        self.nodes += originals[next_position:]
        del self.model.graph.node[:]
        self.model.graph.node.extend(self.nodes)
        self._forget_gone_values()
        return self.model

    def _named(self, position: int) -> Any:
        """A node under its name in the graph, which does not change from one optimisation to the next."""
        node = self.onnx.NodeProto()
        node.CopyFrom(self.source.optimised.model.graph.node[position])
        node.name = self.source.graph.nodes[position].name
        return node

    def _node(self, step: BandStep) -> Any:
        inputs = [self._name(piece) for piece in step.inputs]
        output = self._name(step.output)
        if step.kind is StepKind.OPERATOR or step.operator is not None:
            return self._local(step, inputs, output)
        if step.kind is StepKind.CONCATENATION:
            return self._new("Concat", inputs, output, axis=_ROW_AXIS)
        if step.kind is StepKind.SLICE:
            start = step.output.rows.start - step.inputs[0].rows.start
            return self._slice(inputs[0], output, start, start + len(step.output.rows))
        raise ValueError("padding is the business of operators here")

    def _local(self, step: BandStep, inputs: Sequence[str], output: str) -> Any:
        """One of the model's nodes, for the rows of a piece."""
        operator = step.operator
        if operator is None:
            raise ValueError("a step that is one of the model's nodes names it")
        node = self._named(operator.position)
        node.name = fresh_name(f"{node.name}/band{step.output.band}", self.taken)
        cut = [self.numbered.names[index] for index in operator.cut]
        new_by_old = dict(zip(cut, inputs, strict=True))
        for position, name in enumerate(node.input):
            node.input[position] = new_by_old.get(name, name)
        node.output[0] = output
        if operator.form is Form.OWN_PADDING:
            self._set_padding(node, step.padding)
        elif operator.form is Form.PAD:
            padding = step.padding
            around = (0, 0, padding.before, padding.left, 0, 0, padding.after, padding.right)
            node.input[1] = self._constant(around)
        elif operator.form is Form.RESIZE:
            batch, channels, _, _ = self.source.graph.value_by_name[self.numbered.names[operator.output]].meta["shape"]
            node.input[3] = self._constant((batch, channels, *step.output.extents(self.numbered.net)))
        return node

    def _set_padding(self, node: Any, padding: Padding) -> None:
        kept = [entry for entry in node.attribute if entry.name not in ("pads", "auto_pad")]
        del node.attribute[:]
        node.attribute.extend(kept)
        pads = [padding.before, padding.left, padding.after, padding.right]
        node.attribute.append(self.onnx.helper.make_attribute("pads", pads))

    def _slice(self, source: str, output: str, start: int, end: int) -> Any:
        if self.opset < _OPSET_WITH_SLICE_INPUTS:
            return self._new("Slice", [source], output, starts=[start], ends=[end], axes=[_ROW_AXIS])
        operands = [self._constant((number,)) for number in (start, end, _ROW_AXIS)]
        return self._new("Slice", [source, *operands], output)

    def _new(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> Any:
        name = fresh_name(f"{op}/{output}", self.taken)
        return self.onnx.helper.make_node(op, list(inputs), [output], name=name, **attributes)

    def _name(self, piece: Piece) -> str:
        """The value of a piece: of a whole one the model's own."""
        if piece.band is None:
            return self.numbered.names[piece.tensor]
        if piece not in self.name_by_piece:
            rows = f"{piece.rows.start}-{piece.rows.end}"
            self.name_by_piece[piece] = fresh_name(
                f"{self.numbered.names[piece.tensor]}/band{piece.band}/rows{rows}", self.taken
            )
        return self.name_by_piece[piece]

    def _constant(self, elements: tuple[int, ...]) -> str:
        if elements not in self.constant_by_elements:
            name = fresh_name("bands/" + "_".join(map(str, elements)), self.taken)
            self.constant_by_elements[elements] = name
            tensor = self.onnx.numpy_helper.from_array(np.array(elements, np.int64), name)
            self.model.graph.initializer.append(tensor)
        return self.constant_by_elements[elements]

    def _forget_gone_values(self) -> None:
        """What the model says of values that the replaced nodes made."""
        made = {name for node in self.nodes for name in node.output}
        kept = [entry for entry in self.model.graph.value_info if entry.name in made]
        del self.model.graph.value_info[:]
        self.model.graph.value_info.extend(kept)
