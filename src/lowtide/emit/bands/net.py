"""What choosing bands looks at of a model, whatever its format: operators in order, tensors by number, what they cost.

A format describes its models so (``tflite_net``, ``onnx_net``), and writes the bands that are chosen
(``tflite_rewrite``, ``onnx_rewrite``); stretches, steps, costs and the search between know numbers only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from lowtide.emit.bands.rows import RowRule
from lowtide.ir import Interval

__all__ = ["BandNet", "BandedOperator", "Form", "Image", "NetOperator", "StepKind"]


class Form(StrEnum):
    """What an operator becomes in a band."""

    SAME_OPERATOR = "same operator"
    VALID_OPERATOR = "the operator without padding, after PAD where there is any"
    OWN_PADDING = "the operator with padding of its own above and below"
    PAD = "PAD"
    RESIZE = "the operator with another size"


class StepKind(StrEnum):
    """What a step of a stretch in bands does."""

    SLICE = "SLICE"
    PAD = "PAD"
    OPERATOR = "OPERATOR"
    CONCATENATION = "CONCATENATION"


@dataclass(frozen=True, slots=True)
class BandedOperator:
    """An operator that can be computed a few rows at a time.

    Attributes:
        position: In the file.
        form: What it becomes.
        rule: How its rows depend on those of the tensors it cuts.
        cut: Tensors of which it reads some rows only; it reads all others whole.
        output: The tensor that it writes.
        column_padding: Columns of padding before and after each row; none where the operator keeps its own.
    """

    position: int
    form: Form
    rule: RowRule
    cut: tuple[int, ...]
    output: int
    column_padding: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Image:
    """A tensor that has rows.

    Attributes:
        num_rows: Of these a band has some.
        num_columns: Pixels in a row.
        pixel_elements: Elements at one row and column: channels, of all the batch.
        item_bytes: Of one element.
    """

    num_rows: int
    num_columns: int
    pixel_elements: int
    item_bytes: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.num_columns * self.pixel_elements * self.item_bytes


@dataclass(frozen=True, slots=True)
class NetOperator:
    """An operator of a model.

    Attributes:
        inputs: The tensors that it reads, constants among them.
        banded: How it is computed a few rows at a time; None where it cannot be.
        duration_ns: Of one execution, estimated.
        added_bytes: What one more such operator takes beside tensors and scratch.
        scratch_bytes: What its kernel allocates to compute a number of rows; None stands for all of them.
        overwrites: A tensor in whose place it writes its output where nothing reads that later.
    """

    inputs: tuple[int, ...]
    banded: BandedOperator | None
    duration_ns: float
    added_bytes: int
    scratch_bytes: Callable[[int | None], int]
    overwrites: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BandNet:
    """A model in numbers.

    Attributes:
        operators: In the order of the file.
        images: Tensors that have rows; of operators that can be cut, all that they cut and write.
        size_bytes: Of each tensor that lives in memory while the model runs.
        lives: When each of these does: operator ``n`` runs at ``n + 1``, inputs are there from 0, [-1, 0) is never.
        outputs: Tensors that leave the model.
        held: Tensors that stay until its end, outputs among them.
        alignment: Sizes are rounded up to multiples of this.
        numbers_of_bands: What is tried, from few to many.
        op_by_kind: The runtime's name for what cuts, pads and joins.
        copy_ns_by_kind: Time of these for each element that is written, estimated.
        step_ns: Time of any step beside its work.
        copy_added_bytes: What an operator that cuts, pads or joins takes beside tensors.
    """

    operators: tuple[NetOperator, ...]
    images: Mapping[int, Image]
    size_bytes: Mapping[int, int]
    lives: Mapping[int, Interval]
    outputs: frozenset[int]
    held: frozenset[int]
    alignment: int
    numbers_of_bands: tuple[int, ...]
    op_by_kind: Mapping[StepKind, str]
    copy_ns_by_kind: Mapping[StepKind, float]
    step_ns: float
    copy_added_bytes: int
