"""Standard output and error that outlive their reader: a pipe closed early, a full disk, a closed descriptor.

- ``lowtide plan ... | head -1``: the rest goes nowhere; files are written, the exit code is as without ``head``.
- ``lowtide plan ... > /dev/full``: one line on stderr, exit code 2.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from lowtide.errors import InputError

__all__ = ["lasting_streams"]

_READER_LEFT = frozenset({errno.EPIPE, errno.ECONNRESET})


@contextlib.contextmanager
def lasting_streams() -> Iterator[None]:
    """Let the process write on when its stdout or stderr has gone.

    Inside, a write to a full disk raises an `InputError` once where it is stdout. Streams that somebody else put in the
    place of the process's own (a test, a notebook) stay.
    """
    kept = sys.stdout, sys.stderr
    sys.stdout = _lasting(sys.stdout, sys.__stdout__, name="stdout")
    sys.stderr = _lasting(sys.stderr, sys.__stderr__, name="")
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(InputError):  # said already, or nobody is left to be told
                stream.flush()
        sys.stdout, sys.stderr = kept


def _lasting(stream: TextIO | None, own: TextIO | None, *, name: str) -> TextIO:
    if stream is None:  # its descriptor was closed before Python began
        return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123  (stays open as stdout does)
    if stream is not own or not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Sink(stream.fileno(), complains_as=name)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
    )


class _Sink(io.FileIO):
    """Writes to a descriptor until that fails; what comes after that is dropped.

    Args:
        descriptor: Stays open.
        complains_as: What the one error calls the stream; empty to say nothing.
    """

    def __init__(self, descriptor: int, *, complains_as: str) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._complains_as = complains_as
        self._has_failed = False

    def write(self, data: Any, /) -> int:
        """Write bytes, or drop them."""
        if self._has_failed:
            return len(data)
        try:
            return super().write(data)
        except OSError as error:
            self._has_failed = True
            if error.errno not in _READER_LEFT and self._complains_as:
                raise InputError(
                    f"{self._complains_as} cannot be written: {error.strerror}; let it lead to another place"
                ) from error
            return len(data)
