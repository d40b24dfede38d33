"""A clock that runs down, for what is done in pieces within one time limit."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["countdown"]


def countdown(seconds: float | None) -> Callable[[], float | None]:
    """Start a clock that says how many seconds are left, at least 0; or None, where there is no limit.

    Args:
        seconds: From now on, or None.
    """
    if seconds is None:
        return lambda: None
    end = time.monotonic() + seconds
    return lambda: max(0.0, end - time.monotonic())
