"""What ``--bands`` does, whatever the format: choose bands, keep them in a plan, choose them again, describe them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from lowtide.cli.output import count_of, print_facts
from lowtide.cli.sources import IN_PLACE, MACHINE, is_onnx, is_tflite
from lowtide.emit.bands.onnx_net import MOST_ONNX_BANDS
from lowtide.emit.bands.search import BandChoice, BandOptions
from lowtide.emit.bands.tflite_net import MOST_TFLITE_BANDS
from lowtide.emit.onnx_bands import BandedOnnx, choose_onnx_bands, import_onnx_bands, onnx_ops_of
from lowtide.emit.tflite_bands import BandedTflite, choose_tflite_bands, import_bands, ops_of
from lowtide.errors import InputError, PlanRejected
from lowtide.importers.onnx import OnnxImport, import_onnx
from lowtide.importers.onnx_file import parse_dims, read_onnx
from lowtide.importers.tflite import import_tflite
from lowtide.importers.tflite_file import read_tflite
from lowtide.ir import Graph, Plan
from lowtide.ir.serde import graph_sha256

__all__ = [
    "BANDS_HELP",
    "EXPORT_BANDS_HELP",
    "NO_BANDS",
    "BandedModel",
    "BandsAsked",
    "banded_onnx_as_planned",
    "banded_tflite_as_planned",
    "check_bands_can_be",
    "check_planned_bands",
    "choose_banded_model",
    "choose_banded_onnx",
    "choose_banded_tflite",
    "describe_other_means",
    "keep_bands_in_plan",
    "lower_next_to_nothing",
    "print_chosen_bands",
    "refuse_new_ops",
    "why_no_bands",
]

BandedModel: TypeAlias = BandedTflite | BandedOnnx

NO_BANDS = "off"
BANDS_HELP = (
    "Compute stretches of a .tflite or .onnx in row bands: auto, a number for every stretch "
    f"(2 to {MOST_TFLITE_BANDS}; .onnx: to {MOST_ONNX_BANDS}), or off."
)
EXPORT_BANDS_HELP = f"{BANDS_HELP} Plans for the least memory itself: leave out PLAN."
_AUTO = "auto"
_META = "bands"
_PORTABLE, _MACHINE = "portable", "machine"
_LEAST_BANDS = 2
_NEXT_TO_NOTHING = 0.1
_CHANGED = "the plan's row bands are not those chosen for this model now: plan it again"


@dataclass(frozen=True, slots=True)
class BandsAsked:
    """What the user wrote.

    Attributes:
        model: The file, or ``in-place:`` and the file.
        bands: As in ``--bands``, not ``off``.
        dims: Dimensions that an .onnx file leaves open, as in ``--dim``.
    """

    model: str
    bands: str
    dims: Sequence[str] = ()


def check_bands_can_be(model: str, bands: str, *, called: str) -> None:
    """Find out before long work whether a model's kind has bands.

    Args:
        model: What was named.
        bands: As in ``--bands``, not ``off``.
        called: MODEL or SOURCE.

    Raises:
        InputError: It has none, or not so many.
    """
    if not _can_have_bands(model):
        raise InputError(f"--bands {bands}: only .tflite and .onnx files are cut into bands, {called} is {model!r}")
    _number_of_bands(bands, most=MOST_ONNX_BANDS if is_onnx(model) else MOST_TFLITE_BANDS)


def lower_next_to_nothing(before_bytes: int, after_bytes: int) -> bool:
    """Whether plans lower what a model needs by so little that other means are worth a word."""
    return after_bytes > before_bytes * (1 - _NEXT_TO_NOTHING)


def describe_other_means(source: str, *, dims: Sequence[str] = (), has_budget: bool) -> str:
    """What may help where plans do not, in one line; nothing for models that cannot be cut into bands.

    Args:
        source: SOURCE of ``lowtide plan``, as the user wrote it.
        dims: Dimensions that an .onnx file leaves open, as in ``--dim``.
        has_budget: Whether the command had one; then it takes ``--bands``, else it measured in place itself.
    """
    if not _can_have_bands(source):
        return ""
    if not has_budget:
        named = "".join(f" --dim {dim}" for dim in dims)
        return (
            f"Row bands may help: lowtide export {source}{named} -o smaller{Path(source).suffix} --bands auto --check"
        )
    in_place = is_tflite(source) and not source.startswith(IN_PLACE)
    return f"Row bands may help: add --bands auto{f'. In place may, too: plan {IN_PLACE}{source}' if in_place else ''}"


def _can_have_bands(model: str) -> bool:
    return is_tflite(model) or is_onnx(model)


def choose_banded_model(asked: BandsAsked) -> BandedModel | None:
    """A model with the bands that help it most; None where none do.

    Args:
        asked: What the user wrote.

    Raises:
        FormatError: The file is broken or of a kind that is not taken.
        InputError: ``--bands`` is none of its values, or a dimension is open.
        MissingDependency: The extra ``tflite`` or ``onnx`` is not installed.
    """
    if is_onnx(asked.model):
        return choose_banded_onnx(asked.bands, _read_onnx(asked.model, asked.dims))
    return choose_banded_tflite(asked)


def choose_banded_tflite(asked: BandsAsked, *, no_new_ops: bool = False) -> BandedTflite | None:
    """A .tflite model with the bands that help it most; None where none do.

    Args:
        asked: What the user wrote.
        no_new_ops: Whether it may only have operators that the model has.

    Raises:
        FormatError: The file is broken or of a kind that is not taken.
        InputError: ``--bands`` is none of its values.
        MissingDependency: The extra ``tflite`` is not installed.
    """
    num_bands = _number_of_bands(asked.bands, most=MOST_TFLITE_BANDS)
    file = import_tflite(read_tflite(Path(asked.model.removeprefix(IN_PLACE)))).file  # says what is broken
    options = BandOptions(num_bands=num_bands, only_ops=ops_of(file) if no_new_ops else None)
    choice = choose_tflite_bands(file, options)
    return import_bands(file, choice, in_place=asked.model.startswith(IN_PLACE)) if choice.bands else None


def choose_banded_onnx(bands: str, source: OnnxImport, *, no_new_ops: bool = False) -> BandedOnnx | None:
    """An .onnx model with the bands that help it most; None where none do.

    Args:
        bands: As in ``--bands``, not ``off``.
        source: The model, imported; its level is that of the result.
        no_new_ops: Whether it may only have operators that the model has.

    Raises:
        InputError: ``bands`` is none of its values.
    """
    num_bands = _number_of_bands(bands, most=MOST_ONNX_BANDS)
    portable = source if source.level == _PORTABLE else import_onnx(source.file, level=_PORTABLE)
    options = BandOptions(num_bands=num_bands, only_ops=onnx_ops_of(portable) if no_new_ops else None)
    choice = choose_onnx_bands(portable, options)
    return import_onnx_bands(portable, choice, original=source) if choice.bands else None


def keep_bands_in_plan(plan: Plan, banded: BandedModel, original: Graph, how: BandsAsked) -> Plan:
    """A plan for a model with bands as one for the model: the graph with bands is in it, and how they were chosen."""
    meta = {**(plan.meta or {}), _META: {"bands": how.bands, "in_place": how.model.startswith(IN_PLACE)}}
    return replace(plan, graph=banded.source.graph, graph_sha256=graph_sha256(original), meta=meta)


def check_planned_bands(source: str, plan: Plan, *, dims: Sequence[str] = ()) -> None:
    """Choose the row bands of a plan again; a plan without them passes.

    Args:
        source: SOURCE, as the user wrote it.
        plan: Perhaps with the graph of the model in bands.
        dims: Dimensions that an .onnx file leaves open, as in ``--dim``.

    Raises:
        FormatError: The file is broken or of a kind that is not taken.
        MissingDependency: The extra ``tflite`` or ``onnx`` is not installed.
        PlanRejected: The graph in the plan is not that of the model in the bands that are chosen now.
    """
    if plan.graph is None:
        return
    if is_onnx(source):
        banded_onnx_as_planned(_read_onnx(source, dims), plan)
    elif is_tflite(source):
        banded_tflite_as_planned(source.removeprefix(IN_PLACE), plan)
    else:
        raise PlanRejected(
            "graph",
            "the plan has a graph of its own, with row bands: only .tflite and .onnx files have them, not "
            f"{source!r:.80}",
        )


def banded_tflite_as_planned(file: str, plan: Plan) -> BandedTflite:
    """A .tflite model in the bands of a plan.

    Args:
        file: Its path.
        plan: With the graph of the model in bands.

    Raises:
        PlanRejected: These bands are not chosen any more.
    """
    bands, in_place = _planned_bands(plan, most=MOST_TFLITE_BANDS)
    banded = choose_banded_tflite(BandsAsked(f"{IN_PLACE if in_place else ''}{file}", bands))
    if banded is None or not _is_planned(banded.source.graph, plan):
        raise PlanRejected("graph", _CHANGED)
    return banded


def banded_onnx_as_planned(source: OnnxImport, plan: Plan) -> BandedOnnx:
    """An .onnx model in the bands of a plan.

    Args:
        source: The model, imported.
        plan: With the graph of the model in bands.

    Raises:
        PlanRejected: These bands are not chosen any more.
    """
    bands, _ = _planned_bands(plan, most=MOST_ONNX_BANDS)
    banded = choose_banded_onnx(bands, source)
    if banded is None or not _is_planned(banded.source.graph, plan):
        raise PlanRejected("graph", _CHANGED)
    return banded


def _planned_bands(plan: Plan, *, most: int) -> tuple[str, bool]:
    """What the plan says of how its bands were chosen: ``--bands``, and whether in place."""
    how = (plan.meta or {}).get(_META)
    bands = how.get("bands") if isinstance(how, dict) else None
    if isinstance(how, dict) and isinstance(bands, str) and (bands == _AUTO or bands in _numbers(most)):
        return bands, bool(how.get("in_place"))
    raise PlanRejected("graph", _CHANGED)


def _is_planned(graph: Graph, plan: Plan) -> bool:
    return plan.graph is not None and graph_sha256(graph) == graph_sha256(plan.graph)


def _read_onnx(source: str, dims: Sequence[str]) -> OnnxImport:
    level = _MACHINE if source.startswith(MACHINE) else _PORTABLE
    return import_onnx(read_onnx(source.removeprefix(MACHINE), dims=parse_dims(dims)), level=level)


def _number_of_bands(bands: str, *, most: int) -> int | None:
    """None for the number that is best."""
    if bands == _AUTO:
        return None
    if bands in _numbers(most):
        return int(bands)
    raise InputError(f"--bands {bands!r:.60}: write {_AUTO}, {NO_BANDS}, or a number from {_LEAST_BANDS} to {most}")


def _numbers(most: int) -> frozenset[str]:
    return frozenset(str(number) for number in range(_LEAST_BANDS, most + 1))


def why_no_bands(*, no_new_ops: bool) -> str:
    """Why nothing is written where no bands help."""
    if no_new_ops:
        return (
            "nothing is written: no bands with the operators that the model has would lower its memory (bands need "
            "SLICE, CONCATENATION and mostly PAD; of .onnx files Slice and Concat). Leave out --no-new-ops"
        )
    return "nothing is written: no row bands were found that would lower the model's memory in reasonable time"


def refuse_new_ops(new_ops: Sequence[str]) -> None:
    """Refuse the bands of a plan that need operators which the model has none of.

    Raises:
        InputError: There are any.
    """
    if new_ops:
        raise InputError(f"--no-new-ops: the plan's bands need {', '.join(new_ops)}: plan without --bands")


def print_chosen_bands(banded: BandedModel | None) -> None:
    """Print which operators are computed in how many bands, and what that costs; or that no bands help."""
    if banded is None:
        print_facts([("bands", "none: they would not lower the model's memory in reasonable time")])
        return
    choice = banded.choice
    print_facts(
        [
            *(("bands", stretch) for stretch in _describe_stretches(choice, _num_operators(banded))),
            ("time", f"{choice.added_time_percent:+.1f} % by rows computed twice and copies, estimated"),
        ]
    )


def _describe_stretches(choice: BandChoice, num_operators: int) -> list[str]:
    return [
        f"operators {stretch.positions.start} to {stretch.positions.end - 1} of {num_operators} in "
        f"{count_of(num_bands, 'band')}"
        for stretch, num_bands in choice.bands
    ]


def _num_operators(banded: BandedModel) -> int:
    if isinstance(banded, BandedOnnx):
        return len(banded.portable.graph.nodes)
    return len(banded.original.subgraph.operators)
