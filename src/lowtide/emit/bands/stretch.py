"""A stretch of operators, and the steps that compute its output band by band, in the terms of TensorFlow Lite.

    band 0   SLICE x ─▶ PAD ─▶ CONV_2D ─▶ ... ─▶ rows [0, 8) of y ─┐
    band 1   SLICE x ─▶ PAD ─▶ CONV_2D ─▶ ... ─▶ rows [8, 16) of y ┴─▶ CONCATENATION ─▶ y

For each band, backwards: which rows of every tensor are wanted, the union over their readers. Then forwards: each
operator computes these, and where a reader wants fewer, they are cut out first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lowtide.emit.bands.net import BandedOperator, BandNet, Form, StepKind
from lowtide.emit.bands.rows import Read, hull, split_rows
from lowtide.ir import Interval

__all__ = ["BandStep", "Padding", "Piece", "Stretch", "reads_of_band", "steps_of_bands"]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Operators that follow each other in the file; only the last one's output is read outside.

    Attributes:
        operators: In the order of the file.
        num_rows: Rows of the last one's output.
    """

    operators: tuple[BandedOperator, ...]
    num_rows: int

    @property
    def positions(self) -> Interval:
        """Where in the file."""
        return Interval(self.operators[0].position, self.operators[-1].position + 1)

    @property
    def output(self) -> int:
        """The tensor that leaves it."""
        return self.operators[-1].output


@dataclass(frozen=True, slots=True)
class Padding:
    """Zero rows and columns around a piece."""

    before: int = 0
    after: int = 0
    left: int = 0
    right: int = 0

    def __bool__(self) -> bool:
        return any((self.before, self.after, self.left, self.right))


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of a tensor.

    Attributes:
        tensor: Of the original file.
        rows: Which ones.
        band: Of which band it is; None for a tensor of the original file, which is there whole.
        padding: What is around them.
    """

    tensor: int
    rows: Interval
    band: int | None = None
    padding: Padding = Padding()

    def extents(self, net: BandNet) -> tuple[int, int]:
        """Its rows and columns, padding included."""
        padding = self.padding
        num_columns = net.images[self.tensor].num_columns + padding.left + padding.right
        return len(self.rows) + padding.before + padding.after, num_columns


@dataclass(frozen=True, slots=True)
class BandStep:
    """One operator of the new model.

    Attributes:
        kind: What it does.
        inputs: The pieces that it reads; one per cut tensor, in their order, for one of the file's operators.
        output: The piece that it writes.
        operator: The file's operator, for this kind, and where PAD is one of them.
        padding: What PAD adds, or an operator with padding of its own.
    """

    kind: StepKind
    inputs: tuple[Piece, ...]
    output: Piece
    operator: BandedOperator | None = None
    padding: Padding = Padding()


def steps_of_bands(net: BandNet, stretch: Stretch, num_bands: int) -> tuple[BandStep, ...] | None:
    """The steps that compute a stretch band by band; None where that many bands cannot be.

    Args:
        net: The model of the stretch.
        stretch: What to compute.
        num_bands: At least one.
    """
    if num_bands > stretch.num_rows:
        return None
    steps: list[BandStep] = []
    parts = []
    for number, rows in enumerate(split_rows(stretch.num_rows, num_bands)):
        band = _Band(net, stretch, number, steps)
        part = band.compute(rows)
        if part is None:
            return None
        parts.append(part)
    whole = Piece(stretch.output, Interval(0, stretch.num_rows))
    steps.append(BandStep(StepKind.CONCATENATION, tuple(parts), whole))
    return tuple(steps)


def reads_of_band(stretch: Stretch, rows: Interval) -> Sequence[tuple[Interval, Read]] | None:
    """For each operator the rows that it computes and what it reads; None where one would read nothing.

    Args:
        stretch: What to compute.
        rows: Of its output.
    """
    wanted = {stretch.output: rows}
    reads = []
    for operator in reversed(stretch.operators):
        if operator.output not in wanted:
            return None
        computed = operator.rule.computed(wanted[operator.output])
        read = operator.rule.read(computed)
        if not len(read.rows):
            return None
        reads.append((computed, read))
        for tensor in operator.cut:
            wanted[tensor] = hull(wanted.get(tensor, read.rows), read.rows)
    return reads[::-1]


class _Band:
    """Collects the steps of one band."""

    def __init__(self, net: BandNet, stretch: Stretch, number: int, steps: list[BandStep]) -> None:
        self.net = net
        self.stretch = stretch
        self.number = number
        self.steps = steps
        self.piece_by_tensor: dict[int, Piece] = {}
        self.made: set[Piece] = set()

    def compute(self, rows: Interval) -> Piece | None:
        """Compute rows of the stretch's output."""
        reads = reads_of_band(self.stretch, rows)
        if reads is None:
            return None
        for operator, (computed, read) in zip(self.stretch.operators, reads, strict=True):
            self.piece_by_tensor[operator.output] = self._operator(operator, computed, read)
        return self._rows_of(self.stretch.output, rows)

    def _operator(self, operator: BandedOperator, computed: Interval, read: Read) -> Piece:
        """Execute an operator for some rows."""
        sources = tuple(self._rows_of(tensor, read.rows) for tensor in operator.cut)
        padding = Padding(read.pad_before, read.pad_after, *operator.column_padding)
        output = Piece(operator.output, computed, self.number)
        if operator.form is Form.PAD:
            self.steps.append(BandStep(StepKind.PAD, sources, output, operator, padding))
            return output
        if operator.form is Form.OWN_PADDING:
            self.steps.append(BandStep(StepKind.OPERATOR, sources, output, operator, padding))
            return output
        if padding:
            sources = (self._padded(sources[0], padding),)
        self.steps.append(BandStep(StepKind.OPERATOR, sources, output, operator))
        return output

    def _rows_of(self, tensor: int, rows: Interval) -> Piece:
        """Rows of a tensor, cut out where more of them are there."""
        there = self.piece_by_tensor.get(tensor)
        if there is None:
            there = Piece(tensor, Interval(0, self.net.images[tensor].num_rows))
        return there if there.rows == rows else self._made(StepKind.SLICE, there, Piece(tensor, rows, self.number))

    def _padded(self, source: Piece, padding: Padding) -> Piece:
        return self._made(StepKind.PAD, source, Piece(source.tensor, source.rows, self.number, padding))

    def _made(self, kind: StepKind, source: Piece, target: Piece) -> Piece:
        """Cut or pad a piece, unless another reader had that done."""
        if target not in self.made:
            self.made.add(target)
            self.steps.append(BandStep(kind, (source,), target, padding=target.padding))
        return target
