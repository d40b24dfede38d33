"""A .tflite file in memory: the flatbuffer as objects, checked, and what is appended to it.

    file  ┌──────────────────────────────┬──────────────────────────┐
          │ flatbuffer: Model            │ zip (MediaPipe's labels) │
          └──────────────────────────────┴──────────────────────────┘

flatbuffers verify nothing when they are read in Python, so a hostile file could make the generated classes loop for
hours or fail anywhere: everything that is counted is counted first (no file holds more elements than bytes), whatever
the classes raise becomes one line, and every index is checked before it is used.
"""

from __future__ import annotations

import io
import os
import struct
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lowtide.errors import FormatError
from lowtide.importers.tflite_schema import CUSTOM, builtin_names, tflite_schema
from lowtide.ir.serde.files import name_of_file

__all__ = ["TfliteFile", "buffer_bytes", "op_name", "parse_tflite", "read_tflite", "text_of"]

_MOST_FILE_BYTES = 2**31 - 1  # offsets in a flatbuffer are 32 bits, and signed somewhere
_BROKEN = (
    struct.error, IndexError, ValueError, TypeError, AttributeError, KeyError, OverflowError, MemoryError,
)  # fmt: skip
_LEAST_FILE_BYTES = 8
_INSIDE = 1  # offsets of data outside the flatbuffer are above this


@dataclass(frozen=True, slots=True)
class TfliteFile:
    """What a .tflite file holds.

    Attributes:
        where: Its path, for messages.
        model: The generated ``ModelT``: shared, never changed.
        appended: A zip that follows the flatbuffer, or nothing.
        size_bytes: Of the whole file.
    """

    where: str
    model: Any
    appended: bytes
    size_bytes: int

    @property
    def subgraph(self) -> Any:
        """The only subgraph."""
        return self.model.subgraphs[0]


def read_tflite(path: str | os.PathLike[str]) -> TfliteFile:
    """Read a .tflite file with one subgraph.

    Raises:
        FormatError: It cannot be read, is truncated, contradicts itself, or is of a kind that is not taken.
        MissingDependency: The extra ``tflite`` is not installed.
    """
    where = name_of_file(path)
    tflite_schema()  # what is missing is said before the file is looked at
    try:
        size_bytes = Path(path).stat().st_size
        if size_bytes > _MOST_FILE_BYTES:
            raise FormatError(f"{where}: {size_bytes} bytes: a .tflite file has less than 2 GiB")
        data = Path(path).read_bytes()
    except OSError as error:
        raise FormatError(f"{where}: cannot be read: {error.strerror or error}") from None
    return parse_tflite(data, where)


def parse_tflite(data: bytes, where: str) -> TfliteFile:
    """Read the bytes of a .tflite file with one subgraph.

    Args:
        data: The file.
        where: Names it in errors.

    Raises:
        FormatError: It is truncated, contradicts itself, or is of a kind that is not taken.
        MissingDependency: The extra ``tflite`` is not installed.
    """
    schema = tflite_schema()
    if len(data) < _LEAST_FILE_BYTES or not schema.Model.ModelBufferHasIdentifier(data, 0):
        raise FormatError(f"{where}: no .tflite file: the mark 'TFL3' is missing at byte 4")
    try:
        root = schema.Model.GetRootAs(data, 0)
        _check_counts(root, len(data), where)
        model = schema.ModelT.InitFromObj(root)
        _check_model(model, where)
    except _BROKEN as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{where}: truncated or broken: its tables lead outside the file ({error})") from None
    return TfliteFile(where=where, model=model, appended=_appended_zip(data), size_bytes=len(data))


def op_name(model: Any, operator: Any) -> str:
    """What an operator computes, e.g. ``"CONV_2D"``, or ``"CUSTOM:name"``."""
    code = model.operatorCodes[operator.opcodeIndex]
    number = max(code.builtinCode, code.deprecatedBuiltinCode)
    name = builtin_names().get(number, f"BUILTIN_{number}")
    return f"{CUSTOM}:{text_of(code.customCode)}" if name == CUSTOM else name


def text_of(name: bytes | str | None) -> str:
    """A name in a file as text; what is no UTF-8 is escaped."""
    if name is None:
        return ""
    return name if isinstance(name, str) else bytes(name).decode("utf-8", errors="backslashreplace")


def buffer_bytes(model: Any, index: int) -> int:
    """Bytes of data that a buffer holds."""
    data = model.buffers[index].data
    return 0 if data is None else len(data)


# ------------------------------------------------------------------ before the tables are unpacked


def _check_counts(root: Any, num_bytes: int, where: str) -> None:
    """Refuse counts that the file has no room for: unpacking would follow them.

    Every element of a vector has at least one byte, and writers do not share vectors; a factor is left for those that
    do.
    """
    num_elements = 0
    for number in _counts(root):
        num_elements += number
        if num_elements > 4 * num_bytes:
            raise FormatError(f"{where}: broken: its vectors claim more elements than the file has bytes")


def _counts(root: Any) -> Iterator[int]:
    yield root.OperatorCodesLength() + root.BuffersLength() + root.MetadataLength() + root.SignatureDefsLength()
    yield root.SubgraphsLength()
    for index in range(root.SignatureDefsLength()):
        signature = root.SignatureDefs(index)
        yield signature.InputsLength() + signature.OutputsLength()
    for index in range(root.SubgraphsLength()):
        subgraph = root.Subgraphs(index)
        yield subgraph.TensorsLength() + subgraph.OperatorsLength()
        for position in range(subgraph.TensorsLength()):
            yield from _tensor_counts(subgraph.Tensors(position))
        for position in range(subgraph.OperatorsLength()):
            operator = subgraph.Operators(position)
            yield operator.InputsLength() + operator.OutputsLength() + operator.IntermediatesLength()


def _tensor_counts(tensor: Any) -> Iterator[int]:
    yield tensor.ShapeLength() + tensor.ShapeSignatureLength() + tensor.VariantTensorsLength()
    quantization = tensor.Quantization()
    if quantization is not None:
        yield quantization.ScaleLength() + quantization.ZeroPointLength()
    sparsity = tensor.Sparsity()
    if sparsity is not None:
        yield sparsity.DimMetadataLength()


# ------------------------------------------------------------------ after


def _check_model(model: Any, where: str) -> None:
    subgraphs = model.subgraphs or []
    if len(subgraphs) != 1:
        raise FormatError(
            f"{where}: has {len(subgraphs)} subgraphs: lowtide plans models of one, without control flow (IF, WHILE, "
            "CALL_ONCE): convert the model without them, or plan its parts one by one"
        )
    for name, value in (("operatorCodes", model.operatorCodes), ("buffers", model.buffers)):
        if value is None:
            raise FormatError(f"{where}: broken: it has no {name}")
    if model.externalBuffers or model.externalBufferGroups:
        raise FormatError(f"{where}: keeps weights in other files: convert it with the weights inside")
    for index, buffer in enumerate(model.buffers):
        if buffer.offset > _INSIDE or buffer.size > _INSIDE:
            raise FormatError(f"{where}: buffer {index} lies behind the flatbuffer: convert the model to below 2 GiB")
    _check_indices(model, subgraphs[0], where)


def _check_indices(model: Any, subgraph: Any, where: str) -> None:
    tensors = [] if subgraph.tensors is None else subgraph.tensors
    operators = [] if subgraph.operators is None else subgraph.operators
    for index, tensor in enumerate(tensors):
        _check_index(tensor.buffer, len(model.buffers), f"{where}: tensor {index}", "buffer")
    for index, operator in enumerate(operators):
        owner = f"{where}: operator {index}"
        _check_index(operator.opcodeIndex, len(model.operatorCodes), owner, "operator code")
        _check_range(operator.inputs, len(tensors), owner, least=-1)
        _check_range(operator.intermediates, len(tensors), owner, least=-1)
        _check_range(operator.outputs, len(tensors), owner)
        if operator.largeCustomOptionsOffset > _INSIDE:
            raise FormatError(f"{owner} keeps its options behind the flatbuffer: convert the model to below 2 GiB")
        kinds = (operator.builtinOptionsType, operator.builtinOptions2Type)
        for kind, options in zip(kinds, (operator.builtinOptions, operator.builtinOptions2), strict=True):
            if kind and options is None:
                raise FormatError(f"{owner} has options of the unknown kind {kind}: update the package ai-edge-litert")
    for name, indices in (("inputs", subgraph.inputs), ("outputs", subgraph.outputs)):
        _check_range(indices, len(tensors), f"{where}: {name} of the subgraph")
    for metadata in [] if model.metadata is None else model.metadata:
        _check_index(metadata.buffer, len(model.buffers), f"{where}: metadata {text_of(metadata.name)!r:.80}", "buffer")
    for signature in [] if model.signatureDefs is None else model.signatureDefs:
        owner = f"{where}: signature {text_of(signature.signatureKey)!r:.80}"
        for tensor_map in (*(signature.inputs or ()), *(signature.outputs or ())):
            _check_index(tensor_map.tensorIndex, len(tensors), owner, "tensor")


def _check_range(indices: Sequence[int] | None, count: int, owner: str, *, least: int = 0) -> None:
    for index in () if indices is None else indices:
        if not least <= index < count:
            raise FormatError(f"{owner}: tensor {index} does not exist, there are {count}: the file is broken")


def _check_index(index: int, count: int, owner: str, noun: str) -> None:
    if not 0 <= index < count:
        raise FormatError(f"{owner}: {noun} {index} does not exist, there are {count}: the file is broken")


def _appended_zip(data: bytes) -> bytes:
    """The zip behind the flatbuffer, or nothing."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            start = min((entry.header_offset for entry in archive.infolist()), default=archive.start_dir)
    except (zipfile.BadZipFile, *_BROKEN, NotImplementedError, EOFError):
        return b""
    return data[start:] if 0 < start < len(data) else b""
