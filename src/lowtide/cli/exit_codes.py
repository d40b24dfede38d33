"""What the exit codes of every command mean; scripts rely on them."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ExitCode"]


class ExitCode(IntEnum):
    """Exit codes."""

    DONE = 0
    CHECK_FAILED = 1
    BAD_INPUT = 2
    NO_PLAN = 3
    OUR_BUG = 70
    INTERRUPTED = 130
