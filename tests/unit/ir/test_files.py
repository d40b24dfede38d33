"""Files that are whole or not there."""

import os
from pathlib import Path

import pytest

from lowtide.errors import FormatError
from lowtide.ir.serde import write_bytes_atomically


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    write_bytes_atomically(path, [b"n", b"ew"])
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(FormatError, match="cannot be written: No space left on device"):
        write_bytes_atomically(path, [b"n", b"ew"])
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_device_is_written_as_it_is() -> None:
    write_bytes_atomically(os.devnull, [b"anything"])
    assert not Path(os.devnull).is_file()
