"""The wheel that users install: it builds, and holds the package, its types and every native module once."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path

import pytest

import lowtide
from lowtide.runtime.build_source import find_shim_source

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel in a folder of its own, from the tree as it is."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-build-isolation", f"--config-settings=build-dir={folder / 'build'}", "--wheel-dir", str(folder)]
    done = subprocess.run([*command, str(ROOT)], capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_wheel_is_named_for_version_and_platform(wheel: Path) -> None:
    name, version, *_, platform = wheel.stem.split("-")
    assert (name, version) == ("lowtide", lowtide.__version__)
    assert platform != "any"


def test_wheel_holds_every_python_file(names: list[str]) -> None:
    source = ROOT / "src"
    expected = {str(path.relative_to(source)) for path in (source / "lowtide").rglob("*.py")}
    assert expected <= set(names)
    assert "lowtide/py.typed" in names


def test_wheel_holds_every_native_module_once(names: list[str]) -> None:
    """Libraries that the editable install left in src must not slip in beside those of this build."""
    expected = Counter(f"lowtide/_{path.stem}" for path in (ROOT / "native" / "bindings").glob("*.cpp"))
    if sys.platform == "linux" and (ROOT / "native" / "meter" / "malloc_meter.c").exists():
        expected["lowtide/measure/liblowtide_meter"] += 1
    found = Counter(name.split(".")[0] for name in names if name.endswith((".so", ".pyd", ".dylib")))
    assert found == expected


def test_wheel_holds_the_source_of_the_torch_shim(names: list[str]) -> None:
    """What compiles at first use on the user's machine: the files of the checkout, all of them."""
    native = ROOT / "native"
    files = [*native.glob("torch_shim*.?pp"), *(native / "include" / "lowtide").glob("*.hpp")]
    expected = {f"lowtide/runtime/native/{path.relative_to(native)}" for path in files}
    assert "lowtide/runtime/native/include/lowtide/pool.hpp" in expected
    assert {name for name in names if name.startswith("lowtide/runtime/native/")} == expected


def test_the_torch_shim_of_the_wheel_is_complete(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    found = find_shim_source(tmp_path / "lowtide" / "runtime").text_by_name()
    assert found == find_shim_source().text_by_name()
    assert "include/lowtide/pool.hpp" in found


def test_wheel_holds_licence_and_nothing_foreign(names: list[str]) -> None:
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"lowtide"}
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]
