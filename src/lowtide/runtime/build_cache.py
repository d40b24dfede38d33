"""The folder of compiled shims: where it is, who may use it, who writes.

shim/                                   0700, ours; a folder of another user's is not used
  lock                                  flock: the kernel lets go of it when its holder dies
  <recipe>-<compiler>/_torch_shim.so    comes into being by a rename, whole or not at all
                      build.log         the command and what the compiler said
                      .building-*/      a compilation that runs, or was killed
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from lowtide.cache import cache_folder
from lowtide.errors import ShimError
from lowtide.runtime.build_source import MODULE_NAME

__all__ = [
    "BUILDING_PREFIX",
    "candidate_folders",
    "exclusive",
    "find_library",
    "library_in",
    "prune",
    "remove_leftovers",
    "warn_once",
    "writable_folder",
]

BUILDING_PREFIX = ".building-"
_NUM_KEPT = 4
_ENTRY_NAME = re.compile(r"[0-9a-f]{24}-[0-9a-f]{8}")
_NO_LOCKS_HERE = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)

_logger = logging.getLogger("lowtide")
_warned: set[str] = set()


def candidate_folders() -> tuple[Path, ...]:
    """Where shims may lie: in lowtide's cache, else right in the temporary folder, which is sticky."""
    cache = cache_folder()
    temporary = Path(tempfile.gettempdir()) / f"lowtide-shim-{os.geteuid()}"
    return (temporary,) if cache is None else (cache / "shim", temporary)


def writable_folder(candidates: Sequence[Path]) -> Path:
    """The first of the folders that can be written to, made if need be; says so once where it is not the first.

    Raises:
        ShimError: None can.
    """
    reasons: list[str] = []
    for folder in candidates:
        try:
            _make_private(folder)
            with _open_lock(folder):
                pass
        except OSError as error:
            reasons.append(f"{folder} ({error.strerror or error})")
            continue
        if reasons:
            warn_once(f"the torch shim goes to {folder}, because this cannot be used: {', '.join(reasons)}")
        return folder
    raise ShimError(
        f"the torch shim has no place: {', '.join(reasons)}: set LOWTIDE_CACHE to a folder that can be written to"
    )


def warn_once(message: str) -> None:
    """Log a warning, once per process."""
    if message not in _warned:
        _warned.add(message)
        _logger.warning("%s", message)


def _make_private(folder: Path) -> None:
    """Make a folder that is ours alone.

    Raises:
        OSError: It cannot be made, or belongs to someone else.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "not a folder", str(folder))
    if facts.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, f"belongs to user {facts.st_uid}", str(folder))
    if stat.S_IMODE(facts.st_mode) != stat.S_IRWXU:
        folder.chmod(stat.S_IRWXU)


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[bool]:
    """Let in one at a time, of all processes and threads; who dies inside leaves no lock behind.

    Yields:
        Whether nobody else can be inside. False where the file system has no locks: then several may compile the
        same, each under a name of its own, and the last rename stays.
    """
    import fcntl  # not on Windows, where the shim is refused earlier

    with _open_lock(folder) as descriptor:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _logger.info("another process compiles the torch shim: waiting for it")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _NO_LOCKS_HERE:
                raise
            yield False
            return
        yield True


@contextlib.contextmanager
def _open_lock(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def library_in(entry: Path) -> Path:
    """The library of an entry, there or not."""
    return entry / f"{MODULE_NAME}.so"


def find_library(entry: Path) -> Path | None:
    """The library of an entry, if it is there; it now counts as just used.

    Raises:
        ShimError: It is there, but someone else could have put it there.
    """
    library = library_in(entry)
    try:
        library.lstat()
    except OSError:
        return None
    for path in (entry.parent, entry, library):
        _check_ours(path)
    with contextlib.suppress(OSError):  # a folder that is read only may still hold what we need
        os.utime(library)
    return library


def _check_ours(path: Path) -> None:
    facts = path.lstat()
    if facts.st_uid != os.geteuid():
        wrong = f"belongs to user {facts.st_uid}, not to you (user {os.geteuid()})"
    elif stat.S_ISLNK(facts.st_mode):
        wrong = "is a symbolic link"
    elif stat.S_IMODE(facts.st_mode) & (stat.S_IWGRP | stat.S_IWOTH):
        wrong = "can be written to by other users"
    else:
        return
    raise ShimError(f"{path} {wrong}: it is not loaded; remove it, or set LOWTIDE_CACHE to another folder")


def remove_leftovers(entry: Path) -> None:
    """Remove what a compilation left behind that was killed."""
    for folder in entry.glob(f"{BUILDING_PREFIX}*"):
        shutil.rmtree(folder, ignore_errors=True)


def prune(folder: Path, *, num_kept: int = _NUM_KEPT) -> None:
    """Remove all entries but those used last."""
    entries = [path for path in folder.iterdir() if _ENTRY_NAME.fullmatch(path.name) and path.is_dir()]
    for entry in sorted(entries, key=_last_use, reverse=True)[num_kept:]:
        shutil.rmtree(entry, ignore_errors=True)


def _last_use(entry: Path) -> float:
    library = library_in(entry)
    return (library if library.exists() else entry).stat().st_mtime
