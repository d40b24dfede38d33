"""``lowtide doctor``: what works on this machine, what was never tried, and what is refused."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import lowtide
from lowtide.cache import cache_folder
from lowtide.cli.exit_codes import ExitCode
from lowtide.cli.output import print_table, print_text
from lowtide.errors import LowtideError, ShimError
from lowtide.extras import how_to_install
from lowtide.runtime.build import ABOUT_SECONDS, find_built_shim
from lowtide.runtime.build_compiler import find_compiler
from lowtide.torch_versions import TorchStanding, accepted_versions, standing_of, tested_versions
from lowtide.units import format_bytes

__all__ = ["SUPPORT_HEADER", "SUPPORT_TABLE", "Finding", "Support", "doctor", "torch_finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at.

    Attributes:
        what: Its name.
        state: ``ok``, ``missing``, ``untested`` or ``refused``.
        detail: What was found, and what to do where it is not ok.
    """

    what: str
    state: str
    detail: str


@dataclass(frozen=True, slots=True)
class Support:
    """One line of the support table; ``compile`` is lowtide.compile, ``budget`` the online lowtide.budget."""

    device: str
    system: str
    torch: str
    compile: str
    budget: str


SUPPORT_HEADER = ("device", "system", "torch", "compile", "budget (online)")
SUPPORT_TABLE = (
    Support("CPU", "Linux", "2.13, 2.14", "works", "works"),
    Support("CPU", "Linux", "2.9 - 2.12", "untested", "untested"),
    Support("CPU", "macOS, Windows", "2.9 - 2.14", "untested", "refused"),
    Support("CUDA", "Linux", "2.9 - 2.14", "untested", "refused"),
    Support("other", "any", "any", "untested", "refused"),
)

_EXTRAS = {
    "exact": ("ortools",),
    "report": ("bokeh", "matplotlib"),
    "tflite": ("ai-edge-litert", "tflite-micro"),
    "onnx": ("onnx", "onnxruntime"),
    "executorch": ("executorch",),
    "demo": ("transformers", "matplotlib", "torch"),
}


def doctor() -> int:
    """Say what works here: Python, torch, compiler, torch shim, native modules, extras, machine."""
    findings = [
        Finding("lowtide", "ok", lowtide.__version__),
        _python_finding(),
        torch_finding(_installed_version("torch")),
        _compiler_finding(),
        _shim_finding(),
        *_native_findings(Path(lowtide.__file__).parent),
        *(_extra_finding(extra, packages) for extra, packages in _EXTRAS.items()),
        _machine_finding(),
        _cache_finding(cache_folder()),
    ]
    print_table(("", "state", "detail"), [(item.what, item.state, item.detail) for item in findings])
    print_text()
    print_table(
        SUPPORT_HEADER,
        [(row.device, row.system, row.torch, row.compile, row.budget) for row in SUPPORT_TABLE],
    )
    return ExitCode.DONE


def torch_finding(version: str | None) -> Finding:
    """Judge a version of torch, e.g. ``"2.13.0+cpu"``; None where torch is missing."""
    if version is None:
        return Finding("torch", "missing", f"to capture and compile models: {how_to_install('torch')}")
    match standing_of(version):
        case TorchStanding.REFUSED:
            return Finding("torch", "refused", f"{version}, accepted is {accepted_versions()}")
        case TorchStanding.UNTESTED:
            return Finding("torch", "untested", f"{version}, accepted; tested is {tested_versions()}")
        case TorchStanding.TESTED:
            return Finding("torch", "ok", f"{version}, tested")


def _python_finding() -> Finding:
    return Finding("Python", "ok", f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}")


def _compiler_finding() -> Finding:
    try:
        compiler = find_compiler()
    except ShimError as error:
        return Finding("C++ compiler", "missing", str(error))
    return Finding("C++ compiler", "ok", f"{' '.join(compiler.command)}: {compiler.version}")


def _shim_finding() -> Finding:
    """Whether the torch shim is compiled. Imports torch, compiles nothing."""
    try:
        path = find_built_shim()
    except LowtideError as error:
        return Finding("torch shim", "missing", str(error))
    if path is None:
        return Finding(
            "torch shim",
            "missing",
            f"not compiled yet: `lowtide build` does it (about {ABOUT_SECONDS} s), or first use",
        )
    return Finding("torch shim", "ok", f"compiled, in {path.parents[1]} as {path.parent.name}")


def _native_findings(package: Path) -> list[Finding]:
    suffixes = (*EXTENSION_SUFFIXES, ".so")
    found = sorted(path for path in package.rglob("*") if path.name.endswith(suffixes))
    if not found:
        return [Finding("native modules", "missing", "run make build, or install a wheel")]
    return [Finding("native module", "ok", str(path.relative_to(package))) for path in found]


def _extra_finding(extra: str, packages: tuple[str, ...]) -> Finding:
    version_by_package = {package: _installed_version(package) for package in packages}
    missing = [package for package, version in version_by_package.items() if version is None]
    if missing:
        return Finding(f"extra [{extra}]", "missing", f"{', '.join(missing)}: {how_to_install(extra)}")
    return Finding(
        f"extra [{extra}]", "ok", ", ".join(f"{package} {version}" for package, version in version_by_package.items())
    )


def _machine_finding() -> Finding:
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    gpu = ", an NVIDIA GPU" if Path("/dev/nvidiactl").exists() else ""
    return Finding(
        "machine", "ok", f"{platform.system()} {platform.machine()}, {cores} cores, {format_bytes(memory_bytes)}{gpu}"
    )


def _cache_finding(folder: Path | None) -> Finding:
    if folder is None:
        return Finding("cache folder", "missing", "there is no home: set LOWTIDE_CACHE to a folder")
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    if existing.is_dir() and os.access(existing, os.W_OK):
        return Finding("cache folder", "ok", f"{folder}, writable")
    return Finding("cache folder", "missing", f"{folder} cannot be written to: set LOWTIDE_CACHE to another folder")


def _installed_version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
