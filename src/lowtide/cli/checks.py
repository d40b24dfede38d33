"""What ``lowtide export --check`` prints where one runtime ran two or three programs: outputs, then what they took."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from lowtide.cli.output import count_of, print_error, print_table, print_text

__all__ = ["CheckedOutputs", "has_same_outputs", "print_checked_runs"]


class CheckedOutputs(Protocol):
    """How outputs compared."""

    @property
    def num_different(self) -> int:
        """Outputs that are not the same to the bit."""
        ...

    @property
    def num_outputs(self) -> int:
        """Outputs compared."""
        ...

    @property
    def num_sets(self) -> int:
        """Sets of random inputs."""
        ...


Checked = TypeVar("Checked", bound=CheckedOutputs)


def has_same_outputs(checked: Checked | None, print_check: Callable[[Checked], None]) -> bool:
    """Print a check, and an error where outputs differ; what was not checked passes."""
    if checked is None:
        return True
    print_check(checked)
    if not checked.num_different:
        return True
    different = count_of(checked.num_different, "output")
    print_error(f"nothing is written: {different} of {checked.num_outputs} differ; please report this bug")
    return False


def print_checked_runs(
    runtime: str, checked: CheckedOutputs, *, columns: Sequence[str], rows: Sequence[Sequence[str]], gap: str = ""
) -> None:
    """Print whether outputs agree, and a table of what each program took.

    Args:
        runtime: Who ran them.
        checked: How outputs compared.
        columns: Names of the programs.
        rows: What is measured, then a cell per program.
        gap: How far outputs that differ do so.
    """
    print_text()
    sets = count_of(checked.num_sets, "set")
    what = (
        f"{checked.num_different} of {checked.num_outputs} DIFFER{gap}"
        if checked.num_different
        else f"identical to the bit, {sets} of random inputs"
    )
    print_text(f"{runtime}, CPU, one thread: outputs {what}")
    print_table(("measured", *columns), rows, right=tuple(range(1, len(columns) + 1)))
