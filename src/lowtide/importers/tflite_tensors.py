"""Bytes of tensors in .tflite files, and which of them are constant."""

from __future__ import annotations

import math
from typing import Any

from lowtide.errors import FormatError
from lowtide.importers.tflite_file import TfliteFile, buffer_bytes, text_of
from lowtide.importers.tflite_schema import tensor_type_names

__all__ = ["ARENA_ALIGNMENT", "aligned", "holds_data", "shape_of", "tensor_bytes", "type_of"]

ARENA_ALIGNMENT = 16
"""TensorFlow Lite Micro aligns every tensor in its arena to this many bytes."""

_MOST_TENSOR_BYTES = 2**40
_MOST_RANK = 64

_BITS_BY_TYPE = {
    "FLOAT64": 64, "FLOAT32": 32, "FLOAT16": 16, "BFLOAT16": 16, "COMPLEX64": 64, "COMPLEX128": 128,
    "INT64": 64, "UINT64": 64, "INT32": 32, "UINT32": 32, "INT16": 16, "UINT16": 16, "INT8": 8, "UINT8": 8,
    "BOOL": 8, "INT4": 4, "UINT4": 4, "INT2": 2, "RESOURCE": 32, "VARIANT": 32,
}  # fmt: skip


def aligned(size_bytes: int) -> int:
    """Bytes rounded up to the arena's alignment."""
    return -(-size_bytes // ARENA_ALIGNMENT) * ARENA_ALIGNMENT


def type_of(tensor: Any) -> str:
    """Name of a tensor's type, e.g. ``"INT8"``."""
    return tensor_type_names().get(tensor.type, f"TYPE_{tensor.type}")


def shape_of(tensor: Any) -> tuple[int, ...]:
    """The concrete shape; a scalar's is ()."""
    return () if tensor.shape is None else tuple(int(extent) for extent in tensor.shape)


def tensor_bytes(file: TfliteFile, index: int) -> int:
    """Bytes of a tensor's elements, not rounded.

    Raises:
        FormatError: Its type has no fixed size, its shape is none, or it is absurdly large.
    """
    tensor = file.subgraph.tensors[index]
    who = f"{file.where}: tensor {index} {text_of(tensor.name)!r:.80}"
    bits = _BITS_BY_TYPE.get(type_of(tensor))
    if bits is None:
        raise FormatError(f"{who} is of type {type_of(tensor)}, which has no size that is known ahead")
    shape = shape_of(tensor)
    if len(shape) > _MOST_RANK or any(extent < 0 for extent in shape):
        raise FormatError(f"{who} has the shape {shape!s:.80}: give it a fixed one when the model is converted")
    size_bytes = -(-math.prod(shape) * bits // 8)
    if size_bytes > _MOST_TENSOR_BYTES:
        raise FormatError(f"{who} would need {size_bytes:.3g} bytes: the file is broken")
    return size_bytes


def holds_data(file: TfliteFile, index: int) -> bool:
    """Whether the file holds a tensor's elements: it is constant, and lies in flash."""
    return buffer_bytes(file.model, file.subgraph.tensors[index].buffer) > 0
