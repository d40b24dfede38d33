"""A .tflite model in the numbers that bands are chosen by: what TensorFlow Lite Micro needs for it."""

from __future__ import annotations

from typing import Any

from lowtide.emit.bands.net import BandedOperator, BandNet, Image, NetOperator, StepKind
from lowtide.emit.bands.tflite_operators import banded_operator
from lowtide.importers.tflite_arena import arena_lives
from lowtide.importers.tflite_file import TfliteFile, op_name
from lowtide.importers.tflite_ops import duration_ns, present, scratch_bytes
from lowtide.importers.tflite_tensors import ARENA_ALIGNMENT, aligned, shape_of, tensor_bytes

__all__ = ["MOST_TFLITE_BANDS", "tflite_net"]

MOST_TFLITE_BANDS = 10
"""TensorFlow Lite Micro's CONCATENATION takes no more inputs."""

_NUMBERS_OF_BANDS = (2, 3, 4, 6, 8, MOST_TFLITE_BANDS)

_SLOWNESS = {"DEPTHWISE_CONV_2D": 3}
"""Time by the estimate of ``duration_ns``, measured on the reference kernels; about 1 for convolutions."""

_COPY_NS_BY_KIND = {StepKind.SLICE: 1.0, StepKind.PAD: 2.5, StepKind.CONCATENATION: 0.5}
"""For each element that is written, measured likewise."""

_PERSISTENT_BYTES = 128
_PERSISTENT_BYTES_OF_CONVOLUTION = 112
_PERSISTENT_BYTES_PER_CHANNEL = 8
"""Measured with 64-bit pointers: node, tensor and the kernel's data; of convolutions more, and for every channel
multiplier and shift, with floats, too."""


def tflite_net(file: TfliteFile) -> BandNet:
    """Look at a file once.

    Args:
        file: The model, as ``import_tflite`` has checked it.
    """
    originals = [] if file.subgraph.operators is None else file.subgraph.operators
    banded = [banded_operator(file, position) for position in range(len(originals))]
    lives = arena_lives(file)
    outputs = frozenset(present(file.subgraph.outputs))
    return BandNet(
        operators=tuple(_operator(file, operator, how) for operator, how in zip(originals, banded, strict=True)),
        images={index: _image(file, index) for how in banded if how is not None for index in (*how.cut, how.output)},
        size_bytes={index: aligned(tensor_bytes(file, index)) for index in lives},
        lives=lives,
        outputs=outputs,
        held=outputs,
        alignment=ARENA_ALIGNMENT,
        numbers_of_bands=_NUMBERS_OF_BANDS,
        op_by_kind={kind: str(kind) for kind in StepKind},
        copy_ns_by_kind=_COPY_NS_BY_KIND,
        step_ns=0.0,
        copy_added_bytes=_PERSISTENT_BYTES,
    )


def _operator(file: TfliteFile, operator: Any, banded: BandedOperator | None) -> NetOperator:
    scratch = sum(scratch_bytes(file, operator))
    return NetOperator(
        inputs=tuple(present(operator.inputs)),
        banded=banded,
        duration_ns=duration_ns(file, operator) * _SLOWNESS.get(op_name(file.model, operator), 1),
        added_bytes=_persistent_bytes(file, operator),
        scratch_bytes=lambda _num_rows: scratch,
    )


def _image(file: TfliteFile, index: int) -> Image:
    """Rows are the second of four dimensions."""
    batch, rows, columns, channels = shape_of(file.subgraph.tensors[index])
    num_elements = batch * rows * columns * channels
    return Image(rows, columns, batch * channels, tensor_bytes(file, index) // num_elements)


def _persistent_bytes(file: TfliteFile, operator: Any) -> int:
    if op_name(file.model, operator) not in ("CONV_2D", "DEPTHWISE_CONV_2D"):
        return _PERSISTENT_BYTES
    shape = [extent for index in present(operator.outputs)[:1] for extent in shape_of(file.subgraph.tensors[index])]
    channels = shape[-1] if shape else 0
    return _PERSISTENT_BYTES + _PERSISTENT_BYTES_OF_CONVOLUTION + _PERSISTENT_BYTES_PER_CHANNEL * channels
