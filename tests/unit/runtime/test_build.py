"""The shim is compiled once, found again, and every failure says what to do."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lowtide.errors import MissingDependency, ShimError
from lowtide.runtime import build, build_cache
from lowtide.runtime.build import build_shim, find_built_shim, load_shim
from lowtide.runtime.build_recipe import installed_torch
from lowtide.runtime.build_source import ShimSource, find_shim_source


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def use_compiler(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = folder / "other-g++"
    path.write_text(f'#!/bin/sh\ncase "$*" in *--version*) echo other 1.0; exit 0;; esac\n{script}\n', encoding="utf-8")
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    return path


def test_it_is_compiled_once_and_loaded(double: ShimSource, own_cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="lowtide")
    assert find_built_shim(double) is None
    first, second = build_shim(double), build_shim(double)
    assert (first.is_new, second.is_new) == (True, False)
    assert first.path == second.path == find_built_shim(double)
    assert first.path.is_relative_to(own_cache)
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert line.startswith(f"compiling the torch shim, once, about {build.ABOUT_SECONDS} s: g++")
    module = load_shim(double)
    assert module.version() == "double"
    assert module.__file__ == str(first.path)
    assert load_shim(double) is module
    entry = first.path.parent.name
    assert files_below(own_cache) == {"lock", f"{entry}/_torch_shim.so", f"{entry}/build.log"}
    assert (first.path.parent / "build.log").read_text(encoding="utf-8").startswith("/usr/bin/g++ -I ")


def test_everything_is_the_users_alone(double: ShimSource, own_cache: Path) -> None:
    old_mask = os.umask(0)
    try:
        path = build_shim(double).path
    finally:
        os.umask(old_mask)
    assert [place.stat().st_mode & 0o777 for place in (own_cache, path.parent, path)] == [0o700, 0o700, 0o700]


def test_a_changed_source_is_another_shim(double: ShimSource) -> None:
    first = build_shim(double)
    header = double.include_folder / "lowtide" / "double.hpp"
    header.write_text('#define LOWTIDE_WORDS "changed"\n', encoding="utf-8")
    second = build_shim(double)
    assert second.is_new
    assert second.path != first.path
    assert load_shim(double).version() == "changed"


def test_without_a_compiler_what_is_built_is_used(double: ShimSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slim image: `lowtide build` ran where there was a compiler."""
    built = build_shim(double)
    monkeypatch.setenv("PATH", "/nowhere")
    assert build_shim(double).path == built.path
    assert load_shim(double).version() == "double"


def test_without_a_compiler_and_nothing_built(
    double: ShimSource, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert find_built_shim(double) is None
    with pytest.raises(ShimError) as caught:
        build_shim(double)
    assert str(caught.value) == (
        "no C++ compiler: looked for g++, c++, clang++ in PATH and for $CXX; lowtide's online runtime compiles its "
        "torch shim once: apt install g++ (or conda install gxx)"
    )
    assert not own_cache.exists()


def test_a_compiler_that_fails(double: ShimSource, own_cache: Path) -> None:
    good = double.files[0].read_text(encoding="utf-8")
    double.files[0].write_text("int one = ;\nint two() { return nothing; }\n", encoding="utf-8")
    with pytest.raises(ShimError) as caught:
        load_shim(double)
    text = str(caught.value)
    (log,) = own_cache.glob("*/build.log")
    assert text.startswith("the torch shim cannot be compiled: /usr/bin/g++ ended with status 1: ")
    assert "torch_shim.cpp:1:11: error: expected primary-expression before" in text
    assert text.endswith(f"; the full log: {log}; try another compiler (CXX=...)")
    assert "\n" not in text
    assert "'nothing' was not declared" in log.read_text(encoding="utf-8")
    assert files_below(own_cache) == {"lock", f"{log.parent.name}/build.log"}
    double.files[0].write_text(good, encoding="utf-8")
    assert load_shim(double).version() == "double"


def test_a_compiler_that_says_nothing_and_makes_nothing(
    double: ShimSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_compiler("exit 0", tmp_path, monkeypatch)
    with pytest.raises(ShimError, match="ended with status 0: it said nothing; the full log: "):
        build_shim(double)


def test_a_disk_that_fills_up(
    double: ShimSource, own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler has written half of the library when the disk is full."""
    script = 'for last in "$@"; do case "$previous" in -o) echo half > "$last";; esac; previous="$last"; done\n'
    use_compiler(f"{script}echo 'x.s: fatal error: No space left on device' >&2; exit 1", tmp_path, monkeypatch)
    with pytest.raises(ShimError) as caught:
        build_shim(double)
    assert str(caught.value) == (
        f"the torch shim cannot be written to {own_cache}: no space left on the disk: make room there, or set "
        "LOWTIDE_CACHE to a folder on another disk"
    )
    assert not list(own_cache.rglob("*.so"))
    monkeypatch.delenv("CXX")
    assert build_shim(double).is_new


def test_a_disk_that_is_full_when_the_folder_is_made(
    double: ShimSource, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("lowtide.runtime.build.tempfile.mkdtemp", refuse)
    with pytest.raises(ShimError, match=f"cannot be written to {own_cache}: No space left on device: make room"):
        build_shim(double)


def test_a_home_that_cannot_be_written(
    double: ShimSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("LOWTIDE_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    (tmp_path / "home").write_text("", encoding="utf-8")  # a file: also root cannot make a folder in it
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    built, again = build_shim(double), build_shim(double)
    fallback = tmp_path / "tmp" / f"lowtide-shim-{os.geteuid()}"
    assert built.path.is_relative_to(fallback)
    assert (again.path, again.is_new) == (built.path, False)
    double.files[0].write_text(double.files[0].read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert build_shim(double).is_new
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    refused = tmp_path / "home" / ".cache" / "lowtide" / "shim"
    assert warning == (f"the torch shim goes to {fallback}, because this cannot be used: {refused} (Not a directory)")


def test_no_place_at_all(double: ShimSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("LOWTIDE_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr("lowtide.runtime.build_cache.tempfile.tempdir", str(tmp_path / "file"))
    with pytest.raises(
        ShimError, match=r"the torch shim has no place: .*set LOWTIDE_CACHE to a folder that can be wri"
    ):
        build_shim(double)


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("2.12.1", "torch 2.12.1 is untested with lowtide's online runtime; tested: 2.13, 2.14"),
        (
            "2.16.0",
            (
                "torch 2.16.0 is outside what lowtide's online runtime is made for: 2.9 up to, not including, 2.15; "
                "tested: 2.13, 2.14"
            ),
        ),
        ("2.13.9+cpu", None),
        ("2.14.1+cu130", None),
    ],
)
def test_one_warning_for_an_untested_torch(
    version: str,
    text: str | None,
    double: ShimSource,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = replace(installed_torch(), version=version)
    monkeypatch.setattr(build, "installed_torch", lambda: other)
    assert build_shim(double).is_new
    assert not build_shim(double).is_new
    assert [record.getMessage() for record in caplog.records] == ([] if text is None else [text])


def test_without_torch(double: ShimSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependency, match=r"the online runtime needs the package 'torch': pip install"):
        load_shim(double)


def test_another_system_is_refused(double: ShimSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build.sys, "platform", "win32")
    with pytest.raises(ShimError, match="lowtide's online runtime works on Linux only so far, this is win32"):
        load_shim(double)


def test_what_is_no_module_is_not_loaded(double: ShimSource) -> None:
    path = build_shim(double).path
    path.write_bytes(b"no library")
    with pytest.raises(ShimError) as caught:
        load_shim(double)
    assert str(caught.value).startswith("the torch shim cannot be loaded: ")
    assert str(caught.value).endswith(f"; remove the folder {path.parent} to compile it again")


def test_the_library_of_another_user_is_not_loaded(double: ShimSource, monkeypatch: pytest.MonkeyPatch) -> None:
    path = build_shim(double).path
    folder, user = path.parents[1], os.geteuid()
    monkeypatch.setattr(build_cache.os, "geteuid", lambda: user + 1)
    with pytest.raises(ShimError) as caught:
        load_shim(double)
    assert str(caught.value) == (
        f"{folder} belongs to user {user}, not to you (user {user + 1}): it is not loaded; remove it, or set "
        "LOWTIDE_CACHE to another folder"
    )


def test_only_the_library_is_of_another_user(double: ShimSource) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    path = build_shim(double).path
    os.chown(path, 12345, -1)
    with pytest.raises(ShimError, match=r"_torch_shim\.so belongs to user 12345, not to you \(user 0\)"):
        load_shim(double)


def test_what_others_can_write_is_not_loaded(double: ShimSource) -> None:
    path = build_shim(double).path
    path.chmod(0o770)
    with pytest.raises(ShimError, match=r"_torch_shim\.so can be written to by other users: it is not loaded"):
        load_shim(double)


def test_a_link_is_not_loaded(double: ShimSource, tmp_path: Path) -> None:
    path = build_shim(double).path
    path.rename(tmp_path / "elsewhere.so")
    path.symlink_to(tmp_path / "elsewhere.so")
    with pytest.raises(ShimError, match="is a symbolic link: it is not loaded"):
        load_shim(double)


def test_the_installed_source_is_complete(tmp_path: Path) -> None:
    """As in a wheel: beside the package; else as in a checkout."""
    package = tmp_path / "src" / "lowtide" / "runtime"
    checkout = tmp_path / "native"
    for folder in (package, checkout):
        folder.mkdir(parents=True)
    with pytest.raises(ShimError, match=f"looked for torch_shim.cpp in {package}/native and {checkout}; install"):
        find_shim_source(package)
    (checkout / "torch_shim.cpp").touch()
    assert find_shim_source(package) == ShimSource((checkout / "torch_shim.cpp",), checkout / "include")
    (package / "native").mkdir()
    (package / "native" / "torch_shim_b.cpp").touch()
    (package / "native" / "torch_shim_a.cpp").touch()
    found = find_shim_source(package)
    assert [path.name for path in found.files] == ["torch_shim_a.cpp", "torch_shim_b.cpp"]
    assert found.include_folder == package / "native" / "include"
