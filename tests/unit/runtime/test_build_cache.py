"""The folder of compiled shims."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from lowtide.errors import ShimError
from lowtide.runtime import build_cache
from lowtide.runtime.build_cache import (
    candidate_folders,
    exclusive,
    find_library,
    library_in,
    prune,
    writable_folder,
)


def make_entry(folder: Path, number: int, *, used: float) -> Path:
    entry = folder / f"{number:024x}-{number:08x}"
    entry.mkdir(mode=0o700, parents=True)
    library_in(entry).write_bytes(b"")
    library_in(entry).chmod(0o700)
    os.utime(library_in(entry), (used, used))
    return entry


def test_without_a_home_only_the_temporary_folder_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("LOWTIDE_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", refuse)
    assert candidate_folders() == (tmp_path / "tmp" / f"lowtide-shim-{os.geteuid()}",)


def test_a_folder_that_was_open_to_others_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "shim"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    assert writable_folder([folder]) == folder
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_of_another_user_or_a_link_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert writable_folder([tmp_path / "link", tmp_path / "real"]) == tmp_path / "real"
    assert f"{tmp_path / 'link'} (not a folder)" in caplog.text
    user = os.geteuid()
    monkeypatch.setattr(build_cache.os, "geteuid", lambda: user + 1)
    with pytest.raises(ShimError, match=f"the torch shim has no place: .*real \\(belongs to user {user}\\)"):
        writable_folder([tmp_path / "real"])


def test_entries_not_used_for_long_go(tmp_path: Path) -> None:
    entries = [make_entry(tmp_path, number, used=1000.0 + number) for number in range(6)]
    (tmp_path / "something else").mkdir()
    (tmp_path / "lock").touch()
    broken = tmp_path / f"{'a' * 24}-{'b' * 8}"  # never finished, and long ago
    broken.mkdir()
    os.utime(broken, (1.0, 1.0))
    assert find_library(entries[0]) == library_in(entries[0])  # now the one used last
    prune(tmp_path, num_kept=3)
    left = {path.name for path in tmp_path.iterdir()} - {"cache", "tmp"}
    assert left == {"something else", "lock", entries[0].name, entries[4].name, entries[5].name}


def test_one_at_a_time(tmp_path: Path) -> None:
    with exclusive(tmp_path) as is_alone:
        assert is_alone
        with (tmp_path / "lock").open("w") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with exclusive(tmp_path) as is_alone:
        assert is_alone


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with exclusive(tmp_path) as is_alone:
        assert not is_alone
