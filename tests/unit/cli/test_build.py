"""lowtide build: compiles the shim ahead, once, and says where it is; lowtide doctor knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from lowtide.cli import main
from lowtide.errors import ShimError
from lowtide.runtime import build as runtime_build
from lowtide.runtime.build import ABOUT_SECONDS
from lowtide.runtime.build_source import ShimSource


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ShimSource:
    """A file that compiles at once in place of the shim, and a cache of the test's own."""
    (tmp_path / "include").mkdir()
    (tmp_path / "torch_shim.cpp").write_text("int nothing = 0;\n", encoding="utf-8")
    source = ShimSource((tmp_path / "torch_shim.cpp",), tmp_path / "include")
    monkeypatch.setattr(runtime_build, "find_shim_source", lambda: source)
    monkeypatch.setenv("LOWTIDE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CXX", raising=False)
    return source


def doctor_row(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    """A row of the table, in one line."""
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith(name))
    rest = lines[first + 1 :]
    more = rest[: next(index for index, line in enumerate(rest) if not line.startswith(" "))]
    return " ".join(" ".join([lines[first], *more]).split())


@pytest.mark.usefixtures("source")
def test_build_is_done_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build"]) == 0
    captured = capsys.readouterr()
    (library,) = (tmp_path / "cache").rglob("_torch_shim.so")
    assert captured.err == f"compiling the torch shim, about {ABOUT_SECONDS} s\n"
    assert captured.out.startswith(f"{library} (compiled, ")
    assert captured.out.endswith(" s)\n")
    made = library.stat().st_ino
    assert main(["build"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.startswith(f"{library} (already compiled, ")
    assert library.stat().st_ino == made


@pytest.mark.usefixtures("source")
def test_build_without_a_compiler_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["build"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1].startswith("lowtide: no C++ compiler: looked for g++, c++, clang++ in PATH")
    assert captured.err.endswith("apt install g++ (or conda install gxx)\n")


@pytest.mark.usefixtures("source")
def test_doctor_says_whether_it_is_built(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor_row("torch shim", capsys).startswith("torch shim missing not compiled yet: `lowtide build` does it")
    assert main(["build"]) == 0
    capsys.readouterr()
    assert doctor_row("torch shim", capsys).startswith("torch shim ok compiled, in /")
    assert doctor_row("cache folder", capsys).startswith("cache folder ok /")


@pytest.mark.usefixtures("source")
def test_doctor_says_what_keeps_it_from_being_built(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> ShimSource:
        raise ShimError("the source is gone")

    monkeypatch.setattr(runtime_build, "find_shim_source", refuse)
    assert doctor_row("torch shim", capsys) == "torch shim missing the source is gone"
    monkeypatch.setenv("CXX", "absent")
    assert doctor_row("C++ compiler", capsys).startswith("C++ compiler missing CXX='absent' is no C++ compiler that")
