"""The key covers all that decides what the shim is, and nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from lowtide.errors import ShimError
from lowtide.runtime.build_compiler import Compiler
from lowtide.runtime.build_recipe import InstalledTorch, installed_torch, make_recipe
from lowtide.runtime.build_source import ShimSource


@pytest.fixture
def torch(tmp_path: Path) -> InstalledTorch:
    return InstalledTorch(version="2.13.0+cpu", revision="abc", has_cxx11_abi=True, folder=tmp_path / "a,b" / "torch")


def append(path: Path) -> None:
    path.write_text(path.read_text(encoding="utf-8") + "// more\n", encoding="utf-8")


@pytest.mark.parametrize(
    "name", ["torch_shim.cpp", "torch_shim_words.hpp", "include/lowtide/double.hpp", "include/lowtide/deep.hpp"]
)
def test_every_file_it_is_made_of_counts(name: str, double: ShimSource, torch: InstalledTorch) -> None:
    before = make_recipe(double, torch).key
    append(double.files[0].parent / name)
    assert make_recipe(double, torch).key != before


def test_other_files_and_the_place_do_not_count(double: ShimSource, torch: InstalledTorch, tmp_path: Path) -> None:
    before = make_recipe(double, torch).key
    append(double.include_folder / "lowtide" / "unused.hpp")
    shutil.copytree(double.files[0].parent, tmp_path / "moved")
    moved = ShimSource((tmp_path / "moved" / "torch_shim.cpp",), tmp_path / "moved" / "include")
    assert make_recipe(double, torch).key == make_recipe(moved, torch).key == before


@pytest.mark.parametrize(
    "change",
    [
        lambda torch: replace(torch, version="2.13.0+cu130"),
        lambda torch: replace(torch, revision="def"),
        lambda torch: replace(torch, has_cxx11_abi=False),
        lambda torch: replace(torch, folder=torch.folder / "other"),
    ],
    ids=["version", "revision", "abi", "folder"],
)
def test_torch_counts(
    change: Callable[[InstalledTorch], InstalledTorch], double: ShimSource, torch: InstalledTorch
) -> None:
    assert make_recipe(double, torch).key != make_recipe(double, change(torch)).key


def test_python_counts(double: ShimSource, torch: InstalledTorch, monkeypatch: pytest.MonkeyPatch) -> None:
    before = make_recipe(double, torch).key
    monkeypatch.setattr("lowtide.runtime.build_recipe.sysconfig.get_config_var", lambda _: "cpython-399-x86_64")
    assert make_recipe(double, torch).key != before


def test_flags_count(double: ShimSource, torch: InstalledTorch, monkeypatch: pytest.MonkeyPatch) -> None:
    before = make_recipe(double, torch).key
    monkeypatch.setattr("lowtide.runtime.build_recipe._flags", lambda *_: ("-O3",))
    assert make_recipe(double, torch).key != before


def test_the_compiler_counts(double: ShimSource, torch: InstalledTorch) -> None:
    recipe = make_recipe(double, torch)
    compilers = [Compiler(("g++",), "12"), Compiler(("g++",), "13"), Compiler(("ccache", "g++"), "12")]
    names = {recipe.name_for(compiler) for compiler in compilers}
    assert len(names) == 3
    assert {name.split("-")[0] for name in names} == {recipe.key}


def test_the_command(double: ShimSource, torch: InstalledTorch, tmp_path: Path) -> None:
    command = make_recipe(double, torch).command(Compiler(("ccache", "g++"), "12"), tmp_path / "out.so")
    assert command[:4] == ["ccache", "g++", "-I", str(double.include_folder)]
    for flag in ("-std=c++20", "-O2", "-fPIC", "-shared", "-D_GLIBCXX_USE_CXX11_ABI=1"):
        assert flag in command
    library_folder = str(torch.folder / "lib")  # with a comma in it, which -Wl would split
    end = command.index("-o")
    assert command[end - 1] == str(double.files[0])
    assert command[end + 1 :] == [
        *(str(tmp_path / "out.so"), "-L", library_folder),
        *("-Xlinker", "-rpath", "-Xlinker", library_folder),
        *("-lc10", "-ltorch_cpu", "-ltorch_python"),
    ]
    old_abi = make_recipe(double, replace(torch, has_cxx11_abi=False)).flags
    assert "-D_GLIBCXX_USE_CXX11_ABI=0" in old_abi


def test_the_installed_torch_has_what_the_compiler_needs() -> None:
    import torch

    found = installed_torch()
    assert found.version == torch.__version__
    assert found.has_cxx11_abi == torch.compiled_with_cxx11_abi()
    assert (found.folder / "include" / "torch" / "csrc" / "api" / "include" / "torch" / "all.h").is_file()
    for name in ("libc10.so", "libtorch_cpu.so", "libtorch_python.so"):
        assert (found.folder / "lib" / name).is_file()


def test_pythons_headers_are_missed_before_compiling(
    double: ShimSource, torch: InstalledTorch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lowtide.runtime.build_recipe.sysconfig.get_path", lambda _: "/nowhere")
    with pytest.raises(ShimError, match=r"Python\.h is not in /nowhere: .*: apt install python3\.\d+-dev$"):
        make_recipe(double, torch)


def test_a_source_that_vanished(double: ShimSource, torch: InstalledTorch) -> None:
    double.files[0].unlink()
    with pytest.raises(ShimError, match=r"the source of the torch shim cannot be read: .*: install lowtide again"):
        make_recipe(double, torch)


def test_the_double_can_tell(shim_double: ModuleType, double: ShimSource) -> None:
    """The files that the tests above change are those that count, in the order of their names."""
    assert list(double.text_by_name()) == sorted(
        ["include/lowtide/deep.hpp", "include/lowtide/double.hpp", "torch_shim.cpp", "torch_shim_words.hpp"]
    )
