"""Everything that decides what the compiled shim is, and the key made of it."""

from __future__ import annotations

import hashlib
import json
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lowtide.errors import MissingDependency, ShimError
from lowtide.runtime.build_compiler import Compiler
from lowtide.runtime.build_source import MODULE_NAME, ShimSource

__all__ = ["InstalledTorch", "Recipe", "installed_torch", "make_recipe"]


@dataclass(frozen=True, slots=True)
class InstalledTorch:
    """What the compiler must know of torch.

    Attributes:
        version: E.g. ``"2.13.0+cpu"``.
        revision: The commit it was built from.
        has_cxx11_abi: Which of libstdc++'s two layouts of std::string it was built with.
        folder: The package, with ``include`` and ``lib`` in it.
    """

    version: str
    revision: str
    has_cxx11_abi: bool
    folder: Path


def installed_torch() -> InstalledTorch:
    """Ask torch itself.

    Raises:
        MissingDependency: It is not installed.
        ShimError: It came without its headers.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingDependency("torch", extra="torch", needed_for="the online runtime") from error
    folder = Path(torch.__file__).resolve().parent
    if not (folder / "include" / "ATen" / "ATen.h").is_file():
        raise ShimError(f"torch {torch.__version__} has no headers in {folder / 'include'}: install torch from a wheel")
    return InstalledTorch(
        version=str(torch.__version__),
        revision=str(getattr(torch.version, "git_version", None)),
        has_cxx11_abi=bool(torch.compiled_with_cxx11_abi()),
        folder=folder,
    )


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to compile the shim, but for the compiler.

    Attributes:
        source: What is compiled.
        torch: What it is compiled against.
        python: Name of Python's binary interface, e.g. ``"cpython-311-x86_64-linux-gnu"``.
        flags: The compiler's arguments before the files.
        libraries: Those after them.
        key: Of all this and of the text of every file: as many hexadecimal digits as nobody needs to fear.
    """

    source: ShimSource
    torch: InstalledTorch
    python: str
    flags: tuple[str, ...]
    libraries: tuple[str, ...]
    key: str

    def name_for(self, compiler: Compiler) -> str:
        """Name of the cache's entry for what this compiler makes of it."""
        return f"{self.key}-{_digest([compiler.command, compiler.version], num_digits=8)}"

    def command(self, compiler: Compiler, output: Path) -> list[str]:
        """The command line that makes ``output``."""
        files = map(str, self.source.files)
        own = ("-I", str(self.source.include_folder))  # not in the key: moving the source compiles nothing again
        return [*compiler.command, *own, *self.flags, *files, "-o", str(output), *self.libraries]


def make_recipe(source: ShimSource, torch: InstalledTorch) -> Recipe:
    """Put together what the shim is made of.

    Raises:
        ShimError: Python's headers are missing, or a file of the source cannot be read.
    """
    include = Path(sysconfig.get_path("include"))
    if not (include / "Python.h").is_file():
        raise ShimError(
            f"Python.h is not in {include}: the torch shim needs Python's headers: apt install "
            f"python{sysconfig.get_python_version()}-dev"
        )
    python = str(sysconfig.get_config_var("SOABI"))
    flags = _flags(torch, include)
    libraries = _libraries(torch)
    try:
        texts = source.text_by_name()
    except OSError as error:
        raise ShimError(f"the source of the torch shim cannot be read: {error}: install lowtide again") from error
    ingredients = {
        "files": {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()},
        "torch": [torch.version, torch.revision, torch.has_cxx11_abi],
        "python": python,
        "flags": [flags, libraries],
    }
    return Recipe(source, torch, python, flags, libraries, _digest(ingredients, num_digits=24))


def _flags(torch: InstalledTorch, python_include: Path) -> tuple[str, ...]:
    include = torch.folder / "include"
    foreign = (include, include / "torch" / "csrc" / "api" / "include", python_include)
    return (
        *("-std=c++20", "-O2", "-DNDEBUG", "-fPIC", "-shared", "-pthread"),
        "-fvisibility=hidden",  # what pybind11 asks for
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.has_cxx11_abi)}",
        f"-DTORCH_EXTENSION_NAME={MODULE_NAME}",
        *(word for folder in foreign for word in ("-isystem", str(folder))),
    )


def _libraries(torch: InstalledTorch) -> tuple[str, ...]:
    folder = str(torch.folder / "lib")
    # -Xlinker, not -Wl: a comma in the path would split it.
    rpath = ("-Xlinker", "-rpath", "-Xlinker", folder)
    return ("-L", folder, *rpath, "-lc10", "-ltorch_cpu", "-ltorch_python")


def _digest(value: Any, *, num_digits: int) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:num_digits]
