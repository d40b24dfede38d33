"""What ``lowtide export --bands`` does: choose bands, plan the model with them, say what they are."""

from __future__ import annotations

from pathlib import Path

from lowtide import api
from lowtide.cli.output import count_of, print_facts
from lowtide.cli.sources import IN_PLACE
from lowtide.cli.tflite import plan_smallest_within
from lowtide.emit.bands.search import MOST_BANDS, BandChoice, BandOptions, choose_bands
from lowtide.emit.tflite import TfliteExport
from lowtide.emit.tflite_bands import export_bands, import_bands, ops_of, plan_bands
from lowtide.errors import InputError
from lowtide.importers.tflite import import_tflite
from lowtide.importers.tflite_file import TfliteFile, read_tflite

__all__ = ["BANDS_HELP", "NO_BANDS", "export_in_bands"]

NO_BANDS = "off"
BANDS_HELP = (
    f"Compute stretches of a .tflite in row bands: auto, a number (2 to {MOST_BANDS}) for every stretch, or off. Plans "
    "for the smallest arena itself: leave out PLAN."
)
_AUTO = "auto"
_LEAST_BANDS = 2
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
    num_bands = _number_of_bands(bands)
    file = import_tflite(read_tflite(Path(model.removeprefix(IN_PLACE)))).file  # says what is broken
    choice = choose_bands(file, BandOptions(num_bands=num_bands, only_ops=ops_of(file) if no_new_ops else None))
    if not choice.bands:
        return None
    banded = import_bands(file, choice, in_place=model.startswith(IN_PLACE))
    result = plan_bands(banded, plan_smallest_within(_PLANNING_SECONDS))
    exported = export_bands(banded, api.require_plan(result, banded.source.graph))
    _print_choice(file, choice)
    return exported


def _number_of_bands(bands: str) -> int | None:
    """None for the number that is best."""
    if bands == _AUTO:
        return None
    if bands.isdecimal() and _LEAST_BANDS <= int(bands) <= MOST_BANDS:
        return int(bands)
    raise InputError(f"--bands {bands!r}: write {_AUTO}, {NO_BANDS}, or a number from {_LEAST_BANDS} to {MOST_BANDS}")


def _print_choice(file: TfliteFile, choice: BandChoice) -> None:
    stretches = [
        f"operators {stretch.positions.start} to {stretch.positions.end - 1} of {len(file.subgraph.operators)} in "
        f"{count_of(num_bands, 'band')}"
        for stretch, num_bands in choice.bands
    ]
    print_facts(
        [
            *(("bands", stretch) for stretch in stretches),
            ("time", f"{choice.added_time_percent:+.1f} % by rows computed twice and copies, estimated"),
        ]
    )
