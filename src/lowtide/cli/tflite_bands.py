"""What ``--bands`` does: choose bands, plan the model with them, say what they are, keep them in a plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from lowtide import api
from lowtide.cli.output import count_of, print_facts
from lowtide.cli.sources import IN_PLACE
from lowtide.cli.tflite import is_tflite, plan_smallest_within
from lowtide.emit.bands.search import MOST_BANDS, BandOptions, choose_bands
from lowtide.emit.tflite import TfliteExport
from lowtide.emit.tflite_bands import BandedModel, export_bands, import_bands, ops_of, plan_bands
from lowtide.errors import InputError, PlanRejected
from lowtide.importers.tflite import TfliteImport, import_tflite
from lowtide.importers.tflite_file import read_tflite
from lowtide.ir import Graph, Plan
from lowtide.ir.serde import graph_sha256

__all__ = [
    "BANDS_HELP",
    "EXPORT_BANDS_HELP",
    "NO_BANDS",
    "BandsAsked",
    "check_planned_bands",
    "choose_banded_model",
    "export_in_bands",
    "export_planned_bands",
    "keep_bands_in_plan",
    "print_chosen_bands",
]

NO_BANDS = "off"
BANDS_HELP = (
    f"Compute stretches of a .tflite in row bands: auto, a number (2 to {MOST_BANDS}) for every stretch, or off."
)
EXPORT_BANDS_HELP = f"{BANDS_HELP} Plans for the smallest arena itself: leave out PLAN."
_AUTO = "auto"
_META = "bands"
_LEAST_BANDS = 2
_NUMBERS = frozenset(str(number) for number in range(_LEAST_BANDS, MOST_BANDS + 1))
_PLANNING_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class BandsAsked:
    """What the user wrote.

    Attributes:
        model: The file, or ``in-place:`` and the file.
        bands: As in ``--bands``, not ``off``.
    """

    model: str
    bands: str


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
    banded = choose_banded_model(BandsAsked(model, bands), no_new_ops=no_new_ops)
    if banded is None:
        return None
    result = plan_bands(banded, plan_smallest_within(_PLANNING_SECONDS))
    exported = export_bands(banded, api.require_plan(result, banded.source.graph))
    print_chosen_bands(banded)
    return exported


def choose_banded_model(asked: BandsAsked, *, no_new_ops: bool = False) -> BandedModel | None:
    """A .tflite model with the bands that help it most; None where none do.

    Args:
        asked: What the user wrote.
        no_new_ops: Whether it may only have operators that the model has.

    Raises:
        FormatError: The file is broken or of a kind that is not taken.
        InputError: ``--bands`` is none of its values.
        MissingDependency: The extra ``tflite`` is not installed.
    """
    num_bands = _number_of_bands(asked.bands)
    file = import_tflite(read_tflite(Path(asked.model.removeprefix(IN_PLACE)))).file  # says what is broken
    choice = choose_bands(file, BandOptions(num_bands=num_bands, only_ops=ops_of(file) if no_new_ops else None))
    if not choice.bands:
        return None
    return import_bands(file, choice, in_place=asked.model.startswith(IN_PLACE))


def keep_bands_in_plan(plan: Plan, banded: BandedModel, original: Graph, how: BandsAsked) -> Plan:
    """A plan for a model with bands as one for the model: the graph with bands is in it, and how they were chosen."""
    meta = {**(plan.meta or {}), _META: {"bands": how.bands, "in_place": how.model.startswith(IN_PLACE)}}
    return replace(plan, graph=banded.source.graph, graph_sha256=graph_sha256(original), meta=meta)


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
    banded = _banded_as_planned(source.file.where, plan)
    exported = export_bands(banded, verified)
    if no_new_ops and exported.new_ops:
        raise InputError(f"--no-new-ops: the plan's bands need {', '.join(exported.new_ops)}: plan without --bands")
    print_chosen_bands(banded)
    return exported


def check_planned_bands(source: str, plan: Plan) -> None:
    """Choose the row bands of a plan again; a plan without them passes.

    Args:
        source: SOURCE, as the user wrote it.
        plan: Perhaps with the graph of the model in bands.

    Raises:
        FormatError: The file is broken or of a kind that is not taken.
        MissingDependency: The extra ``tflite`` is not installed.
        PlanRejected: The graph in the plan is not that of the model in the bands that are chosen now.
    """
    if plan.graph is None:
        return
    if not is_tflite(source):
        raise PlanRejected(
            "graph",
            f"the plan has a graph of its own, with row bands: only .tflite files have them, not {source!r:.80}",
        )
    _banded_as_planned(source.removeprefix(IN_PLACE), plan)


def _banded_as_planned(file: str, plan: Plan) -> BandedModel:
    how = (plan.meta or {}).get(_META)
    bands = how.get("bands") if isinstance(how, dict) else None
    if isinstance(how, dict) and isinstance(bands, str) and (bands == _AUTO or bands in _NUMBERS):
        prefix = IN_PLACE if how.get("in_place") else ""
        banded = choose_banded_model(BandsAsked(f"{prefix}{file}", bands))
        if banded is not None and plan.graph is not None and _is_same_graph(banded.source.graph, plan.graph):
            return banded
    raise PlanRejected("graph", "the plan's row bands are not those chosen for this model now: plan it again")


def _is_same_graph(first: Graph, second: Graph) -> bool:
    return graph_sha256(first) == graph_sha256(second)


def _number_of_bands(bands: str) -> int | None:
    """None for the number that is best."""
    if bands == _AUTO:
        return None
    if bands in _NUMBERS:
        return int(bands)
    raise InputError(
        f"--bands {bands!r:.60}: write {_AUTO}, {NO_BANDS}, or a number from {_LEAST_BANDS} to {MOST_BANDS}"
    )


def print_chosen_bands(banded: BandedModel | None) -> None:
    """Print which operators are computed in how many bands, and what that costs; or that no bands help."""
    if banded is None:
        print_facts([("bands", "none: they would not lower the model's memory in reasonable time")])
        return
    choice, num_operators = banded.choice, len(banded.original.subgraph.operators)
    stretches = [
        f"operators {stretch.positions.start} to {stretch.positions.end - 1} of {num_operators} in "
        f"{count_of(num_bands, 'band')}"
        for stretch, num_bands in choice.bands
    ]
    print_facts(
        [
            *(("bands", stretch) for stretch in stretches),
            ("time", f"{choice.added_time_percent:+.1f} % by rows computed twice and copies, estimated"),
        ]
    )
