"""Where the cache folder is."""

from pathlib import Path

import pytest

from lowtide.cache import cache_folder


def test_where_the_cache_is() -> None:
    both = {"LOWTIDE_CACHE": "/mine", "XDG_CACHE_HOME": "/xdg"}
    assert cache_folder(both) == Path("/mine")
    assert cache_folder({"XDG_CACHE_HOME": "/xdg"}) == Path("/xdg/lowtide")
    assert cache_folder({}) == Path.home() / ".cache" / "lowtide"
    assert cache_folder({"LOWTIDE_CACHE": "here"}) == Path.cwd() / "here"


def test_it_follows_the_environment_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWTIDE_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"
    monkeypatch.delenv("LOWTIDE_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "lowtide"
