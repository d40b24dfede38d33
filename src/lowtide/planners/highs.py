"""HiGHS as every planner and bound here runs it."""

from __future__ import annotations

import highspy

__all__ = ["QuietHighs"]

_OPTIONS = {"output_flag": False, "threads": 1}


class QuietHighs(highspy.Highs):
    """HiGHS without a word on the terminal.

    Its own constructor registers callbacks, which prints a banner before any option can be set; nothing here needs one.
    It has one thread until it is told otherwise.
    """

    def __init__(self) -> None:
        super(highspy.Highs, self).__init__()
        for option, value in _OPTIONS.items():
            self.setOptionValue(option, value)
