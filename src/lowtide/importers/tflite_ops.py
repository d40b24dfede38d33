"""What operators of .tflite files cost, what scratch their kernels take, and what a plan may do with them.

Durations are estimated, in nanoseconds of a machine that does one multiplication a nanosecond and moves four bytes in
the same time; what they mean for a plan is their proportion. Scratch is what the reference kernels of TensorFlow Lite
Micro request in the arena; optimised kernels (CMSIS-NN and others) request more, which no file can say.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from lowtide.importers.tflite_file import TfliteFile, op_name
from lowtide.importers.tflite_schema import CUSTOM
from lowtide.importers.tflite_tensors import aligned, holds_data, shape_of, tensor_bytes, type_of

__all__ = [
    "duration_ns",
    "folded_operators",
    "initial_constants",
    "is_control_flow",
    "is_in_sequence",
    "overwritable_inputs",
    "present",
    "scratch_bytes",
    "shares_input",
]

_BYTES_PER_NS = 4
_SLOW_ELEMENT_NS = 16
_SLOW = {"LOGISTIC", "TANH", "SOFTMAX", "LOG_SOFTMAX", "EXP", "GELU", "ELU", "LOG", "SIN", "COS", "POW", "RSQRT", "DIV"}
_REDUCTIONS = {"MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "REDUCE_ANY", "REDUCE_ALL"}

_SHARING = {"RESHAPE", "SQUEEZE", "EXPAND_DIMS"}
"""Kernels that copy nothing where input and output lie at one address (measured on TensorFlow Lite Micro)."""

_ELEMENTWISE = {
    "ABS", "ADD", "ELU", "EXP", "HARD_SWISH", "LEAKY_RELU", "LOGISTIC", "MAXIMUM", "MINIMUM", "MUL", "NEG", "PRELU",
    "RELU", "RELU6", "RSQRT", "SQRT", "SQUARE", "SUB", "TANH",
}  # fmt: skip

_CONTROL_FLOW = {"IF", "WHILE", "CALL_ONCE", "CALL", "STABLEHLO_WHILE", "STABLEHLO_CASE", "STABLEHLO_COMPOSITE"}
_STATEFUL = re.compile(r"VAR_HANDLE|READ_VARIABLE|ASSIGN_VARIABLE|HASHTABLE.*|RANDOM_.*|MULTINOMIAL|.*RNG.*|DELEGATE")
_FOLDED_TYPES = ("FLOAT16",)


def present(indices: Sequence[int] | None) -> list[int]:
    """The tensors that an operator names; optional ones that are left out have the index -1."""
    return [] if indices is None else [int(index) for index in indices if index >= 0]


def is_control_flow(name: str) -> bool:
    """Whether an operator runs other subgraphs."""
    return name in _CONTROL_FLOW


def is_in_sequence(file: TfliteFile, operator: Any) -> bool:
    """Whether an operator has, or may have, a state: it runs once, and after those before it that have one."""
    name = op_name(file.model, operator)
    if name.startswith(CUSTOM) or _STATEFUL.fullmatch(name):
        return True
    return any(file.subgraph.tensors[index].isVariable for index in present(operator.inputs))


def initial_constants(file: TfliteFile) -> set[int]:
    """Tensors that are there before anything runs: with data in the file, variable, or without elements."""
    made = {index for operator in _operators(file) for index in present(operator.outputs)}
    tensors = [] if file.subgraph.tensors is None else file.subgraph.tensors
    return {
        index
        for index, tensor in enumerate(tensors)
        if index not in made and (tensor.isVariable or holds_data(file, index) or not tensor_bytes(file, index))
    }


def folded_operators(file: TfliteFile) -> tuple[tuple[int, ...], set[int]]:
    """Operators that unpack weights once and for all, and all tensors that are constant because of them.

    LiteRT keeps their results beside the weights, and TensorFlow Lite Micro has no kernels for them: DENSIFY, and
    DEQUANTIZE of float16. DEQUANTIZE of int8 weights is none of them: it has a kernel there, which writes into the
    arena like any other.

    Returns:
        Their positions, and the tensors that no operator has to make, theirs included.
    """
    folded, constants = [], initial_constants(file)
    for position, operator in enumerate(_operators(file)):
        if _is_folded(file, operator, constants):
            folded.append(position)
            constants.update(present(operator.outputs))
    return tuple(folded), constants


def _is_folded(file: TfliteFile, operator: Any, constants: set[int]) -> bool:
    inputs = present(operator.inputs)
    if not inputs or any(index not in constants for index in inputs):
        return False
    name = op_name(file.model, operator)
    if name == "DENSIFY":
        return True
    return name == "DEQUANTIZE" and type_of(file.subgraph.tensors[inputs[0]]) in _FOLDED_TYPES


def _operators(file: TfliteFile) -> Sequence[Any]:
    return () if file.subgraph.operators is None else file.subgraph.operators


def shares_input(file: TfliteFile, operator: Any) -> bool:
    """Whether an operator's output may lie where its first input lies, and then costs nothing."""
    inputs, outputs = present(operator.inputs), present(operator.outputs)
    if op_name(file.model, operator) not in _SHARING or not inputs or len(outputs) != 1:
        return False
    source = file.subgraph.tensors[inputs[0]]
    if holds_data(file, inputs[0]) or source.isVariable:
        return False
    return tensor_bytes(file, inputs[0]) == tensor_bytes(file, outputs[0])


def overwritable_inputs(file: TfliteFile, operator: Any) -> tuple[int, ...]:
    """Inputs over which an operator's output may be written while it is computed, element by element.

    True of the kernels for these operators: each element of the output is computed from the elements of one index and
    written once, after they were read; the input has the shape of the output, so none is read again (broadcasting
    repeats only inputs of another shape). Measured on the reference kernels of TensorFlow Lite Micro; no document
    promises it.
    """
    outputs = present(operator.outputs)
    if op_name(file.model, operator) not in _ELEMENTWISE or len(outputs) != 1:
        return ()
    target = file.subgraph.tensors[outputs[0]]
    return tuple(
        index
        for index in dict.fromkeys(present(operator.inputs))
        if shape_of(file.subgraph.tensors[index]) == shape_of(target)
        and file.subgraph.tensors[index].type == target.type
        and not holds_data(file, index)
        and not file.subgraph.tensors[index].isVariable
    )


def scratch_bytes(file: TfliteFile, operator: Any) -> tuple[int, ...]:
    """Bytes of each scratch buffer that the reference kernel requests, rounded up to the arena's alignment."""
    return tuple(aligned(size) for size in _scratch(file, operator) if size)


def _scratch(file: TfliteFile, operator: Any) -> list[int]:
    name = op_name(file.model, operator)
    tensors = file.subgraph.tensors
    inputs, outputs = present(operator.inputs), present(operator.outputs)
    if not inputs or not outputs:
        return []
    num_outputs = math.prod(shape_of(tensors[outputs[0]]))
    if name == "TRANSPOSE_CONV" and len(inputs) > 2:
        bytes_by_type = {"INT8": 4, "INT16": 8}
        scratch = [num_outputs * bytes_by_type.get(type_of(tensors[inputs[2]]), 0)]
        if len(inputs) > 3 and type_of(tensors[inputs[3]]) == "INT16":
            scratch.append(8 * math.prod(shape_of(tensors[inputs[3]])))
        return scratch
    if name in ("MEAN", "SUM"):
        return [4 * num_outputs] if type_of(tensors[inputs[0]]) in ("INT8", "UINT8", "INT16") else []
    if name in ("REDUCE_MAX", "REDUCE_MIN") and len(inputs) > 1:
        return [4 * len(shape_of(tensors[inputs[0]])), 4 * math.prod(shape_of(tensors[inputs[1]]))]
    if name in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED") and len(inputs) > 1:
        weights = tensors[inputs[1]]
        return [math.prod(shape_of(weights))] if type_of(weights) == "INT4" else []
    return []


def duration_ns(file: TfliteFile, operator: Any) -> int:
    """Estimated time of one execution."""
    touched = (*present(operator.inputs), *present(operator.outputs))
    moved = sum(tensor_bytes(file, index) for index in touched)
    return max(1, _num_multiplications(file, operator) + moved // _BYTES_PER_NS)


def _num_multiplications(file: TfliteFile, operator: Any) -> int:
    name = op_name(file.model, operator)
    shapes = [shape_of(file.subgraph.tensors[index]) for index in present(operator.inputs)]
    outputs = [shape_of(file.subgraph.tensors[index]) for index in present(operator.outputs)]
    num_outputs = sum(map(math.prod, outputs))
    if name == "CONV_2D" and len(shapes) > 1:
        return num_outputs * math.prod(shapes[1][1:])
    if name == "DEPTHWISE_CONV_2D" and len(shapes) > 1:
        return num_outputs * math.prod(shapes[1][1:3])
    if name == "TRANSPOSE_CONV" and len(shapes) > 2:
        return math.prod(shapes[2]) * math.prod(shapes[1][:3])
    if name in ("FULLY_CONNECTED", "BATCH_MATMUL") and len(shapes) > 1 and shapes[1]:
        return num_outputs * (shapes[1][-1] if name == "FULLY_CONNECTED" else shapes[0][-1] if shapes[0] else 1)
    if name in ("MAX_POOL_2D", "AVERAGE_POOL_2D") and operator.builtinOptions is not None:
        return int(num_outputs * operator.builtinOptions.filterHeight * operator.builtinOptions.filterWidth)
    if name in _REDUCTIONS and shapes:
        return math.prod(shapes[0])
    return num_outputs * (_SLOW_ELEMENT_NS if name in _SLOW else 1)
