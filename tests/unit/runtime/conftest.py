"""A double of the shim, a cache of its own, and a compiler that counts and waits."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from lowtide.runtime import build_cache
from lowtide.runtime.build_source import ShimSource

SHIM = "lowtide.runtime._torch_shim"

# Notes each compilation in `count`; then a child (g++ works in children, too) notes itself in `pid` and waits for as
# long as `hold` is there.
HELD_COMPILER = """#!/bin/sh
case "$*" in *--version*) exec g++ --version ;; esac
echo x >> "{folder}/count"
sh -c 'cd "{folder}"; echo $$ > pid.part; mv pid.part pid; while [ -e hold ]; do sleep 0.02; done'
exec g++ "$@"
"""


@pytest.fixture(scope="session")
def shim_double() -> ModuleType:
    """The module ``shim_double.py`` (tests are no package)."""
    spec = importlib.util.spec_from_file_location("shim_double", Path(__file__).with_name("shim_double.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def double(shim_double: ModuleType, tmp_path: Path) -> ShimSource:
    """The double's source, in ``tmp_path / "native"``."""
    source = shim_double.write_double(tmp_path / "native")
    assert isinstance(source, ShimSource)
    return source


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of shims, in a cache and with a temporary folder of the test's own; nothing loaded, nothing warned."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("LOWTIDE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(build_cache, "_warned", set())
    loaded = sys.modules.pop(SHIM, None)
    yield tmp_path / "cache" / "shim"
    sys.modules.pop(SHIM, None)
    if loaded is not None:
        sys.modules[SHIM] = loaded


@pytest.fixture
def held_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``$CXX``, a compiler that waits while ``hold`` is in the folder, which is returned."""
    folder = tmp_path / "compiler"
    folder.mkdir()
    script = folder / "held-g++"
    script.write_text(HELD_COMPILER.format(folder=folder), encoding="utf-8")
    script.chmod(0o755)
    (folder / "hold").touch()
    monkeypatch.setenv("CXX", str(script))
    return folder
