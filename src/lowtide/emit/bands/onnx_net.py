"""An .onnx model in the numbers that bands are chosen by: what ONNX Runtime needs for it under the recipe."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from lowtide.emit.bands.net import BandedOperator, BandNet, Image, NetOperator, StepKind
from lowtide.emit.bands.onnx_operators import OnnxValues, attribute_of, banded_node
from lowtide.importers.onnx import OnnxImport
from lowtide.importers.onnx_ops import op_of, overwritten_input, scratch_bytes
from lowtide.importers.onnx_run import ObservedValue
from lowtide.ir import Graph, InputKind, Interval
from lowtide.ir.working_set import owner_by_value
from lowtide.units import align_up

__all__ = ["MOST_ONNX_BANDS", "OnnxNet", "onnx_net"]

MOST_ONNX_BANDS = 32
_NUMBERS_OF_BANDS = (2, 3, 4, 6, 8, 12, 16, 24, MOST_ONNX_BANDS)
_ALIGNMENT = 64

_ADDED_BYTES = 3600
_ADDED_BYTES_OF_CONVOLUTION = 5600
"""A further node in an open session: structures, names, its kernel; weights are shared. Measured."""

_CONVOLUTIONS = ("Conv", "com.microsoft.FusedConv", "QLinearConv", "ConvTranspose")

_STEP_NS = 3000.0
_COPY_NS = 0.15
_ELEMENT_NS = 0.25
_MULTIPLICATION_NS = 0.012
_EXPANSION_NS = 0.2
"""Measured on a PC, one thread: a node beside its work; an element copied, computed; a multiplication of a
convolution; an element of the image as columns, which every filter of a group then reads."""

_SHAPE_FROM_SHAPES = frozenset(
    {
        "Abs", "Add", "ArgMax", "ArgMin", "AveragePool", "BatchNormalization", "Cast", "Ceil", "Celu", "Clip",
        "Concat", "Conv", "ConvTranspose", "DepthToSpace", "DequantizeLinear", "Div", "Elu", "Erf", "Exp", "Flatten",
        "Floor", "Gelu", "Gemm", "GlobalAveragePool", "GlobalMaxPool", "GroupNormalization", "HardSigmoid",
        "HardSwish", "InstanceNormalization", "LRN", "LayerNormalization", "LeakyRelu", "Log", "LogSoftmax", "MatMul",
        "Max", "MaxPool", "Mean", "Min", "Mish", "Mul", "Neg", "PRelu", "Pow", "QLinearConv", "QuantizeLinear",
        "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Softmax", "Softplus", "Softsign", "SpaceToDepth", "Sqrt",
        "Sub", "Sum", "Tanh", "ThresholdedRelu", "Transpose", "com.microsoft.FusedConv", "com.microsoft.FusedGemm",
        "com.microsoft.FusedMatMul", "com.microsoft.Gelu", "com.microsoft.QLinearAdd",
        "com.microsoft.QLinearLeakyRelu", "com.microsoft.QLinearMul", "com.microsoft.QLinearSigmoid",
        "com.microsoft.QuickGelu",
    }
)  # fmt: skip
"""Operators whose outputs have shapes that follow from those of their inputs, whatever is in them."""

_SHAPE_FROM_OPERANDS = frozenset(
    {
        "Expand", "Pad", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "Reshape", "Resize", "Slice", "Split",
        "Squeeze", "Tile", "Unsqueeze", "Upsample",
    }
)  # fmt: skip
"""The same where all inputs but the first are constants."""


@dataclass(frozen=True, slots=True)
class OnnxNet:
    """A model in numbers, and what the numbers stand for.

    Attributes:
        net: The model in numbers.
        names: The values by their numbers.
    """

    net: BandNet
    names: tuple[str, ...]


def onnx_net(source: OnnxImport) -> OnnxNet:
    """Look at an imported model once.

    Args:
        source: The model; bands are of the nodes that ONNX Runtime optimised.
    """
    graph, nodes = source.graph, source.optimised.model.graph.node
    names = tuple(graph.value_by_name)
    index_by_name = {name: index for index, name in enumerate(names)}
    values = _values(source, index_by_name)
    banded = [banded_node(values, node, position) for position, node in enumerate(nodes)]
    lives = _lives(graph)
    sizes = _sizes(graph)
    outputs = frozenset(index_by_name[name] for name in graph.outputs)
    net = BandNet(
        operators=tuple(
            _operator(values, node, how, tuple(index_by_name[name] for name in entry.inputs))
            for node, how, entry in zip(nodes, banded, graph.nodes, strict=True)
        ),
        images={
            index: _image(values.observed_by_name[names[index]])
            for how in banded
            if how is not None
            for index in (*how.cut, how.output)
        },
        size_bytes={index_by_name[name]: sizes[name] for name in lives},
        lives={index_by_name[name]: life for name, life in lives.items()},
        outputs=outputs,
        held=outputs | {index_by_name[name] for name in graph.input_by_name},
        alignment=_ALIGNMENT,
        numbers_of_bands=_NUMBERS_OF_BANDS,
        op_by_kind={StepKind.SLICE: "Slice", StepKind.PAD: "Pad", StepKind.CONCATENATION: "Concat"},
        copy_ns_by_kind={StepKind.SLICE: _COPY_NS, StepKind.PAD: _COPY_NS, StepKind.CONCATENATION: _COPY_NS},
        step_ns=_STEP_NS,
        copy_added_bytes=_ADDED_BYTES,
    )
    return OnnxNet(net, names)


def _values(source: OnnxImport, index_by_name: Mapping[str, int]) -> OnnxValues:
    model = source.optimised.model
    observed_by_name = {
        name: ObservedValue(tuple((value.meta or {})["shape"]), (value.meta or {})["dtype"], value.size_bytes)
        for name, value in source.graph.value_by_name.items()
    }
    tensor_by_name = {tensor.name: tensor for tensor in model.graph.initializer}
    return OnnxValues(
        index_by_name=index_by_name,
        observed_by_name=observed_by_name,
        tensor_by_name=tensor_by_name,
        fixed=_fixed(model, frozenset(tensor_by_name)),
        opset=next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 1),
    )


def _fixed(model: Any, constants: frozenset[str]) -> frozenset[str]:
    """Values made at run time whose shapes do not depend on data: bands are of so many rows, always."""
    fixed = {entry.name for entry in model.graph.input if entry.name not in constants}
    for node in model.graph.node:
        read = [name for name in node.input if name and name not in constants]
        op = op_of(node)
        is_known = op in _SHAPE_FROM_SHAPES or (op in _SHAPE_FROM_OPERANDS and read == list(node.input[:1]))
        if is_known and fixed.issuperset(read):
            fixed.update(name for name in node.output if name)
    return frozenset(fixed)


def _lives(graph: Graph) -> dict[str, Interval]:
    """Values that take memory; one that a node writes over ends before that node."""
    num_nodes = len(graph.nodes)
    counted = [entry.name for entry in graph.inputs if entry.kind is InputKind.USER]
    first, last = dict.fromkeys(counted, 0), dict.fromkeys(counted, num_nodes)
    base_by_view: dict[str, str] = {}
    for scope, node in enumerate(graph.nodes, start=1):
        overwritten = {value.overwrites for value in node.outputs}
        for name in node.inputs:
            base = base_by_view.get(name, name)
            if base in first and name not in overwritten:
                last[base] = max(last[base], scope)
        for value in node.outputs:
            first[value.name] = last[value.name] = scope
            if value.alias_of is not None:
                base_by_view[value.name] = base_by_view.get(value.alias_of, value.alias_of)
    last.update(dict.fromkeys((base_by_view.get(name, name) for name in graph.outputs if name in first), num_nodes))
    return {name: Interval(start, max(start, last[name]) + 1) for name, start in first.items()}


def _sizes(graph: Graph) -> dict[str, int]:
    """Bytes of each value by itself: of one that overwrites another those of the other, of a view none."""
    owners = owner_by_value(graph)
    views = {value.name for node in graph.nodes for value in node.outputs if value.alias_of is not None}
    return {name: 0 if name in views else graph.value_by_name[owners[name]].size_bytes for name in graph.value_by_name}


def _image(found: ObservedValue) -> Image:
    batch, channels, rows, columns = found.shape
    return Image(rows, columns, batch * channels, _item_bytes(found))


def _item_bytes(found: ObservedValue) -> int:
    return 4 if found.dtype == "float32" else 1


def _operator(values: OnnxValues, node: Any, banded: BandedOperator | None, inputs: tuple[int, ...]) -> NetOperator:
    overwritten = overwritten_input(node)
    is_in_place = (
        overwritten is not None
        and overwritten in values.fixed
        and values.shape(overwritten) == values.shape(node.output[0])
    )
    return NetOperator(
        inputs=inputs,
        banded=banded,
        duration_ns=_STEP_NS + _work_ns(values, node),
        added_bytes=_ADDED_BYTES_OF_CONVOLUTION if op_of(node) in _CONVOLUTIONS else _ADDED_BYTES,
        scratch_bytes=cache(partial(_scratch_bytes, values, node, banded)),
        overwrites=values.index_by_name[overwritten] if is_in_place and overwritten is not None else None,
    )


def _scratch_bytes(values: OnnxValues, node: Any, banded: BandedOperator | None, num_rows: int | None) -> int:
    known = {name: values.observed_by_name[name] for name in (*node.input, *node.output) if name}
    if num_rows is not None and banded is not None:
        num_read = len(banded.rule.read(Interval(0, num_rows)).rows)
        known[node.output[0]] = _with_rows(known[node.output[0]], num_rows)
        for name in known.keys() & set(node.input):
            if values.index_by_name[name] in banded.cut:
                known[name] = _with_rows(known[name], num_read)
    return align_up(scratch_bytes(node, known), _ALIGNMENT)


def _with_rows(found: ObservedValue, num_rows: int) -> ObservedValue:
    batch, channels, _, columns = found.shape
    shape = (batch, channels, num_rows, columns)
    return ObservedValue(shape, found.dtype, math.prod(shape) * _item_bytes(found))


def _work_ns(values: OnnxValues, node: Any) -> float:
    """Estimated time of one execution beside the node's own; the same on every machine, so that choices are, too."""
    op = op_of(node)
    num_out = sum(math.prod(values.shape(name)) for name in node.output if name)
    num_in = sum(math.prod(values.shape(name)) for name in node.input if name and name in values.fixed)
    if op in ("Conv", "com.microsoft.FusedConv", "QLinearConv"):
        weights = values.shape(node.input[3 if op == "QLinearConv" else 1])
        group = max(1, int(attribute_of(node, "group", 1)))
        taps, num_filters = math.prod(weights[1:]), max(1, weights[0] // group)
        is_pointwise = math.prod(weights[2:]) == 1
        return num_out * taps * (_MULTIPLICATION_NS + (0.0 if is_pointwise else _EXPANSION_NS / num_filters))
    if op == "ConvTranspose":
        return math.prod(values.shape(node.input[0])) * math.prod(values.shape(node.input[1])[1:]) * _MULTIPLICATION_NS
    if op in ("MatMul", "Gemm", "com.microsoft.FusedMatMul", "com.microsoft.FusedGemm"):
        return num_out * values.shape(node.input[0])[-1] * _MULTIPLICATION_NS
    if op in ("MaxPool", "AveragePool"):
        return num_out * float(math.prod(attribute_of(node, "kernel_shape", (1,)))) * _ELEMENT_NS
    return max(num_out, num_in) * _ELEMENT_NS
