"""What all tests share."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest


def pytest_configure() -> None:
    """A shell that starts us in the background has us ignore Ctrl-C, and so all that we start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def num_calls() -> Callable[[Callable[[], Any]], int]:
    """Counts the calls that Python makes while something runs: work that repeats, where time does not."""

    def count(run: Callable[[], Any]) -> int:
        events = 0

        def note(_frame: object, event: str, _argument: object) -> None:
            nonlocal events
            events += event in {"call", "c_call"}

        before = sys.getprofile()
        sys.setprofile(note)
        try:
            run()
        finally:
            sys.setprofile(before)
        return events

    return count
