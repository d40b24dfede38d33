"""What a long search shows on stderr, and how Ctrl-C ends it with the best plan so far."""

from __future__ import annotations

import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from lowtide.cli.output import print_note
from lowtide.ir import Incumbent
from lowtide.ir.plan import increase_percent
from lowtide.planning.analysis import AnalysisPoint

__all__ = ["AnalysisLine", "Interruption", "LiveLine", "ProgressLine"]

_FIRST_LINE_SECONDS = 1.0
_SECONDS_BETWEEN_LINES = 5.0


class Interruption:
    """Turns the first Ctrl-C inside into a request to stop; the second, in case nobody asks, raises KeyboardInterrupt.

    Outside the main thread, where handlers cannot be set, nothing changes.

    Args:
        kept: What stays of the work, for the line that says so.

    Attributes:
        is_requested: Whether Ctrl-C has been pressed.
    """

    def __init__(self, *, kept: str = "the best plan so far is kept") -> None:
        self._kept = kept
        self.is_requested = False
        self._previous: Any = None

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

    def should_stop(self) -> bool:
        """For ``lowtide.plan``."""
        return self.is_requested

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self.is_requested:
            raise KeyboardInterrupt
        self.is_requested = True
        os.write(2, f"\nlowtide: stopping, {self._kept} (Ctrl-C again: at once)\n".encode())


class LiveLine(ABC):
    """What renews itself on stderr while the block runs, where that is a terminal; what it shows is ``__rich__``."""

    def __init__(self) -> None:
        self._live: Live | None = None

    def __enter__(self) -> Self:
        console = Console(stderr=True)
        if console.is_terminal:
            self._live = Live(self, console=console, transient=True, refresh_per_second=4, redirect_stdout=False)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    @abstractmethod
    def __rich__(self) -> RenderableType:
        """What is shown."""


class NewsLine(LiveLine):
    """One line on stderr that says how long it has taken, and what has come of it.

    On a terminal it renews itself; elsewhere, after one second, a line comes with news, at most every five seconds.

    Args:
        clock: Seconds from some moment on.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._started = clock()
        self._last_line: float | None = None

    def __rich__(self) -> Text:
        return Text(self.describe())

    @abstractmethod
    def describe(self) -> str:
        """The line."""

    @property
    def _seconds(self) -> float:
        return self._clock() - self._started

    def _tell(self) -> None:
        """There is news."""
        now = self._clock()
        if self._live is not None or self._seconds < _FIRST_LINE_SECONDS:
            return
        if self._last_line is None or now - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = now
            print_note(self.describe())


class ProgressLine(NewsLine):
    """Best, bound, gap, seconds.

    Args:
        baseline_duration: Of the graph that is planned, in its unit.
        clock: Seconds from some moment on.
    """

    def __init__(self, baseline_duration: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock=clock)
        self._baseline_duration = baseline_duration
        self._best: Incumbent | None = None

    def update(self, incumbent: Incumbent) -> None:
        """Take news; for ``lowtide.plan``."""
        self._best = incumbent
        self._tell()

    def describe(self) -> str:
        """The line."""
        best = self._tdi(None if self._best is None else self._best.duration)
        bound = self._tdi(None if self._best is None else self._best.lower_bound_duration)
        words = [
            "planning:",
            "no plan yet" if best is None else f"best TDI {best:.3f} %",
            *([] if bound is None else [f"bound {bound:.3f} %"]),
            *([] if best is None or bound is None else [f"gap {best - bound:.3f} points"]),
            f"{self._seconds:.0f} s",
        ]
        return f"{words[0]} {', '.join(words[1:])}"

    def _tdi(self, duration: int | None) -> float | None:
        return None if duration is None else increase_percent(duration, self._baseline_duration)


class AnalysisLine(NewsLine):
    """The last budget that was tried, its price, seconds."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock=clock)
        self._point: AnalysisPoint | None = None

    def update(self, point: AnalysisPoint) -> None:
        """Take news; for ``lowtide.analyze``."""
        self._point = point
        self._tell()

    def describe(self) -> str:
        """The line."""
        point = self._point
        if point is None:
            return f"analysing: {self._seconds:.0f} s"
        price = f"no plan ({point.status})" if point.tdi_percent is None else f"TDI {point.tdi_percent:.3f} %"
        return f"analysing: {point.budget_percent} % {price}, {self._seconds:.0f} s"
