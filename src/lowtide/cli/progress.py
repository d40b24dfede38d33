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

__all__ = ["Interruption", "LiveLine", "ProgressLine"]

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


class ProgressLine(LiveLine):
    """One line on stderr: best, bound, gap, seconds.

    On a terminal it renews itself; elsewhere, after one second, a line comes with news, at most every five seconds.

    Args:
        baseline_duration: Of the graph that is planned, in its unit.
        clock: Seconds from some moment on.
    """

    def __init__(self, baseline_duration: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._baseline_duration = baseline_duration
        self._clock = clock
        self._started = clock()
        self._last_line: float | None = None
        self._best: Incumbent | None = None

    def update(self, incumbent: Incumbent) -> None:
        """Take news; for ``lowtide.plan``."""
        self._best = incumbent
        now = self._clock()
        if self._live is not None or now - self._started < _FIRST_LINE_SECONDS:
            return
        if self._last_line is None or now - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = now
            print_note(self.describe())

    def __rich__(self) -> Text:
        return Text(self.describe())

    def describe(self) -> str:
        """The line."""
        seconds = self._clock() - self._started
        best = self._tdi(None if self._best is None else self._best.duration)
        bound = self._tdi(None if self._best is None else self._best.lower_bound_duration)
        words = [
            "planning:",
            "no plan yet" if best is None else f"best TDI {best:.3f} %",
            *([] if bound is None else [f"bound {bound:.3f} %"]),
            *([] if best is None or bound is None else [f"gap {best - bound:.3f} points"]),
            f"{seconds:.0f} s",
        ]
        return f"{words[0]} {', '.join(words[1:])}"

    def _tdi(self, duration: int | None) -> float | None:
        return None if duration is None else increase_percent(duration, self._baseline_duration)
