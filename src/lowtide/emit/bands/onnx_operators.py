"""Which nodes of an .onnx model can be computed a few rows at a time, and how their rows depend on each other.

Rows are the third dimension of a value (batch, channels, rows, columns). A node is taken if a few rows of its output,
computed from the rows that they depend on by the same kernel, are those of the whole up to the runtime's own rounding.
Convolutions and pools have their padding in an attribute, above and below apart, so a band at an edge is padded as the
whole is, and one within is not. Everything that is not listed is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lowtide.emit.bands.net import BandedOperator, Form
from lowtide.emit.bands.rows import Window, Zoom, cut_inputs, same_padding, window_of
from lowtide.importers.onnx_file import onnx_module
from lowtide.importers.onnx_ops import op_of
from lowtide.importers.onnx_run import ObservedValue

__all__ = ["OnnxValues", "attribute_of", "banded_node"]

_RANK = 4
_BATCH, _CHANNELS, _ROWS, _COLUMNS = 0, 1, 2, 3
_TYPES = ("float32", "uint8", "int8")
_SAME = ("SAME_UPPER", "SAME_LOWER")
_OPSET_WITH_OPERANDS = 11
"""Before it, what Pad adds and how Resize counts were attributes, or fixed."""

_UNARY = {
    "Abs", "BatchNormalization", "Cast", "Ceil", "Celu", "Clip", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid",
    "HardSwish", "LeakyRelu", "Log", "Mish", "Neg", "QuantizeLinear", "DequantizeLinear", "Reciprocal", "Relu", "Round",
    "Selu", "Sigmoid", "Softplus", "Softsign", "Sqrt", "Tanh", "ThresholdedRelu", "com.microsoft.Gelu",
    "com.microsoft.QLinearLeakyRelu", "com.microsoft.QLinearSigmoid", "com.microsoft.QuickGelu",
}  # fmt: skip
"""One value, element by element; whatever else they read is constant, and has no rows."""

_BROADCASTING = {
    "Add", "Div", "Max", "Mean", "Min", "Mul", "PRelu", "Pow", "Sub", "Sum", "com.microsoft.QLinearAdd",
    "com.microsoft.QLinearMul",
}  # fmt: skip
_POSITION_OF_WEIGHTS = {"Conv": 1, "com.microsoft.FusedConv": 1, "QLinearConv": 3}
_MOST_INPUTS_OF_FUSED_CONV = 3
"""A fourth is a value that is summed: its rows are those of the output."""


@dataclass(frozen=True, slots=True)
class OnnxValues:
    """What is known of a model's values.

    Attributes:
        index_by_name: Their numbers; of the empty name none.
        observed_by_name: Types and shapes; of those that are no constants, as they were in a run.
        tensor_by_name: Constants.
        fixed: Values made at run time whose shapes follow from the model alone, whatever the data.
        opset: Version of onnx's own operators.
    """

    index_by_name: Mapping[str, int]
    observed_by_name: Mapping[str, ObservedValue]
    tensor_by_name: Mapping[str, Any]
    fixed: frozenset[str]
    opset: int

    def shape(self, name: str) -> tuple[int, ...]:
        """A value's shape."""
        return self.observed_by_name[name].shape

    def is_image(self, name: str) -> bool:
        """Whether a value is made at run time, has rows, and always this shape."""
        found = self.observed_by_name[name]
        return name in self.fixed and len(found.shape) == _RANK and all(found.shape) and found.dtype in _TYPES

    def constant(self, name: str) -> npt.NDArray[Any] | None:
        """The elements of a constant, or None."""
        tensor = self.tensor_by_name.get(name)
        return None if tensor is None else np.asarray(onnx_module().numpy_helper.to_array(tensor))


def banded_node(values: OnnxValues, node: Any, position: int) -> BandedOperator | None:
    """How a node is computed a few rows at a time, or None where that is not known to give the same.

    Args:
        values: Of the model.
        node: A ``NodeProto`` of it.
        position: Where it stands.
    """
    outputs = [name for name in node.output if name]
    if len(outputs) != 1 or outputs[0] != node.output[0] or not values.is_image(outputs[0]):
        return None
    read = _READERS.get(op_of(node))
    if read is None or not node.input or not node.input[0]:
        return None
    given = _Node(values, node, position)
    found = read(given)
    return found if found is not None and all(values.is_image(name) for name in given.names_of(found.cut)) else None


def attribute_of(node: Any, name: str, default: Any) -> Any:
    """An attribute's value, lists as tuples; ``default`` where the node has none of that name."""
    for entry in node.attribute:
        if entry.name == name:
            found = onnx_module().helper.get_attribute_value(entry)
            if isinstance(found, bytes):
                return found.decode(errors="replace")
            return tuple(found) if hasattr(found, "__iter__") and not isinstance(found, str) else found
    return default


@dataclass(frozen=True, slots=True)
class _Node:
    """A node and what its readers look at."""

    values: OnnxValues
    node: Any
    position: int

    @property
    def inputs(self) -> tuple[str, ...]:
        """The values that it reads, each once."""
        return tuple(dict.fromkeys(name for name in self.node.input if name))

    @property
    def shape_out(self) -> tuple[int, ...]:
        return self.values.shape(self.node.output[0])

    @property
    def shape_in(self) -> tuple[int, ...]:
        return self.values.shape(self.node.input[0])

    def names_of(self, indices: tuple[int, ...]) -> list[str]:
        return [name for name in self.inputs if self.values.index_by_name[name] in indices]

    def is_constant(self, position: int) -> bool:
        """Whether an operand is missing, or a constant."""
        name = self.node.input[position] if position < len(self.node.input) else ""
        return not name or name in self.values.tensor_by_name

    def option(self, name: str, default: Any) -> Any:
        return attribute_of(self.node, name, default)

    def banded(
        self, form: Form, rule: Window | Zoom, cut: tuple[int, ...] | None = None, columns: tuple[int, int] = (0, 0)
    ) -> BandedOperator:
        """The answer; without ``cut``, of the first input."""
        index_by_name = self.values.index_by_name
        cut = (index_by_name[self.node.input[0]],) if cut is None else cut
        return BandedOperator(self.position, form, rule, cut, index_by_name[self.node.output[0]], columns)


def _unary(given: _Node) -> BandedOperator | None:
    rest = [name for name in given.inputs if name != given.node.input[0]]
    if given.shape_in != given.shape_out or not all(name in given.values.tensor_by_name for name in rest):
        return None
    if any(len(given.values.shape(name)) > 1 for name in rest):
        return None
    if given.option("axis", _CHANNELS) % _RANK != _CHANNELS or given.option("block_size", 0):
        return None  # quantised by rows or columns
    if given.option("training_mode", 0):
        return None
    return given.banded(Form.SAME_OPERATOR, _each_row(given))


def _broadcasting(given: _Node) -> BandedOperator | None:
    """Inputs with all rows are cut; those that have one row, or no dimension of rows, go to every band whole."""
    index_by_name = given.values.index_by_name
    shape_by_input = {index_by_name[name]: given.values.shape(name) for name in given.inputs}
    cut = cut_inputs(shape_by_input, given.shape_out[_ROWS], row_axis=_ROWS)
    return given.banded(Form.SAME_OPERATOR, _each_row(given), cut) if cut else None


def _concatenation(given: _Node) -> BandedOperator | None:
    """Channel by channel or beside each other; below each other, rows would change their place."""
    axis = given.option("axis", _BATCH) % _RANK
    parts = [name for name in given.inputs if len(given.values.shape(name)) == _RANK]
    rows = {given.values.shape(name)[_ROWS] for name in parts}
    if axis not in (_CHANNELS, _COLUMNS) or rows != {given.shape_out[_ROWS]} or len(parts) != len(given.inputs):
        return None
    cut = tuple(given.values.index_by_name[name] for name in parts)
    return given.banded(Form.SAME_OPERATOR, _each_row(given), cut)


def _convolution(given: _Node) -> BandedOperator | None:
    op = op_of(given.node)
    at = _POSITION_OF_WEIGHTS[op]
    if len(given.node.input) <= at or any(not given.is_constant(each) for each in range(1, len(given.node.input))):
        return None
    if op == "com.microsoft.FusedConv" and len(given.node.input) > _MOST_INPUTS_OF_FUSED_CONV:
        return None
    shape = given.values.shape(given.node.input[at]) if given.node.input[at] else ()
    if len(shape) != _RANK or given.option("kernel_shape", shape[_ROWS:]) != shape[_ROWS:]:
        return None
    return _windowed(given, shape[_ROWS:])


def _pool(given: _Node) -> BandedOperator | None:
    """Pools leave padding out of the maximum and of the mean, unless told so: a band pads as the whole does."""
    kernel = given.option("kernel_shape", ())
    if len(kernel) != 2 or given.option("storage_order", 0):
        return None
    return _windowed(given, kernel)


def _windowed(given: _Node, kernel: tuple[int, ...]) -> BandedOperator | None:
    """A node that slides a window over rows and columns; None where the shapes are not what that makes."""
    strides, dilations = (given.option(name, (1, 1)) for name in ("strides", "dilations"))
    if len(given.shape_in) != _RANK or min((*strides, *dilations, *kernel)) < 1:
        return None
    if len(strides) != 2 or len(dilations) != 2:
        return None
    if given.option("auto_pad", "NOTSET") in _SAME and set(dilations) != {1}:
        return None  # ONNX Runtime refuses such convolutions, and its pools and their shapes disagree
    windows, paddings = [], []
    for axis in (0, 1):
        num_in, num_out = given.shape_in[_ROWS + axis], given.shape_out[_ROWS + axis]
        extent = (kernel[axis] - 1) * dilations[axis] + 1
        around = _padding(given, axis, num_in, extent=extent, stride=strides[axis])
        if around is None or min(around) < 0:
            return None
        windows.append(window_of(num_in, num_out, extent=extent, stride=strides[axis], around=around))
        paddings.append(around)
    if windows[0] is None or windows[1] is None:
        return None
    return given.banded(Form.OWN_PADDING, windows[0], columns=paddings[1])


def _padding(given: _Node, axis: int, num_in: int, *, extent: int, stride: int) -> tuple[int, int] | None:
    """Padding before and after along rows (0) or columns (1)."""
    automatic = given.option("auto_pad", "NOTSET")
    if automatic in _SAME:
        before, after = same_padding(num_in, extent=extent, stride=stride)
        return (before, after) if automatic == "SAME_UPPER" else (after, before)
    if automatic == "VALID":
        return (0, 0)
    pads = given.option("pads", (0, 0, 0, 0))
    return (pads[axis], pads[axis + 2]) if automatic in ("NOTSET", "") and len(pads) == 2 * 2 else None


def _transposed(given: _Node) -> BandedOperator | None:
    """Every input row makes rows of its own: windows that lie side by side, nothing cut off or added."""
    if len(given.node.input) < 2 or any(not given.is_constant(each) for each in range(1, len(given.node.input))):
        return None
    shape = given.values.shape(given.node.input[1])
    if (
        len(shape) != _RANK
        or given.option("auto_pad", "NOTSET") not in ("NOTSET", "")
        or given.option("output_shape", ())
    ):
        return None
    if any((*given.option("pads", ()), *given.option("output_padding", ()))):
        return None
    if set(given.option("dilations", (1, 1))) != {1} or given.option("strides", (1, 1)) != shape[_ROWS:]:
        return None
    factor = shape[_ROWS]
    is_whole = given.shape_out[_ROWS] == factor * given.shape_in[_ROWS]
    return given.banded(Form.SAME_OPERATOR, Zoom(factor)) if is_whole else None


def _pad(given: _Node) -> BandedOperator | None:
    amounts = given.values.constant(given.node.input[1]) if len(given.node.input) > 1 else None
    is_plain = given.option("mode", "constant") == "constant" and given.values.opset >= _OPSET_WITH_OPERANDS
    if amounts is None or not is_plain or not given.is_constant(2) or not given.is_constant(3):
        return None
    if len(given.node.input) > 3 and given.node.input[3]:  # only some axes
        return None
    around = [int(amount) for amount in amounts]
    if len(around) != 2 * _RANK or min(around) < 0 or any((*around[:_ROWS], *around[_RANK : _RANK + _ROWS])):
        return None
    sums = [around[axis] + around[_RANK + axis] for axis in range(_RANK)]
    if given.shape_out != tuple(extent + added for extent, added in zip(given.shape_in, sums, strict=True)):
        return None
    rule = Window(given.shape_in[_ROWS], pad_before=around[_ROWS])
    return given.banded(Form.PAD, rule, columns=(around[_COLUMNS], around[_RANK + _COLUMNS]))


def _nearest(given: _Node) -> BandedOperator | None:
    """By powers of two only: row numbers are divided by a float, which is exact then."""
    if given.option("mode", "nearest") != "nearest" or given.values.opset < _OPSET_WITH_OPERANDS:
        return None
    if any(not given.is_constant(each) for each in range(1, len(given.node.input))) or given.option("axes", ()):
        return None
    if given.option("keep_aspect_ratio_policy", "stretch") != "stretch":
        return None
    if not _is_repeating(given) or given.shape_in[:_ROWS] != given.shape_out[:_ROWS]:
        return None
    factor, rest = divmod(given.shape_out[_ROWS], given.shape_in[_ROWS])
    if rest or factor < 1 or factor & (factor - 1):
        return None
    scales = given.values.constant(given.node.input[2]) if len(given.node.input) > 2 else None
    if scales is not None and scales.size:
        return given.banded(Form.SAME_OPERATOR, Zoom(factor)) if float(scales[_ROWS]) == factor else None
    return given.banded(Form.RESIZE, Zoom(factor))


def _is_repeating(given: _Node) -> bool:
    """Whether row ``r`` of the output is row ``r // factor`` of the input."""
    where = given.option("coordinate_transformation_mode", "half_pixel")
    rounds = given.option("nearest_mode", "round_prefer_floor")
    if where == "asymmetric":
        return bool(rounds == "floor")
    return where in ("half_pixel", "pytorch_half_pixel") and rounds in ("round_prefer_floor", "round_prefer_ceil")


def _each_row(given: _Node) -> Window:
    return Window(given.shape_out[_ROWS])


_READERS: dict[str, Callable[[_Node], BandedOperator | None]] = {
    **dict.fromkeys(_UNARY, _unary),
    **dict.fromkeys(_BROADCASTING, _broadcasting),
    **dict.fromkeys(_POSITION_OF_WEIGHTS, _convolution),
    "AveragePool": _pool,
    "Concat": _concatenation,
    "ConvTranspose": _transposed,
    "MaxPool": _pool,
    "Pad": _pad,
    "Resize": _nearest,
}
