"""Which operators of a .tflite file can be computed a few rows at a time, and how their rows depend on each other.

Rows are the second dimension of a tensor (batch, rows, columns, channels). An operator is taken if a few rows of its
output, computed from the rows that they depend on by the same kernel, are the same bits as within the whole: padding
becomes an operator of its own, which pads with zeros (the zero point, if quantised), as convolutions do. Pools that pad
are left out, since they leave padding out of the mean and the maximum; so is everything that is not listed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lowtide.emit.bands.net import BandedOperator, Form
from lowtide.emit.bands.rows import Window, Zoom, cut_inputs, same_padding, window_of
from lowtide.importers.tflite_file import TfliteFile, op_name
from lowtide.importers.tflite_ops import present
from lowtide.importers.tflite_tensors import holds_data, shape_of, type_of
from lowtide.ir import Interval

__all__ = ["banded_operator"]

_RANK = 4
_ROWS, _COLUMNS = 1, 2
_SAME, _VALID = 0, 1
_TYPES = ("FLOAT32", "INT8")
"""Types for which TensorFlow Lite Micro's kernels cut, pad and join, tried here."""

_UNARY = {
    "ABS", "DEQUANTIZE", "ELU", "EXP", "HARD_SWISH", "LEAKY_RELU", "LOGISTIC", "NEG", "QUANTIZE", "RELU", "RELU6",
    "RELU_N1_TO_1", "RSQRT", "SQRT", "SQUARE", "TANH",
}  # fmt: skip
_BROADCASTING = {"ADD", "DIV", "MAXIMUM", "MINIMUM", "MUL", "PRELU", "SUB"}


def banded_operator(file: TfliteFile, position: int) -> BandedOperator | None:
    """How an operator is computed a few rows at a time, or None where that is not known to give the same bits."""
    operator = file.subgraph.operators[position]
    name = op_name(file.model, operator)
    inputs, outputs = present(operator.inputs), present(operator.outputs)
    if not inputs or len(outputs) != 1 or not _is_image(file, outputs[0]):
        return None
    read = _READERS.get(name)
    found = None if read is None else read(_Operator(file, position, operator, name, tuple(inputs), outputs[0]))
    return found if found is not None and all(_is_image(file, index) for index in found.cut) else None


@dataclass(frozen=True, slots=True)
class _Operator:
    """An operator and what its readers look at."""

    file: TfliteFile
    position: int
    operator: Any
    name: str
    inputs: tuple[int, ...]
    output: int

    def shape(self, index: int) -> tuple[int, ...]:
        return shape_of(self.file.subgraph.tensors[index])

    def option(self, field: str, default: int) -> int:
        """A number among its options; ``default`` where it has none."""
        found = getattr(self.operator.builtinOptions, field, default)
        return default if found is None else int(found)

    def constant(self, index: int) -> tuple[int, ...] | None:
        """The elements of a constant of 32-bit integers, or None."""
        if not holds_data(self.file, index) or type_of(self.file.subgraph.tensors[index]) != "INT32":
            return None
        return tuple(int(number) for number in self.elements(index, "<i4"))

    def elements(self, index: int, dtype: str) -> npt.NDArray[Any]:
        """The elements of a constant."""
        data = bytes(self.file.model.buffers[self.file.subgraph.tensors[index].buffer].data)
        return np.frombuffer(data, dtype, count=math.prod(self.shape(index)))


def _is_image(file: TfliteFile, index: int) -> bool:
    """Whether a tensor is made at run time, has rows, and a shape that never changes."""
    tensor = file.subgraph.tensors[index]
    signature = [] if tensor.shapeSignature is None else list(tensor.shapeSignature)
    return (
        len(shape_of(tensor)) == _RANK
        and all(shape_of(tensor))
        and all(extent >= 0 for extent in signature)
        and type_of(tensor) in _TYPES
        and not tensor.isVariable
        and tensor.sparsity is None
        and not holds_data(file, index)
    )


def _unary(given: _Operator) -> BandedOperator | None:
    source = given.inputs[0]
    if len(given.inputs) != 1 or given.shape(source) != given.shape(given.output):
        return None
    return BandedOperator(given.position, Form.SAME_OPERATOR, _each_row(given), (source,), given.output)


def _broadcasting(given: _Operator) -> BandedOperator | None:
    shape_by_input = {index: given.shape(index) for index in given.inputs}
    cut = cut_inputs(shape_by_input, given.shape(given.output)[_ROWS], row_axis=_ROWS)
    if not cut:
        return None
    return BandedOperator(given.position, Form.SAME_OPERATOR, _each_row(given), cut, given.output)


def _concatenation(given: _Operator) -> BandedOperator | None:
    """Beside each other or channel by channel; below each other, rows would change their place."""
    axis = given.option("axis", 0) % _RANK
    rows = {given.shape(index)[_ROWS:_COLUMNS] for index in (*given.inputs, given.output)}
    if axis <= _ROWS or len(rows) != 1 or any(holds_data(given.file, index) for index in given.inputs):
        return None
    cut = tuple(dict.fromkeys(given.inputs))
    return BandedOperator(given.position, Form.SAME_OPERATOR, _each_row(given), cut, given.output)


def _convolution(given: _Operator) -> BandedOperator | None:
    if len(given.inputs) < 2:
        return None
    weights = given.inputs[1]
    tensor, shape = given.file.subgraph.tensors[weights], given.shape(weights)
    if len(shape) != _RANK or not holds_data(given.file, weights) or tensor.sparsity is not None:
        return None
    found = _windowed(given, (shape[_ROWS], shape[_COLUMNS]))
    is_padded = found is not None and given.option("padding", _VALID) == _SAME
    return None if is_padded and not _is_finite(given, weights) else found


def _is_finite(given: _Operator, weights: int) -> bool:
    """Whether weights times a padded zero are zero: of infinite ones they are not, and kernels skip padding."""
    if type_of(given.file.subgraph.tensors[weights]) != "FLOAT32":
        return True
    return bool(np.isfinite(given.elements(weights, "<f4")).all())


def _pool(given: _Operator) -> BandedOperator | None:
    found = _windowed(given, (given.option("filterHeight", 0), given.option("filterWidth", 0)))
    if found is None or any(found.column_padding):
        return None
    num_rows = given.shape(given.output)[_ROWS]
    whole = found.rule.read(found.rule.computed(Interval(0, num_rows)))
    return None if whole.pad_before or whole.pad_after else found


def _windowed(given: _Operator, filter_shape: tuple[int, int]) -> BandedOperator | None:
    """An operator that slides a window over rows and columns; None where the shapes are not what that makes."""
    source = given.inputs[0]
    padding = given.option("padding", _VALID)
    shapes = given.shape(source), given.shape(given.output)
    if any(len(shape) != _RANK for shape in shapes) or padding not in (_SAME, _VALID):
        return None
    windows, paddings = [], []
    for axis, size, letter in ((_ROWS, filter_shape[0], "H"), (_COLUMNS, filter_shape[1], "W")):
        stride, dilation = given.option(f"stride{letter}", 1), given.option(f"dilation{letter}Factor", 1)
        if min(stride, dilation, size) < 1:
            return None
        num_in, num_out = shapes[0][axis], shapes[1][axis]
        extent = (size - 1) * dilation + 1
        around = same_padding(num_in, extent=extent, stride=stride) if padding == _SAME else (0, 0)
        windows.append(window_of(num_in, num_out, extent=extent, stride=stride, around=around))
        paddings.append(around)
    if windows[0] is None or windows[1] is None:
        return None
    return BandedOperator(given.position, Form.VALID_OPERATOR, windows[0], (source,), given.output, paddings[1])


def _pad(given: _Operator) -> BandedOperator | None:
    if len(given.inputs) != 2:
        return None
    source, amounts = given.inputs[0], given.constant(given.inputs[1])
    if amounts is None or len(amounts) != 2 * _RANK or min(amounts) < 0 or any((*amounts[:2], *amounts[6:])):
        return None
    before, after, left, right = amounts[2:6]
    shape = given.shape(source)
    if len(shape) != _RANK or given.shape(given.output) != (
        shape[0], shape[1] + before + after, shape[2] + left + right, shape[3],
    ):  # fmt: skip
        return None
    rule = Window(shape[_ROWS], pad_before=before)
    return BandedOperator(given.position, Form.PAD, rule, (source,), given.output, (left, right))


def _nearest(given: _Operator) -> BandedOperator | None:
    """By powers of two only: the kernel multiplies row numbers with a float, which is exact then."""
    source = given.inputs[0]
    shape, wanted = given.shape(source), given.shape(given.output)
    if len(shape) != _RANK or len(given.inputs) != 2 or given.option("alignCorners", 0) or not shape[_ROWS]:
        return None
    factor, rest = divmod(wanted[_ROWS], shape[_ROWS])
    if rest or factor < 1 or factor & (factor - 1) or given.constant(given.inputs[1]) != wanted[_ROWS : _COLUMNS + 1]:
        return None
    return BandedOperator(given.position, Form.RESIZE, Zoom(factor), (source,), given.output)


def _each_row(given: _Operator) -> Window:
    return Window(given.shape(given.output)[_ROWS])


_READERS: dict[str, Callable[[_Operator], BandedOperator | None]] = {
    **dict.fromkeys(_UNARY, _unary),
    **dict.fromkeys(_BROADCASTING, _broadcasting),
    "AVERAGE_POOL_2D": _pool,
    "CONCATENATION": _concatenation,
    "CONV_2D": _convolution,
    "DEPTHWISE_CONV_2D": _convolution,
    "MAX_POOL_2D": _pool,
    "PAD": _pad,
    "RESIZE_NEAREST_NEIGHBOR": _nearest,
}
