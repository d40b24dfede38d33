"""What ONNX Runtime's CPU kernels do with memory, operator by operator, as measured (1.32, one thread).

views       Reshape & co. hand on their input's bytes, always, unless their result is an output of the model
in place    Relu & co. write over an input whose last reader they are; Add, Mul, Exp & co. do not
scratch     buffers that kernels allocate for themselves
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from lowtide.importers.onnx_file import subgraphs_of
from lowtide.importers.onnx_run import ObservedValue

__all__ = ["captured_names", "is_in_sequence", "op_of", "overwritten_input", "scratch_bytes", "viewed_input"]

_VIEWS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"})
_IN_PLACE = frozenset(
    {
        "Cast", "Celu", "Clip", "Elu", "HardSigmoid", "LeakyRelu", "LogSoftmax", "Relu", "ScatterElements", "Selu",
        "Shrink", "Sigmoid", "Softmax", "Softplus", "Softsign", "Tanh", "ThresholdedRelu",
    }
)  # fmt: skip
_SUMMED_INPUT = {"com.microsoft.FusedConv": 3, "com.microsoft.nchwc.Conv": 3}
_RANDOM = frozenset({"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
                     "RandomUniformLike"})  # fmt: skip
_FLOAT_BYTES = 4
_CONV_BUFFER_BYTES = 64 * 1024  # MLAS: one strip of the expanded image per thread


def op_of(node: Any) -> str:
    """Its type, with its domain unless that is the standard one: ``Conv``, ``com.microsoft.FusedConv``."""
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


def viewed_input(node: Any) -> str | None:
    """The input whose bytes the first output shares, if the operator is a view."""
    return node.input[0] if op_of(node) in _VIEWS and len(node.output) == 1 else None


def overwritten_input(node: Any) -> str | None:
    """The input that the kernel writes over if it is the last to read it and the sizes are the same."""
    op = op_of(node)
    position = 0 if op in _IN_PLACE else _SUMMED_INPUT.get(op)
    if position is None or len(node.input) <= position:
        return None
    return node.input[position] or None


def is_in_sequence(node: Any) -> bool:
    """Whether it must run once and in the order of the file: it draws random numbers, or holds graphs."""
    if op_of(node) in _RANDOM or any(True for _ in subgraphs_of(node)):
        return True
    return op_of(node) == "Dropout" and len(node.input) > 2  # with training_mode


def captured_names(node: Any) -> Iterator[str]:
    """Values of the outer graph that the graphs of a node read."""
    for graph in subgraphs_of(node):
        own = {entry.name for entry in graph.input} | {tensor.name for tensor in graph.initializer}
        own |= {name for inner in graph.node for name in inner.output}
        for inner in graph.node:
            yield from (name for name in (*inner.input, *captured_names(inner)) if name and name not in own)
        yield from (output.name for output in graph.output if output.name not in own)


def scratch_bytes(node: Any, value_by_name: Mapping[str, ObservedValue]) -> int:
    """Bytes that the kernel allocates for itself, as far as they were found to matter."""
    op = op_of(node)
    if op == "ConvTranspose":
        return _columns_bytes(node, value_by_name)
    if op in ("Conv", "com.microsoft.FusedConv"):
        return _expanded_bytes(node, value_by_name)
    if op == "Where":
        found = value_by_name.get(node.output[0])
        return 0 if found is None else 2 * found.size_bytes
    return 0


def _columns_bytes(node: Any, value_by_name: Mapping[str, ObservedValue]) -> int:
    """Of ConvTranspose: the image as columns, one per element of the kernel and output channel of a group."""
    weight, source = value_by_name.get(node.input[1]), value_by_name.get(node.input[0])
    if weight is None or source is None or len(weight.shape) < 3 or len(source.shape) < 3:
        return 0
    item_bytes = max(1, weight.size_bytes // max(1, math.prod(weight.shape)))
    return math.prod(weight.shape[1:]) * math.prod(source.shape[2:]) * item_bytes


def _expanded_bytes(node: Any, value_by_name: Mapping[str, ObservedValue]) -> int:
    """Of Conv: the image as columns where there are more filters than pixels, else one strip of them after another."""
    weight, target = value_by_name.get(node.input[1]), value_by_name.get(node.output[0])
    if weight is None or target is None or _is_pointwise(node, weight):
        return 0
    group = next((entry.i for entry in node.attribute if entry.name == "group"), 1)
    num_pixels = math.prod(target.shape[2:])
    if weight.shape[0] // max(1, group) > num_pixels:
        return num_pixels * math.prod(weight.shape[1:]) * _FLOAT_BYTES
    return _CONV_BUFFER_BYTES


def _is_pointwise(node: Any, weight: ObservedValue) -> bool:
    strides = next((list(entry.ints) for entry in node.attribute if entry.name == "strides"), [1])
    return set(weight.shape[2:]) <= {1} and set(strides) <= {1}
