"""The torch shim, compiled at its first use.

The shim (``native/torch_shim.cpp``) is the one part of lowtide that is bound to one version of torch, so the wheel
brings its source, and each machine compiles it once with its own compiler, against its own torch, into a cache.
``lowtide build`` does it ahead.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import stat
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from types import ModuleType

from lowtide.errors import ShimError
from lowtide.runtime import build_cache
from lowtide.runtime.build_compiler import Compiler, find_compiler, first_errors, is_out_of_space, run_compiler
from lowtide.runtime.build_recipe import Recipe, installed_torch, make_recipe
from lowtide.runtime.build_source import MODULE_NAME, ShimSource, find_shim_source
from lowtide.torch_versions import TorchStanding, accepted_versions, standing_of, tested_versions

__all__ = ["ABOUT_SECONDS", "BuiltShim", "build_shim", "find_built_shim", "load_shim"]

ABOUT_SECONDS = 30
"""What compiling takes on one core, roughly."""

_FULL_NAME = f"lowtide.runtime.{MODULE_NAME}"
_LOG_NAME = "build.log"

_logger = logging.getLogger("lowtide")
_loading = threading.RLock()


@dataclass(frozen=True, slots=True)
class BuiltShim:
    """A compiled shim.

    Attributes:
        path: The library.
        seconds: How long it took to have it, waiting included.
        is_new: Whether this call compiled it.
    """

    path: Path
    seconds: float
    is_new: bool


def load_shim(source: ShimSource | None = None) -> ModuleType:
    """Import the shim, and compile it before if it has to be. A process loads it once: later calls get the same.

    Args:
        source: In place of lowtide's own.

    Raises:
        ShimError: It cannot be compiled or loaded; the message says what to do.
        MissingDependency: torch is not installed.
    """
    with _loading:
        if _FULL_NAME not in sys.modules:
            sys.modules[_FULL_NAME] = _import(build_shim(source).path)
        return sys.modules[_FULL_NAME]


def build_shim(source: ShimSource | None = None) -> BuiltShim:
    """Compile the shim unless that has been done. Processes that come meanwhile wait for the one that compiles.

    Args:
        source: In place of lowtide's own.

    Raises:
        ShimError: There is no compiler, no place for the result, or the compiler failed.
        MissingDependency: torch is not installed.
    """
    started = time.monotonic()
    recipe = _recipe(source)
    _warn_of_untested(recipe.torch.version)
    path = _find(recipe)
    if path is not None:
        return BuiltShim(path, time.monotonic() - started, is_new=False)
    compiler = find_compiler()
    folder = build_cache.writable_folder(build_cache.candidate_folders())
    try:
        path, is_new = _compile_once(recipe, compiler, folder)
    except OSError as error:
        raise _no_place(folder, error.strerror or str(error)) from error
    return BuiltShim(path, time.monotonic() - started, is_new)


def find_built_shim(source: ShimSource | None = None) -> Path | None:
    """The library that `load_shim` would load as it is, or None where it would have to compile.

    Raises:
        ShimError: As `build_shim`, as far as that shows before compiling; no compiler is no error here.
        MissingDependency: torch is not installed.
    """
    return _find(_recipe(source))


def _recipe(source: ShimSource | None) -> Recipe:
    if sys.platform != "linux":
        raise ShimError(f"lowtide's online runtime works on Linux only so far, this is {sys.platform}")
    return make_recipe(find_shim_source() if source is None else source, installed_torch())


def _warn_of_untested(version: str) -> None:
    standing = standing_of(version)
    if standing is TorchStanding.UNTESTED:
        build_cache.warn_once(f"torch {version} is untested with lowtide's online runtime; tested: {tested_versions()}")
    if standing is TorchStanding.REFUSED:
        build_cache.warn_once(
            f"torch {version} is outside what lowtide's online runtime is made for: {accepted_versions()}; "
            f"tested: {tested_versions()}"
        )


def _find(recipe: Recipe) -> Path | None:
    """Look in all folders. Without a compiler, e.g. in a slim image, what any compiler made of the recipe will do."""
    try:
        pattern = recipe.name_for(find_compiler())
    except ShimError:
        pattern = f"{recipe.key}-*"
    for folder in build_cache.candidate_folders():
        for entry in sorted(folder.glob(pattern)):
            library = build_cache.find_library(entry)
            if library is not None:
                return library
    return None


def _compile_once(recipe: Recipe, compiler: Compiler, folder: Path) -> tuple[Path, bool]:
    entry = folder / recipe.name_for(compiler)
    with build_cache.exclusive(folder) as is_alone:
        library = build_cache.find_library(entry)
        if library is not None:  # someone else compiled while we waited
            return library, False
        entry.mkdir(mode=stat.S_IRWXU, exist_ok=True)
        if is_alone:
            build_cache.remove_leftovers(entry)
        _compile(recipe, compiler, entry)
        build_cache.prune(folder)
        return build_cache.library_in(entry), True


def _compile(recipe: Recipe, compiler: Compiler, entry: Path) -> None:
    """Compile into a folder of its own, then rename: a reader sees a whole library or none."""
    _logger.info("compiling the torch shim, once, about %d s: %s", ABOUT_SECONDS, compiler.version)
    scratch = Path(tempfile.mkdtemp(prefix=build_cache.BUILDING_PREFIX, dir=entry))
    try:
        output = scratch / f"{MODULE_NAME}.so"
        command = recipe.command(compiler, output)
        status, said = run_compiler(command, scratch_folder=scratch)
        log = _write_log(entry / _LOG_NAME, command, said)
        if status != 0 or not output.is_file():
            raise _compiler_failed(compiler, entry, status, said, log)
        output.chmod(stat.S_IRWXU)
        _flush(output)
        output.replace(build_cache.library_in(entry))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _flush(path: Path) -> None:
    """Bring the content to the disk before the name: after a power cut there is no empty library."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_log(path: Path, command: list[str], said: str) -> Path | None:
    try:
        path.write_text(f"{' '.join(command)}\n{said}", encoding="utf-8")
    except OSError:  # the log is a help, never a reason to fail
        return None
    return path


def _compiler_failed(compiler: Compiler, entry: Path, status: int, said: str, log: Path | None) -> ShimError:
    if is_out_of_space(said):
        return _no_place(entry.parent, "no space left on the disk")
    place = "the log could not be written" if log is None else f"the full log: {log}"
    return ShimError(
        f"the torch shim cannot be compiled: {' '.join(compiler.command)} ended with status {status}: "
        f"{first_errors(said)}; {place}; try another compiler (CXX=...)"
    )


def _no_place(folder: Path, reason: str) -> ShimError:
    return ShimError(
        f"the torch shim cannot be written to {folder}: {reason}: make room there, or set LOWTIDE_CACHE to a folder "
        "on another disk"
    )


def _import(path: Path) -> ModuleType:
    loader = ExtensionFileLoader(_FULL_NAME, str(path))
    spec = importlib.util.spec_from_file_location(_FULL_NAME, path, loader=loader)
    assert spec is not None
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        raise ShimError(
            f"the torch shim cannot be loaded: {error}; remove the folder {path.parent} to compile it again"
        ) from error
    return module
