"""What bands cost on TensorFlow Lite Micro: bytes while they run, time, and room in the persistent part of the arena.

bytes      what lives at each step, as in the runtime's arena: what passes by the stretch included
time       of each operator, by the share of its rows; rows at the cuts (halo) count as often as they are computed
room       every further operator has its node and the data of its kernel, convolutions numbers per channel
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lowtide.emit.bands.rows import split_rows
from lowtide.emit.bands.stretch import BandStep, Piece, StepKind, Stretch, reads_of_band, steps_of_bands
from lowtide.importers.tflite_arena import arena_lives
from lowtide.importers.tflite_file import TfliteFile, op_name
from lowtide.importers.tflite_ops import duration_ns, present, scratch_bytes
from lowtide.importers.tflite_tensors import aligned, shape_of, tensor_bytes
from lowtide.ir import Interval

__all__ = ["BandCosts", "BandedCost"]

_SLOWNESS = {"DEPTHWISE_CONV_2D": 3}
"""Time by the estimate of ``duration_ns``, measured on the reference kernels; about 1 for convolutions."""

_COPY_NS_BY_KIND = {StepKind.SLICE: 1.0, StepKind.PAD: 2.5, StepKind.CONCATENATION: 0.5}
"""For each element that is written, measured likewise."""

_PERSISTENT_BYTES = 128
_PERSISTENT_BYTES_OF_CONVOLUTION = 112
_PERSISTENT_BYTES_PER_CHANNEL = 8
"""Measured with 64-bit pointers: node, tensor and the kernel's data; of convolutions more, and for every channel
multiplier and shift, with floats, too."""


@dataclass(frozen=True, slots=True)
class BandedCost:
    """What a stretch costs in some number of bands.

    Attributes:
        peak_bytes: Most bytes that live at one of its steps, outside tensors included.
        added_ns: Time beyond that of its operators, estimated.
        added_persistent_bytes: Growth of the persistent part of the arena, estimated.
    """

    peak_bytes: int
    added_ns: float
    added_persistent_bytes: int


class BandCosts:
    """What a file's operators cost, as they are and in bands."""

    def __init__(self, file: TfliteFile) -> None:
        """Look at a file once."""
        self.file = file
        self.operators = [] if file.subgraph.operators is None else file.subgraph.operators
        self.lives = arena_lives(file)
        self.size_bytes = {index: aligned(tensor_bytes(file, index)) for index in self.lives}
        self.duration_ns = [
            duration_ns(file, operator) * _SLOWNESS.get(op_name(file.model, operator), 1) for operator in self.operators
        ]
        self.scratch_bytes = [sum(scratch_bytes(file, operator)) for operator in self.operators]
        self.model_outputs = set(present(file.subgraph.outputs))
        self._image_by_tensor: dict[int, tuple[int, int, int]] = {}

    def live_bytes(self) -> list[int]:
        """What lives while each operator runs."""
        changes = [0] * (len(self.operators) + 2)
        for index, life in self.lives.items():
            if life.start < 0:
                continue
            changes[life.start] += self.size_bytes[index]
            changes[life.end] -= self.size_bytes[index]
        live, found = 0, []
        for change in changes:
            live += change
            found.append(live)
        return [found[position + 1] + scratch for position, scratch in enumerate(self.scratch_bytes)]

    def ends_inside(self, positions: Interval) -> dict[int, int]:
        """The tensors made before a stretch that nothing reads after it, and their bytes."""
        return {
            index: self.size_bytes[index]
            for index in {index for position in positions for index in present(self.operators[position].inputs)}
            if index in self.lives
            and index not in self.model_outputs
            and self.lives[index].start <= positions.start
            and self.lives[index].end - 1 <= positions.end
        }

    def passing_bytes(self, positions: Interval, ending: Mapping[int, int]) -> int:
        """Bytes of what is there before a stretch and, unless it is ``ending``, after it."""
        first_scope = positions.start + 1
        return sum(
            self.size_bytes[index]
            for index, life in self.lives.items()
            if 0 <= life.start < first_scope < life.end and index not in ending
        )

    def at_least(self, stretch: Stretch, num_bands: int) -> BandedCost | None:
        """Bounds of what ``of_bands`` says, for less work: halo without copies, operators without what lives beside."""
        if num_bands > stretch.num_rows:
            return None
        ending_bytes = sum(self.ends_inside(stretch.positions).values())
        passing_bytes = self.passing_bytes(stretch.positions, self.ends_inside(stretch.positions))
        added_ns = -float(sum(self.duration_ns[position] for position in stretch.positions))
        most_bytes = 0
        for number, rows in enumerate(split_rows(stretch.num_rows, num_bands)):
            reads = reads_of_band(stretch, rows)
            if reads is None:
                return None
            is_last = number == num_bands - 1
            held_bytes = rows.start * self._row_bytes(stretch.output) + (0 if is_last else ending_bytes)
            for operator, (computed, read) in zip(stretch.operators, reads, strict=True):
                num_rows = self._image(operator.output)[0]
                added_ns += self.duration_ns[operator.position] * len(computed) / num_rows
                own_bytes = len(computed) * self._row_bytes(operator.output)
                if not is_last:  # what is cut from the stretch's inputs lies beside them; else they may be read whole
                    own_bytes += sum(len(read.rows) * self._row_bytes(tensor) for tensor in operator.cut)
                most_bytes = max(most_bytes, held_bytes + own_bytes)
        return BandedCost(passing_bytes + most_bytes, added_ns, 0)

    def _row_bytes(self, index: int) -> int:
        _, columns, pixel_bytes = self._image(index)
        return columns * pixel_bytes

    def of_bands(self, stretch: Stretch, num_bands: int) -> BandedCost | None:
        """What a stretch costs in bands; None where it cannot have that many."""
        steps = steps_of_bands(self.file, stretch, num_bands)
        least = self.at_least(stretch, num_bands)
        if steps is None or least is None:
            return None
        before = sum(self._persistent_bytes(self.operators[position]) for position in stretch.positions)
        return BandedCost(
            peak_bytes=self._peak_bytes(stretch.positions, steps),
            added_ns=least.added_ns + sum(map(self._copy_ns, steps)),
            added_persistent_bytes=sum(map(self._step_persistent_bytes, steps)) - before,
        )

    def _peak_bytes(self, positions: Interval, steps: Sequence[BandStep]) -> int:
        ending = self.ends_inside(positions)
        last_step_by_tensor: dict[int, int] = {}
        last_step_by_piece: dict[Piece, int] = {}
        for number, step in enumerate(steps):
            for piece in step.inputs:
                if piece.band is None:
                    last_step_by_tensor[piece.tensor] = number
                else:
                    last_step_by_piece[piece] = number
            for index in self._read_whole(step):
                last_step_by_tensor[index] = number
        frees = [0] * len(steps)
        for index, number in last_step_by_tensor.items():
            frees[number] += ending.get(index, 0)
        for piece, number in last_step_by_piece.items():
            frees[number] += self._piece_bytes(piece)
        live = self.passing_bytes(positions, ending) + sum(ending.values())
        most = live
        for step, freed in zip(steps, frees, strict=True):
            live += self._piece_bytes(step.output)
            scratch = 0 if step.operator is None else self.scratch_bytes[step.operator.position]
            most = max(most, live + scratch)
            live -= freed
        return most

    def _read_whole(self, step: BandStep) -> list[int]:
        if step.kind is not StepKind.OPERATOR or step.operator is None:
            return []
        inputs = present(self.operators[step.operator.position].inputs)
        return [index for index in inputs if index not in step.operator.cut]

    def _piece_bytes(self, piece: Piece) -> int:
        _, columns, pixel_bytes = self._image(piece.tensor)
        padding = piece.padding
        num_rows = len(piece.rows) + padding.before + padding.after
        return aligned(num_rows * (columns + padding.left + padding.right) * pixel_bytes)

    def _image(self, index: int) -> tuple[int, int, int]:
        """Rows, columns, and bytes of what lies at one row and column, of all the batch."""
        if index not in self._image_by_tensor:
            _, rows, columns, _ = shape_of(self.file.subgraph.tensors[index])
            self._image_by_tensor[index] = rows, columns, tensor_bytes(self.file, index) // (rows * columns)
        return self._image_by_tensor[index]

    def _copy_ns(self, step: BandStep) -> float:
        return _COPY_NS_BY_KIND.get(step.kind, 0.0) * math.prod(step.output.shape(self.file))

    def _step_persistent_bytes(self, step: BandStep) -> int:
        if step.kind is StepKind.OPERATOR and step.operator is not None:
            return self._persistent_bytes(self.operators[step.operator.position])
        return _PERSISTENT_BYTES

    def _persistent_bytes(self, operator: Any) -> int:
        if op_name(self.file.model, operator) not in ("CONV_2D", "DEPTHWISE_CONV_2D"):
            return _PERSISTENT_BYTES
        channels = shape_of(self.file.subgraph.tensors[present(operator.outputs)[0]])[-1]
        return _PERSISTENT_BYTES + _PERSISTENT_BYTES_OF_CONVOLUTION + _PERSISTENT_BYTES_PER_CHANNEL * channels
