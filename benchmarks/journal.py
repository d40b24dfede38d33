"""What has been measured in a folder: a line of JSON when a part begins, and one when it has ended.

The last line of a part says how it stands. One that began and has no end was killed; a line that cannot be read, which
a full disk or a lost machine leaves, counts for nothing.
"""

from __future__ import annotations

import errno
import fcntl
import json
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from benchmarks.suite import JOURNAL, Part

__all__ = ["Journal", "Record", "lock_folder"]

Record = dict[str, Any]

_ENDED = {"part": str, "is_short": bool, "started": str, "exit_code": int, "seconds": int | float}
_BEGUN = {"part": str}


class Journal:
    """The journal of a folder; every call reads it anew."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / JOURNAL

    def records(self) -> list[Record]:
        """Every line that can be read."""
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.is_file() else []
        return [record for line in lines if (record := _read(line)) is not None]

    def last(self, part: Part) -> Record | None:
        """How a part ended, or None: it has not begun, or not ended."""
        own = self._records_of(part)
        return own[-1] if own and "exit_code" in own[-1] else None

    def has_begun(self, part: Part, *, is_short: bool) -> bool:
        """Whether what a part left, if it was stopped, was begun as it is wanted."""
        own = self._records_of(part)
        return bool(own) and not own[-1].get("is_void") and own[-1].get("is_short") == is_short

    def is_done(self, part: Part, *, is_short: bool) -> bool:
        """Whether a part was last run as it is wanted, ended well, and what it left is there."""
        last = self.last(part)
        if last is None or last["exit_code"] or last["is_short"] != is_short:
            return False
        return is_short or not missing_files(part, self.path.parent)

    def seconds_interrupted(self, part: Part) -> tuple[float, float]:
        """Wall-clock and CPU seconds of a part that was interrupted, once or more, and has not ended since."""
        seconds, cpu_seconds = 0.0, 0.0
        for record in self._records_of(part):
            if record.get("is_void") or "exit_code" in record:
                is_interrupted = record.get("exit_code") == INTERRUPTED
                seconds = seconds + record["seconds"] if is_interrupted else 0.0
                cpu_seconds = cpu_seconds + record["cpu_seconds"] if is_interrupted else 0.0
        return seconds, cpu_seconds

    def _records_of(self, part: Part) -> list[Record]:
        return [record for record in self.records() if record["part"] == part.name]

    def void(self, part: Part) -> None:
        """From here on, nothing of a part counts that was measured before."""
        self.append({"part": part.name, "is_void": True})

    def append(self, record: Record) -> None:
        """Add a line, behind whatever is left of the last one."""
        is_whole = not self.path.is_file() or self.path.read_bytes().endswith(b"\n") or not self.path.stat().st_size
        with self.path.open("a", encoding="utf-8") as journal:
            print("" if is_whole else "\n", json.dumps(record), sep="", file=journal)


INTERRUPTED = 130
"""Exit code of a part that somebody stopped."""


def missing_files(part: Part, output: Path) -> list[str]:
    """What a part should have left in its folder and has not."""
    return [file for file in part.files if not (output / part.name / file).is_file()]


def lock_folder(folder: Path) -> TextIOWrapper:
    """Take a folder for this process; the lock goes when it is closed.

    Raises:
        OSError: Another process has it, or nothing can be written there.
    """
    lock = (folder / ".lock").open("a", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise OSError(errno.EBUSY, "another run is writing there") from None
    return lock


def _read(line: str) -> Record | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    if not isinstance(record, dict):
        return None
    wanted = _ENDED if "exit_code" in record else _BEGUN
    return record if all(isinstance(record.get(name), kind) for name, kind in wanted.items()) else None
