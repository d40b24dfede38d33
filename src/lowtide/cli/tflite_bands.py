"""What ``lowtide export`` does with a .tflite model in row bands."""

from __future__ import annotations

from lowtide import api
from lowtide.cli.bands import (
    BandsAsked,
    banded_tflite_as_planned,
    choose_banded_tflite,
    print_chosen_bands,
    refuse_new_ops,
)
from lowtide.cli.tflite import plan_smallest_within
from lowtide.emit.bands.planned import plan_bands
from lowtide.emit.tflite import TfliteExport
from lowtide.emit.tflite_bands import export_bands
from lowtide.importers.tflite import TfliteImport
from lowtide.ir import Plan

__all__ = ["export_in_bands", "export_planned_bands"]

_PLANNING_SECONDS = 20.0


def export_in_bands(model: str, bands: str, *, no_new_ops: bool) -> TfliteExport | None:
    """Rewrite a .tflite model with the bands that help it most; None where none do.

    Args:
        model: The file, or ``in-place:`` and the file.
        bands: As in ``--bands``, not ``off``.
        no_new_ops: Whether the new file may only have operators that the model has.

    Raises:
        FormatError: The file is broken or of a kind that is not taken.
        InputError: ``bands`` is none of its values.
        MissingDependency: The extra ``tflite`` is not installed.
    """
    banded = choose_banded_tflite(BandsAsked(model, bands), no_new_ops=no_new_ops)
    if banded is None:
        return None
    graph = banded.source.graph
    result = plan_bands(graph, banded.choice, plan_smallest_within(_PLANNING_SECONDS))
    exported = export_bands(banded, api.require_plan(result, graph))
    print_chosen_bands(banded)
    return exported


def export_planned_bands(source: TfliteImport, plan: Plan, *, no_new_ops: bool) -> TfliteExport:
    """Write a model in the bands of its plan, as planned.

    Args:
        source: The model, imported.
        plan: With the graph of the model in bands.
        no_new_ops: Whether the new file may only have operators that the model has.

    Raises:
        InputError: It would need other operators.
        PlanRejected: The plan breaks a rule, or these bands are not chosen any more.
    """
    verified = api.verify(source.graph, plan)
    banded = banded_tflite_as_planned(source.file.where, plan)
    exported = export_bands(banded, verified)
    if no_new_ops:
        refuse_new_ops(exported.new_ops)
    print_chosen_bands(banded)
    return exported
