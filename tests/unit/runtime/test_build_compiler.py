"""The compiler that is asked for, or the first that answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from lowtide.errors import ShimError
from lowtide.runtime.build_compiler import Compiler, find_compiler, first_errors, is_out_of_space, run_compiler


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder of programs: two compilers, one that breaks, one that passes on to another."""
    for name, text in {
        "c++": "echo 'c++ 1'; echo more",
        "clang++": "echo 'clang++ 2'",
        "broken": "exit 3",
        "wrapper": 'echo "wraps $1"',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    return tmp_path


def test_the_first_that_answers(tools: Path) -> None:
    assert find_compiler({"PATH": str(tools)}) == Compiler((str(tools / "c++"),), "c++ 1")
    (tools / "broken").rename(tools / "g++")
    assert find_compiler({"PATH": str(tools)}).command == (str(tools / "c++"),)


def test_cxx_comes_first_with_its_arguments(tools: Path) -> None:
    assert find_compiler({"PATH": str(tools), "CXX": " "}).version == "c++ 1"
    assert find_compiler({"PATH": str(tools), "CXX": "clang++"}) == Compiler((str(tools / "clang++"),), "clang++ 2")
    found = find_compiler({"PATH": str(tools), "CXX": "wrapper g++"})
    assert found == Compiler((str(tools / "wrapper"), "g++"), "wraps g++")


@pytest.mark.parametrize("asked", ["broken", "absent"])
def test_a_wrong_cxx_is_not_passed_over(asked: str, tools: Path) -> None:
    with pytest.raises(ShimError) as caught:
        find_compiler({"PATH": str(tools), "CXX": asked})
    assert str(caught.value) == (
        f"CXX='{asked}' is no C++ compiler that runs here: set CXX to one, or unset it to use g++"
    )


def test_the_first_errors() -> None:
    said = (
        "In file included\na.cpp:1: error: one\n  note\na.cpp:2: Error: two\n\nundefined reference to x\nerror: four\n"
    )
    assert first_errors(said) == "a.cpp:1: error: one | a.cpp:2: Error: two | undefined reference to x"
    assert first_errors("a\nb\nc\nd\n") == "b | c | d"
    assert first_errors("\n") == "it said nothing"


def test_a_full_disk_is_told_from_a_wrong_program() -> None:
    assert is_out_of_space("ld: final link failed: No space left on device")
    assert is_out_of_space("collect2: fatal error: ld terminated with signal 25 [File size limit exceeded]")
    assert not is_out_of_space("a.cpp:1: error: 'space' was not declared")


def test_what_it_says_and_where_it_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    command = ["sh", "-c", "echo $TMPDIR; echo $LC_ALL >&2; exit 4"]
    assert run_compiler(command, scratch_folder=tmp_path) == (4, f"{tmp_path}\nC\n")
