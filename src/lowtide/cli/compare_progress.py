"""What a comparison shows on stderr: on a terminal a bar with the time left, elsewhere a line per cell."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from lowtide.cli.output import print_note
from lowtide.cli.progress import LiveLine
from lowtide.comparison.comparing import Progress
from lowtide.comparison.rows import Kind, Row
from lowtide.units import format_bytes

__all__ = ["ComparisonLine", "describe_row", "describe_seconds"]


class ComparisonLine(LiveLine):
    """Takes progress of a comparison.

    Args:
        clock: Seconds from some moment on.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._progress: Progress | None = None
        self._updated = clock()

    def update(self, progress: Progress) -> None:
        """Take news; for ``compare_graph``."""
        self._progress = progress
        self._updated = self._clock()
        if self._live is None and progress.row is not None:
            done = f"{progress.num_done}/{progress.num_cells}"
            print_note(f"{done} {progress.cell}: {describe_row(progress.row)}")

    def __rich__(self) -> Table | Group:
        if self._progress is None:
            return Group()
        progress = self._progress
        line = Table.grid(padding=(0, 1))
        line.add_row(
            ProgressBar(total=max(1, progress.num_cells), completed=progress.num_done, width=20),
            Text(f"{progress.num_done}/{progress.num_cells}"),
            Text(f"{describe_seconds(self._seconds_left())} left", style="bold"),
            Text(str(progress.cell), style="dim", no_wrap=True, overflow="ellipsis"),
        )
        return line

    def _seconds_left(self) -> float:
        if self._progress is None:
            return 0.0
        return max(0.0, self._progress.seconds_left - (self._clock() - self._updated))


def describe_seconds(seconds: float) -> str:
    """``"8 s"``, ``"3 min 20 s"``, ``"1 h 05 min"``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def describe_row(row: Row) -> str:
    """What came of a cell, in a line."""
    if row.cell.kind is Kind.BOUND:
        return str(row.outcome)
    increase = row.increase_percent
    if row.needed_bytes is None or increase is None:
        return str(row.outcome)
    return f"{row.outcome}, {format_bytes(row.needed_bytes)}, {increase:+.2f} %, {row.seconds:.1f} s"
