"""An .onnx file in memory: parsed, checked, its weights inside, its dimensions fixed.

protobuf's parser is safe with hostile bytes; onnx's own checker says what contradicts itself (cycles, names without a
producer, weights in files that are missing). What is left is put into one line.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lowtide.errors import FormatError, InputError, MissingDependency
from lowtide.ir.serde.files import name_of_file

__all__ = ["OnnxFile", "onnx_module", "parse_dims", "read_onnx", "subgraphs_of"]

_MOST_FILE_BYTES = 2**31 - 1  # protobuf's own limit
_MOST_INPUT_ELEMENTS = 2**34
_LONGEST_MESSAGE = 300
_DIM = re.compile(r"(?P<name>.+)=(?P<size>[0-9]{1,12})\Z")

Dims = Mapping[str, int]
"""Sizes of dimensions that a file leaves open, by their name, or by input and axis: ``x.0``."""


@dataclass(frozen=True, slots=True)
class OnnxFile:
    """What an .onnx file holds.

    Attributes:
        where: Its path, for messages.
        model: The ``ModelProto`` with fixed dimensions and all weights inside; shared, never changed.
        dims: The dimensions that were fixed.
        size_bytes: The file and those beside it that hold its weights.
    """

    where: str
    model: Any
    dims: Dims
    size_bytes: int


def onnx_module() -> Any:
    """The package ``onnx``.

    Raises:
        MissingDependency: The extra ``onnx`` is not installed.
    """
    try:
        return importlib.import_module("onnx")
    except ModuleNotFoundError as error:
        raise MissingDependency("onnx", extra="onnx", needed_for="reading .onnx files") from error


def parse_dims(texts: Sequence[str]) -> Dims:
    """Read ``batch=1`` and ``x.0=1``.

    Raises:
        InputError: A text is of another form.
    """
    found: dict[str, int] = {}
    for text in texts:
        match = _DIM.match(text)
        if match is None or int(match["size"]) < 1:
            raise InputError(f"--dim {text!r}: write NAME=SIZE or INPUT.AXIS=SIZE, e.g. batch=1 or x.0=1")
        found[match["name"]] = int(match["size"])
    return found


def read_onnx(path: str | os.PathLike[str], *, dims: Dims | None = None) -> OnnxFile:
    """Read an .onnx file and fix its dimensions.

    Args:
        path: The file.
        dims: Sizes of dimensions that it leaves open.

    Raises:
        FormatError: It cannot be read, is truncated, contradicts itself, or has more than 2 GiB.
        InputError: A dimension is still open, or there is none of that name.
        MissingDependency: The extra ``onnx`` is not installed.
    """
    where = name_of_file(path)
    onnx = onnx_module()
    try:
        size_bytes = Path(path).stat().st_size
        if size_bytes > _MOST_FILE_BYTES:
            raise FormatError(f"{where}: {size_bytes} bytes: an .onnx file has less than 2 GiB")
        data = Path(path).read_bytes()
    except OSError as error:
        raise FormatError(f"{where}: cannot be read: {error.strerror or error}") from None
    model = _parsed(onnx, data, where)
    size_bytes += _load_external(onnx, model, Path(path).parent, where)
    _check(onnx, model, where)
    _fix(model, dict(dims or {}), where)
    return OnnxFile(where=where, model=model, dims=dict(dims or {}), size_bytes=size_bytes)


def subgraphs_of(node: Any) -> Iterator[Any]:
    """The graphs that a node holds in its attributes: branches of If, bodies of Loop and Scan."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _parsed(onnx: Any, data: bytes, where: str) -> Any:
    errors = importlib.import_module("google.protobuf.message")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except errors.DecodeError:
        raise FormatError(f"{where}: no .onnx file, truncated, or broken: protobuf cannot parse it") from None
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise FormatError(f"{where}: no .onnx file: it holds no graph")
    return model


def _load_external(onnx: Any, model: Any, folder: Path, where: str) -> int:
    """Bring weights inside, and return the bytes of their files; onnx itself refuses paths that leave the folder."""
    bytes_by_location: dict[str, int] = {}
    for tensor in model.graph.initializer:
        location = next((entry.value for entry in tensor.external_data if entry.key == "location"), None)
        if location is not None and location not in bytes_by_location:
            bytes_by_location[location] = _file_bytes(folder, location, f"{where}: weight {tensor.name!r:.80}")
    total_bytes = sum(bytes_by_location.values())
    if total_bytes > _MOST_FILE_BYTES:
        raise FormatError(f"{where}: {total_bytes} bytes of weights in other files: models of 2 GiB are not taken yet")
    try:
        importlib.import_module("onnx.external_data_helper").load_external_data_for_model(model, str(folder))
    except (ValueError, OSError, RuntimeError, onnx.checker.ValidationError) as error:
        raise FormatError(f"{where}: weights in other files cannot be read: {_one_line(error)}") from None
    return total_bytes


def _file_bytes(folder: Path, location: str, who: str) -> int:
    try:
        return (folder / location).stat().st_size
    except (OSError, ValueError):
        raise FormatError(f"{who} lies in {location!r:.80}, which is missing: put it beside the model") from None


def _check(onnx: Any, model: Any, where: str) -> None:
    try:
        onnx.checker.check_model(model)
    except (onnx.checker.ValidationError, ValueError, RuntimeError) as error:
        raise FormatError(f"{where}: onnx.checker refuses it: {_one_line(error)}") from None


def _fix(model: Any, dims: dict[str, int], where: str) -> None:
    """Write the sizes into the graph's inputs; drop what the file says of other values, which is inferred anew."""
    unused, open_dims = set(dims), []
    with_data = {tensor.name for tensor in model.graph.initializer}
    for graph_input in model.graph.input:
        if graph_input.name in with_data:
            continue
        kind = graph_input.type.WhichOneof("value")
        if kind != "tensor_type":
            raise FormatError(f"{where}: input {graph_input.name!r:.80} is no tensor ({kind}): lowtide plans tensors")
        if not graph_input.type.tensor_type.HasField("shape"):
            raise FormatError(f"{where}: input {graph_input.name!r:.80} has no shape: give it one in the file")
        num_elements = 1
        for axis, dim in enumerate(graph_input.type.tensor_type.shape.dim):
            names = [f"{graph_input.name}.{axis}", *([dim.dim_param] if dim.dim_param else [])]
            if dim.dim_value > 0:
                if dims.get(names[0], dim.dim_value) != dim.dim_value:
                    raise InputError(f"{where}: --dim {names[0]}: the file fixes it to {dim.dim_value}")
                unused.discard(names[0])
            given = [name for name in names if name in dims]
            if dim.dim_value <= 0 and not given:
                open_dims.append(names[-1])
            elif given and dim.dim_value <= 0:
                dim.dim_value = dims[given[0]]
                unused -= set(given)
            num_elements *= max(1, dim.dim_value)
        if num_elements > _MOST_INPUT_ELEMENTS:
            raise FormatError(f"{where}: input {graph_input.name!r:.80} has {num_elements} elements: too large to run")
    if open_dims:
        wanted = " ".join(f"--dim {name}=1" for name in dict.fromkeys(open_dims))
        unknown = f"no input has a dimension {sorted(unused)[0]!r:.80}; " if unused else ""
        raise InputError(
            f"{where}: {unknown}dimensions are open, and sizes depend on them: fix them, e.g. {wanted:.300}"
        )
    if unused:
        hint = "; all dimensions of this file are fixed: leave --dim out" if unused == set(dims) else ""
        raise InputError(f"{where}: --dim {sorted(unused)[0]}: no input has a dimension of that name{hint}")
    if dims:
        _forget_shapes(model.graph)


def _forget_shapes(graph: Any) -> None:
    del graph.value_info[:]
    for output in graph.output:
        if output.type.WhichOneof("value") == "tensor_type":
            for dim in output.type.tensor_type.shape.dim:
                if dim.dim_param:
                    dim.ClearField("dim_param")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:_LONGEST_MESSAGE]
