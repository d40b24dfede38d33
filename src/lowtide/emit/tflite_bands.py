"""A .tflite model with row bands, planned, as the runtime executes it: figures are against the file without bands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from lowtide.emit.bands.rewrite import with_bands
from lowtide.emit.bands.search import BandChoice, BandOptions
from lowtide.emit.means import PlanSmallest
from lowtide.emit.tflite import TfliteExport, export_tflite
from lowtide.emit.tflite_check import RuntimeCheck, TfliteCheck
from lowtide.importers.tflite import TfliteImport, import_tflite
from lowtide.importers.tflite_arena import micro_arena
from lowtide.importers.tflite_file import TfliteFile, op_name
from lowtide.ir import PlanResult
from lowtide.referee import VerifiedPlan

__all__ = [
    "BandedModel",
    "export_bands",
    "import_bands",
    "is_same_within_rounding",
    "largest_difference",
    "ops_of",
    "plan_bands",
]

_MOST_ROUNDING = 1e-4
_PERSISTENT_BYTES_PER_OPERATOR = 256


@dataclass(frozen=True, slots=True)
class BandedModel:
    """A model with bands, ready to be planned.

    Attributes:
        original: The file without them.
        choice: Which bands.
        source: The model with them, as a graph.
    """

    original: TfliteFile
    choice: BandChoice
    source: TfliteImport


def import_bands(file: TfliteFile, choice: BandChoice, *, in_place: bool = False) -> BandedModel:
    """Compute stretches of a model in bands, and read the result as a graph.

    Args:
        file: The model.
        choice: Which bands.
        in_place: Whether elementwise operators write over an input that nobody reads after them.
    """
    return BandedModel(file, choice, import_tflite(with_bands(file, choice.bands), in_place=in_place))


def plan_bands(
    banded: BandedModel,
    plan_smallest: PlanSmallest,
    *,
    most_added_time_percent: float = BandOptions().most_added_time_percent,
) -> PlanResult:
    """Plan a model with bands: addresses alone, with another order, with recomputation; the least memory wins.

    Recomputed operators count with their room in the persistent part of the arena, and only where bands and they
    together stay within the allowed time.

    Args:
        banded: The model.
        plan_smallest: Plans for the smallest footprint.
        most_added_time_percent: Estimated, of the time without bands.
    """
    graph = banded.source.graph
    results = [plan_smallest(graph, keep_order=keep_order, max_copies=1) for keep_order in (True, False)]
    again = plan_smallest(graph, keep_order=False, max_copies=None)
    if again.plan is not None:
        factor = (1 + banded.choice.added_time_percent / 100) * (1 + again.plan.tdi_percent / 100)
        if factor <= 1 + most_added_time_percent / 100:
            results.append(again)
    return min(results, key=_needed_bytes)


def _needed_bytes(result: PlanResult) -> float:
    if result.plan is None or result.plan.footprint_bytes is None:
        return math.inf
    return result.plan.footprint_bytes + _PERSISTENT_BYTES_PER_OPERATOR * result.num_recomputes


def export_bands(banded: BandedModel, verified: VerifiedPlan) -> TfliteExport:
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
    return bool(ran) and is_micro_identical and largest_difference(checked.litert) <= _MOST_ROUNDING


def largest_difference(check: RuntimeCheck) -> float:
    """How far outputs differ, by the largest element of each; infinite where they are no floats of one shape."""
    if check.before is None or check.after is None:
        return 0.0
    after = check.after.outputs
    return max((_difference(output, after.get(name)) for name, output in check.before.outputs.items()), default=0.0)


def _difference(before: npt.NDArray[Any], after: npt.NDArray[Any] | None) -> float:
    if after is None or before.dtype != after.dtype or before.shape != after.shape:
        return math.inf
    if before.tobytes() == after.tobytes() or not before.size:
        return 0.0
    if before.dtype.kind != "f" or not (np.isfinite(before).all() and np.isfinite(after).all()):
        return math.inf
    largest = float(np.abs(before).max())
    return float(np.abs(before - after).max()) / largest if largest else math.inf
