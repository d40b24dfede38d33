"""What bands cost: bytes while they run, time, and room that further operators take.

bytes      what lives at each step, as in the runtime's memory: what passes by the stretch included
time       of each operator, by the share of its rows; rows at the cuts (halo) count as often as they are computed
room       every further operator has its node and the data of its kernel
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lowtide.emit.bands.net import BandNet, StepKind
from lowtide.emit.bands.rows import split_rows
from lowtide.emit.bands.stretch import BandStep, Piece, Stretch, reads_of_band, steps_of_bands
from lowtide.ir import Interval
from lowtide.units import align_up

__all__ = ["BandCosts", "BandedCost"]


@dataclass(frozen=True, slots=True)
class BandedCost:
    """What a stretch costs in some number of bands.

    Attributes:
        peak_bytes: Most bytes that live at one of its steps, outside tensors included.
        added_ns: Time beyond that of its operators, estimated.
        added_persistent_bytes: What further operators take beside tensors and scratch, estimated.
    """

    peak_bytes: int
    added_ns: float
    added_persistent_bytes: int


class BandCosts:
    """What a model's operators cost, as they are and in bands."""

    def __init__(self, net: BandNet) -> None:
        """Look at a model once."""
        self.net = net

    def live_bytes(self) -> list[int]:
        """What lives while each operator runs."""
        changes = [0] * (len(self.net.operators) + 2)
        for index, life in self.net.lives.items():
            if life.start < 0:
                continue
            changes[life.start] += self.net.size_bytes[index]
            changes[life.end] -= self.net.size_bytes[index]
        live, found = 0, []
        for change in changes:
            live += change
            found.append(live)
        return [
            found[position + 1] + operator.scratch_bytes(None) for position, operator in enumerate(self.net.operators)
        ]

    def ends_inside(self, positions: Interval) -> dict[int, int]:
        """The tensors made before a stretch that nothing reads after it, and their bytes."""
        return {
            index: self.net.size_bytes[index]
            for index in {index for position in positions for index in self.net.operators[position].inputs}
            if index in self.net.lives
            and index not in self.net.held
            and self.net.lives[index].start <= positions.start
            and self.net.lives[index].end - 1 <= positions.end
        }

    def passing_bytes(self, positions: Interval, ending: Mapping[int, int]) -> int:
        """Bytes of what is there before a stretch and, unless it is ``ending``, after it."""
        first_scope = positions.start + 1
        return sum(
            self.net.size_bytes[index]
            for index, life in self.net.lives.items()
            if 0 <= life.start < first_scope < life.end and index not in ending
        )

    def at_least(self, stretch: Stretch, num_bands: int) -> BandedCost | None:
        """Bounds of what ``of_bands`` says, for less work: halo without copies, operators without what lives beside."""
        if num_bands > stretch.num_rows:
            return None
        ending_bytes = sum(self.ends_inside(stretch.positions).values())
        passing_bytes = self.passing_bytes(stretch.positions, self.ends_inside(stretch.positions))
        added_ns = -float(sum(self.net.operators[position].duration_ns for position in stretch.positions))
        most_bytes = 0
        for number, rows in enumerate(split_rows(stretch.num_rows, num_bands)):
            reads = reads_of_band(stretch, rows)
            if reads is None:
                return None
            is_last = number == num_bands - 1
            held_bytes = rows.start * self._row_bytes(stretch.output) + (0 if is_last else ending_bytes)
            for operator, (computed, read) in zip(stretch.operators, reads, strict=True):
                whole = self.net.operators[operator.position]
                added_ns += whole.duration_ns * len(computed) / self.net.images[operator.output].num_rows
                own_bytes = len(computed) * self._row_bytes(operator.output)
                if not is_last:  # what is cut from the stretch's inputs lies beside them; else they may be read whole
                    own_bytes += sum(
                        len(read.rows) * self._row_bytes(tensor)
                        for tensor in operator.cut
                        if tensor != whole.overwrites
                    )
                most_bytes = max(most_bytes, held_bytes + own_bytes)
        return BandedCost(passing_bytes + most_bytes, added_ns, 0)

    def _row_bytes(self, index: int) -> int:
        return self.net.images[index].row_bytes

    def of_bands(self, stretch: Stretch, num_bands: int) -> BandedCost | None:
        """What a stretch costs in bands; None where it cannot have that many."""
        steps = steps_of_bands(self.net, stretch, num_bands)
        least = self.at_least(stretch, num_bands)
        if steps is None or least is None:
            return None
        before = sum(self.net.operators[position].added_bytes for position in stretch.positions)
        return BandedCost(
            peak_bytes=self._peak_bytes(stretch.positions, steps),
            added_ns=least.added_ns + sum(map(self._step_ns, steps)) - self.net.step_ns * len(stretch.operators),
            added_persistent_bytes=sum(map(self._added_bytes, steps)) - before,
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
        for number, (step, freed) in enumerate(zip(steps, frees, strict=True)):
            live += self._piece_bytes(step.output)
            taken_over = [piece for piece in self._overwritten(step) if last_step_by_piece.get(piece) == number]
            most = max(most, live + self._scratch_bytes(step) - sum(map(self._piece_bytes, taken_over)))
            live -= freed
        return most

    def _read_whole(self, step: BandStep) -> list[int]:
        if step.kind is not StepKind.OPERATOR or step.operator is None:
            return []
        inputs = self.net.operators[step.operator.position].inputs
        return [index for index in inputs if index not in step.operator.cut]

    def _overwritten(self, step: BandStep) -> list[Piece]:
        """The piece in whose place a step writes if nothing reads that later."""
        if step.kind is not StepKind.OPERATOR or step.operator is None:
            return []
        overwrites = self.net.operators[step.operator.position].overwrites
        return [piece for piece in step.inputs if piece.tensor == overwrites and piece.band is not None]

    def _scratch_bytes(self, step: BandStep) -> int:
        if step.operator is None:
            return 0
        return self.net.operators[step.operator.position].scratch_bytes(len(step.output.rows))

    def _piece_bytes(self, piece: Piece) -> int:
        image = self.net.images[piece.tensor]
        num_rows, num_columns = piece.extents(self.net)
        return align_up(num_rows * num_columns * image.pixel_elements * image.item_bytes, self.net.alignment)

    def _step_ns(self, step: BandStep) -> float:
        num_rows, num_columns = step.output.extents(self.net)
        num_elements = num_rows * num_columns * self.net.images[step.output.tensor].pixel_elements
        return self.net.step_ns + self.net.copy_ns_by_kind.get(step.kind, 0.0) * num_elements

    def _added_bytes(self, step: BandStep) -> int:
        if step.kind is StepKind.OPERATOR and step.operator is not None:
            return self.net.operators[step.operator.position].added_bytes
        return self.net.copy_added_bytes
