"""A .tflite model with row bands, planned, as the runtime executes it: figures are against the file without bands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lowtide.emit.bands.search import BandChoice, BandOptions, choose_bands
from lowtide.emit.bands.tflite_net import tflite_net
from lowtide.emit.bands.tflite_rewrite import with_bands
from lowtide.emit.rounding import MOST_ROUNDING, relative_difference
from lowtide.emit.tflite import TfliteExport, export_tflite
from lowtide.emit.tflite_check import RuntimeCheck, TfliteCheck
from lowtide.importers.tflite import TfliteImport, import_tflite
from lowtide.importers.tflite_arena import micro_arena
from lowtide.importers.tflite_file import TfliteFile, op_name
from lowtide.referee import VerifiedPlan

__all__ = [
    "BandedTflite",
    "choose_tflite_bands",
    "export_bands",
    "import_bands",
    "is_same_within_rounding",
    "largest_difference",
    "ops_of",
]


@dataclass(frozen=True, slots=True)
class BandedTflite:
    """A model with bands, ready to be planned.

    Attributes:
        original: The file without them.
        choice: Which bands.
        source: The model with them, as a graph.
    """

    original: TfliteFile
    choice: BandChoice
    source: TfliteImport


def choose_tflite_bands(file: TfliteFile, options: BandOptions | None = None) -> BandChoice:
    """Find the bands with which a model needs the least memory on TensorFlow Lite Micro, see ``choose_bands``."""
    return choose_bands(tflite_net(file), options)


def import_bands(file: TfliteFile, choice: BandChoice, *, in_place: bool = False) -> BandedTflite:
    """Compute stretches of a model in bands, and read the result as a graph.

    Args:
        file: The model.
        choice: Which bands.
        in_place: Whether elementwise operators write over an input that nobody reads after them.
    """
    return BandedTflite(file, choice, import_tflite(with_bands(file, choice.bands), in_place=in_place))


def export_bands(banded: BandedTflite, verified: VerifiedPlan) -> TfliteExport:
    """Write a model with bands so that it runs as planned.

    Args:
        banded: The model.
        verified: A plan for its graph.

    Raises:
        FormatError: The new file would be too large.
    """
    export = export_tflite(banded.source, verified)
    new_ops = {*ops_of(banded.source.file), *export.new_ops} - ops_of(banded.original)
    return replace(
        export,
        before=micro_arena(banded.original),
        num_recomputes=len(banded.source.file.subgraph.operators)
        + export.num_recomputes
        - len(banded.original.subgraph.operators),
        new_ops=tuple(sorted(new_ops)),
    )


def ops_of(file: TfliteFile) -> frozenset[str]:
    """The operators that a file's resolver needs."""
    operators: Sequence[object] = file.subgraph.operators or ()
    return frozenset(op_name(file.model, operator) for operator in operators)


def is_same_within_rounding(checked: TfliteCheck) -> bool:
    """Whether TensorFlow Lite Micro gave the same bits, and LiteRT the same numbers up to its own rounding.

    LiteRT's own convolution of floats sums in an order that depends on the number of rows; one of the two at least has
    to run the model.
    """
    ran = [check for check in (checked.micro, checked.litert) if check.refusal is None]
    is_micro_identical = checked.micro.refusal is not None or checked.micro.is_identical
    return bool(ran) and is_micro_identical and largest_difference(checked.litert) <= MOST_ROUNDING


def largest_difference(check: RuntimeCheck) -> float:
    """How far outputs differ, by the largest element of each; infinite where they are no floats of one shape."""
    if check.before is None or check.after is None:
        return 0.0
    after = check.after.outputs
    return max(
        (relative_difference(output, after.get(name)) for name, output in check.before.outputs.items()), default=0.0
    )
