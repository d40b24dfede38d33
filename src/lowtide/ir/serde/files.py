"""Files in and out: strict JSON, size caps, and writes that leave the old file or the whole new one."""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

from lowtide.errors import FormatError

__all__ = [
    "MAX_FILE_BYTES",
    "compact_json",
    "is_special_file",
    "name_of_file",
    "parse_json",
    "read_text",
    "write_atomically",
    "write_bytes_atomically",
]

MAX_FILE_BYTES = 2**30
"""Files above this are refused before they are read."""

_MAX_DIGITS = 400


def read_text(path: str | os.PathLike[str]) -> str:
    """Read a UTF-8 file of at most :data:`MAX_FILE_BYTES`.

    Raises:
        FormatError: The file is missing, unreadable, too large or no UTF-8.
    """
    where = name_of_file(path)
    try:
        if Path(path).is_dir():
            raise FormatError(f"{where}: is a folder, not a file")
        if not Path(path).is_file():
            raise FormatError(f"{where}: no such file")
        if Path(path).stat().st_size > MAX_FILE_BYTES:
            raise FormatError(f"{where}: larger than {MAX_FILE_BYTES} bytes, the most that is read")
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"{where}: not UTF-8 text at byte {error.start}") from None
    except OSError as error:
        raise FormatError(f"{where}: cannot be read: {error.strerror or error}") from None
    if text.startswith("\ufeff"):
        raise FormatError(f"{where}: begins with a byte order mark: save it as UTF-8 without one")
    return text


def name_of_file(path: str | os.PathLike[str]) -> str:
    """A path as it is named in errors: on one line, whatever characters it has."""
    text = os.fspath(path)
    return text if text.isprintable() else repr(text)


def parse_json(text: str, where: str) -> Any:
    """Parse strict JSON: no NaN or infinity, no key twice, no number of hundreds of digits.

    Args:
        text: The document.
        where: Names the document in errors.

    Raises:
        FormatError: The text is no such JSON, with line and column.
    """
    try:
        return json.loads(
            text,
            parse_constant=lambda name: _refuse(f"{where}: {name} is no number here: durations and sizes are whole"),
            parse_int=lambda digits: _parse_int(digits, where),
            parse_float=lambda digits: _parse_float(digits, where),
            object_pairs_hook=lambda pairs: _parse_object(pairs, where),
        )
    except json.JSONDecodeError as error:
        raise FormatError(f"{where}: not JSON at line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise FormatError(f"{where}: nested too deeply to be read") from None


def compact_json(document: Any) -> str:
    """Write canonical JSON: keys sorted, no white space, ASCII only.

    Raises:
        FormatError: The document (its ``meta``, say) holds what JSON cannot hold.
    """
    try:
        return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise FormatError(f"cannot be written as JSON: {error}") from None


def write_atomically(path: str | os.PathLike[str], chunks: Iterable[str]) -> None:
    """Write text as :func:`write_bytes_atomically` writes bytes.

    Raises:
        FormatError: The folder is missing or not writable, or the disk is full.
    """
    write_bytes_atomically(path, (chunk.encode("utf-8") for chunk in chunks))


def write_bytes_atomically(path: str | os.PathLike[str], chunks: Iterable[bytes]) -> None:
    """Write a temporary file beside ``path``, then rename it, so that nothing half written is ever seen.

    A symbolic link stays and its target is written. A device or pipe (``/dev/null``, ``/dev/stdout``) is written as it
    is: a rename would put a file in its place.

    Raises:
        FormatError: The folder is missing or not writable, or the disk is full.
    """
    temporary: str | None = None
    try:
        if is_special_file(path):
            with Path(path).open("wb") as file:
                file.writelines(chunks)
            return
        target = Path(path).resolve()
        descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name[:32]}.", suffix=".tmp", dir=target.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(chunks)
        Path(temporary).chmod(0o666 & ~_current_umask())
        Path(temporary).replace(target)
        temporary = None
    except OSError as error:
        raise FormatError(f"{name_of_file(path)}: cannot be written: {error.strerror or error}") from None
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                Path(temporary).unlink(missing_ok=True)


def is_special_file(path: str | os.PathLike[str]) -> bool:
    """Whether a path leads to a device, pipe or socket."""
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _refuse(message: str) -> NoReturn:
    raise FormatError(message)


def _parse_int(digits: str, where: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise FormatError(f"{where}: a number of {len(digits)} digits is no size or duration")
    return int(digits)


def _parse_float(digits: str, where: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise FormatError(f"{where}: {digits[:40]} is too large for a number")
    return number


def _parse_object(pairs: list[tuple[str, Any]], where: str) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        seen: set[str] = set()
        repeated = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise FormatError(f"{where}: key {repeated[:80]!r} occurs twice in one object")
    return document
