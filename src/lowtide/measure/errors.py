"""The exceptions of lowtide.measure.

LowtideError
└── MeasureError
    ├── MeterUnavailable    the malloc meter is not built, or not in front of malloc
    ├── ChildFailed         the measured function raised, or its process died; the child's traceback is kept
    └── NotRepeatable       plain torch itself does not give the same bits twice, so nothing can be compared
"""

from __future__ import annotations

from lowtide.errors import LowtideError

__all__ = ["ChildFailed", "MeasureError", "MeterUnavailable", "NotRepeatable"]


class MeasureError(LowtideError):
    """Something could not be measured."""


class MeterUnavailable(MeasureError):
    """The malloc meter is not built, or not in front of malloc in this process."""


class ChildFailed(MeasureError):
    """The process that was to be measured raised, died or ran out of time.

    Attributes:
        target: The function that it ran, as ``pkg.module:function``.
        error_type: Name of the exception's class in the child, or None where it died without one.
        child_traceback: The child's traceback as text, or the end of what it wrote to stderr where there is
            none.
        return_code: Exit status of the process; negative is the number of the signal that ended it; None
            after a timeout.
    """

    def __init__(
        self, message: str, *, target: str, error_type: str | None, child_traceback: str, return_code: int | None
    ) -> None:
        super().__init__(message)
        self.target = target
        self.error_type = error_type
        self.child_traceback = child_traceback
        self.return_code = return_code
        if child_traceback:
            self.add_note(f"in the child process:\n{child_traceback}")


class NotRepeatable(MeasureError):
    """Plain torch itself does not give the same bits twice, so a comparison would mean nothing."""
