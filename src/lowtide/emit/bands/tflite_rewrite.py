"""A .tflite model whose stretches are computed band by band, in operators that every runtime has.

weights, options       shared with the original operators
quantisation           of every piece: that of its tensor, so SLICE, PAD and CONCATENATION change no number
tensors within         those of a stretch are gone, pieces take their place; inputs, outputs, signatures stay
prescribed offsets     of the original file are gone: they are for its tensors
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lowtide.emit.bands.net import Form, StepKind
from lowtide.emit.bands.stretch import BandStep, Piece, Stretch, steps_of_bands
from lowtide.emit.bands.tflite_net import tflite_net
from lowtide.importers.tflite_arena import OFFLINE_METADATA
from lowtide.importers.tflite_file import TfliteFile, text_of
from lowtide.importers.tflite_ops import present
from lowtide.importers.tflite_schema import tflite_schema
from lowtide.importers.tflite_tensors import shape_of, type_of

__all__ = ["with_bands"]

_VALID = 1
_ROW_AXIS = 1
_INT8_VERSION = 2
_FIRST_CODE_WITHOUT_ROOM = 127


def with_bands(file: TfliteFile, bands: Sequence[tuple[Stretch, int]]) -> TfliteFile:
    """Compute stretches band by band.

    Args:
        file: The file; it stays as it is.
        bands: Stretches of it that share no operator, and how many bands each.

    Returns:
        The new file; ``size_bytes`` is still that of the original one.

    Raises:
        ValueError: A stretch cannot have that many bands, or two of them overlap.
    """
    return _Rewrite(file).run(bands)


class _Rewrite:
    """Collects operators; tensors are numbered as they are added, and those that nothing names leave at the end."""

    def __init__(self, file: TfliteFile) -> None:
        self.file = file
        self.net = tflite_net(file)
        self.schema = tflite_schema()
        self.model = copy.copy(file.model)
        self.model.buffers = list(file.model.buffers)
        self.model.operatorCodes = list(file.model.operatorCodes)
        self.tensors = list(file.subgraph.tensors)
        self.operators: list[Any] = []
        self.index_by_piece: dict[Piece, int] = {}
        self.constant_by_elements: dict[tuple[int, ...], int] = {}

    def run(self, bands: Sequence[tuple[Stretch, int]]) -> TfliteFile:
        next_position = 0
        for stretch, num_bands in sorted(bands, key=lambda entry: entry[0].positions):
            steps = steps_of_bands(self.net, stretch, num_bands)
            if steps is None or stretch.positions.start < next_position:
                raise ValueError(f"operators {stretch.positions} cannot be computed in {num_bands} bands here")
            self.operators += self.file.subgraph.operators[next_position : stretch.positions.start]
            self.index_by_piece.clear()
            self.operators += [self._operator(step) for step in steps]
            next_position = stretch.positions.end
        self.operators += self.file.subgraph.operators[next_position:]
        return self._renumbered()

    def _operator(self, step: BandStep) -> Any:
        inputs = [self._index(piece) for piece in step.inputs]
        dtype = type_of(self.tensors[inputs[0]])
        if step.kind is StepKind.OPERATOR:
            return self._local(step, inputs)
        output = [self._index(step.output)]
        if step.kind is StepKind.CONCATENATION:
            options = self.schema.ConcatenationOptionsT(axis=_ROW_AXIS)
            return self._new(step.kind, inputs, output, "ConcatenationOptions", options, dtype)
        if step.kind is StepKind.PAD:
            padding = step.padding
            amounts = (0, 0, padding.before, padding.after, padding.left, padding.right, 0, 0)
            inputs.append(self._constant(amounts, (len(amounts) // 2, 2)))
            return self._new(step.kind, inputs, output, "PadOptions", self.schema.PadOptionsT(), dtype)
        shape = self._shape(step.output)
        begin = (0, step.output.rows.start - step.inputs[0].rows.start, 0, 0)
        inputs += [self._constant(begin, (len(begin),)), self._constant(shape, (len(shape),))]
        return self._new(step.kind, inputs, output, "SliceOptions", self.schema.SliceOptionsT(), dtype)

    def _local(self, step: BandStep, inputs: Sequence[int]) -> Any:
        """One of the file's operators, for the rows of a piece."""
        if step.operator is None:
            raise ValueError("a step that is one of the file's operators names it")
        original = self.file.subgraph.operators[step.operator.position]
        new_by_old = dict(zip(step.operator.cut, inputs, strict=True))
        operator = copy.copy(original)
        operator.inputs = [new_by_old.get(int(index), int(index)) for index in original.inputs]
        operator.outputs = [self._index(step.output)]
        if step.operator.form is Form.VALID_OPERATOR:
            operator.builtinOptions = copy.copy(original.builtinOptions)
            operator.builtinOptions.padding = _VALID
        elif step.operator.form is Form.RESIZE:
            operator.inputs[1] = self._constant(step.output.extents(self.net), (2,))
        return operator

    def _new(self, kind: StepKind, inputs: list[int], outputs: list[int], name: str, options: Any, dtype: str) -> Any:
        return self.schema.OperatorT(
            opcodeIndex=self._code(str(kind), _INT8_VERSION if dtype == "INT8" else 1),
            inputs=inputs,
            outputs=outputs,
            builtinOptionsType=getattr(self.schema.BuiltinOptions, name),
            builtinOptions=options,
        )

    def _code(self, op: str, version: int) -> int:
        """The index of an operator's code; added where the file has none."""
        number = getattr(self.schema.BuiltinOperator, op)
        for index, code in enumerate(self.model.operatorCodes):
            if max(code.builtinCode, code.deprecatedBuiltinCode) == number and code.version >= version:
                return index
        code = self.schema.OperatorCodeT(
            deprecatedBuiltinCode=min(number, _FIRST_CODE_WITHOUT_ROOM), builtinCode=number, version=version
        )
        self.model.operatorCodes.append(code)
        return len(self.model.operatorCodes) - 1

    def _index(self, piece: Piece) -> int:
        """The tensor of a piece: of a whole one the file's own."""
        if piece.band is None:
            return piece.tensor
        if piece not in self.index_by_piece:
            original = self.tensors[piece.tensor]
            tensor = copy.copy(original)
            tensor.name = f"{text_of(original.name)}/band{piece.band}_{len(self.tensors)}"
            tensor.shape = list(self._shape(piece))
            tensor.shapeSignature = None
            self.index_by_piece[piece] = len(self.tensors)
            self.tensors.append(tensor)
        return self.index_by_piece[piece]

    def _shape(self, piece: Piece) -> tuple[int, ...]:
        batch, _, _, channels = shape_of(self.file.subgraph.tensors[piece.tensor])
        return (batch, *piece.extents(self.net), channels)

    def _constant(self, elements: tuple[int, ...], shape: tuple[int, ...]) -> int:
        if elements not in self.constant_by_elements:
            data = np.array(elements, "<i4").view(np.uint8)
            self.model.buffers.append(self.schema.BufferT(data=data))
            self.constant_by_elements[elements] = len(self.tensors)
            self.tensors.append(
                self.schema.TensorT(
                    shape=list(shape),
                    type=self.schema.TensorType.INT32,
                    buffer=len(self.model.buffers) - 1,
                    name=f"bands/{len(self.tensors)}",
                )
            )
        return self.constant_by_elements[elements]

    def _renumbered(self) -> TfliteFile:
        """Leave out tensors that only the replaced operators named: the runtime would keep room for them."""
        subgraph, model = copy.copy(self.file.subgraph), self.model
        gone = _named(self.file.subgraph.operators) - _named(self.operators)
        gone -= {*present(subgraph.inputs), *present(subgraph.outputs)}
        kept = [index for index in range(len(self.tensors)) if index not in gone]
        new_by_old = {old: new for new, old in enumerate(kept)} | {-1: -1}
        subgraph.tensors = [self.tensors[index] for index in kept]
        subgraph.operators = [_renumbered_operator(operator, new_by_old) for operator in self.operators]
        subgraph.inputs, subgraph.outputs = (
            [new_by_old[index] for index in present(indices)] for indices in (subgraph.inputs, subgraph.outputs)
        )
        model.subgraphs = [subgraph]
        model.signatureDefs = [_renumbered_signature(each, new_by_old) for each in model.signatureDefs or ()] or None
        model.metadata = [each for each in model.metadata or () if text_of(each.name) != OFFLINE_METADATA] or None
        return replace(self.file, model=model)


def _named(operators: Sequence[Any]) -> set[int]:
    """The tensors that operators name."""
    return {
        index
        for operator in operators
        for indices in (operator.inputs, operator.outputs, operator.intermediates)
        for index in present(indices)
    }


def _renumbered_operator(original: Any, new_by_old: Mapping[int, int]) -> Any:
    operator = copy.copy(original)
    for field in ("inputs", "outputs", "intermediates"):
        indices = getattr(original, field)
        setattr(operator, field, None if indices is None else [new_by_old[int(index)] for index in indices])
    return operator


def _renumbered_signature(original: Any, new_by_old: Mapping[int, int]) -> Any:
    signature = copy.copy(original)
    for field in ("inputs", "outputs"):
        entries = []
        for entry in getattr(original, field) or ():
            entries.append(copy.copy(entry))
            entries[-1].tensorIndex = new_by_old[entry.tensorIndex]
        setattr(signature, field, entries)
    return signature
