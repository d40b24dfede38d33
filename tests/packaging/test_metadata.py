"""What the installed distribution says about itself."""

from __future__ import annotations

import tomllib
from importlib import metadata, resources
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import lowtide

ROOT = Path(__file__).parents[2]


def requirements_of(extra: str | None) -> set[str]:
    """Names of the packages that the distribution requires, those of one extra or (None) of the core."""
    found = set()
    for line in metadata.requires("lowtide") or []:
        requirement = Requirement(line)
        in_core = requirement.marker is None
        if (extra is None and in_core) or (
            extra is not None and requirement.marker is not None and requirement.marker.evaluate({"extra": extra})
        ):
            found.add(requirement.name)
    return found


def test_version_matches_metadata() -> None:
    assert lowtide.__version__ == metadata.version("lowtide")


def test_changelog_knows_the_version_or_unreleased_changes() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "## [Unreleased]" in text or f"## [{lowtide.__version__}]" in text


def test_py_typed_is_shipped() -> None:
    assert resources.files("lowtide").joinpath("py.typed").is_file()


def test_core_needs_neither_torch_nor_ortools() -> None:
    assert requirements_of(None) == {"numpy", "highspy", "typer", "rich"}


def test_extras_bring_what_they_say() -> None:
    assert "torch" in requirements_of("torch")
    assert "ortools" in requirements_of("exact")
    assert "matplotlib" in requirements_of("report")
    assert "transformers" in requirements_of("demo")
    assert {"transformers", "accelerate"} <= requirements_of("huggingface")
    assert "lightning" in requirements_of("lightning")


def test_torch_range_admits_the_pinned_torch() -> None:
    """What development runs with (constraints.txt) is inside the range that users may install."""
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned_version = next(line for line in pins if line.startswith("torch==")).removeprefix("torch==")
    torch_range = next(
        requirement.specifier
        for requirement in map(Requirement, metadata.requires("lowtide") or [])
        if requirement.name == "torch"
    )
    assert torch_range.contains(pinned_version)


def test_entry_points_are_declared() -> None:
    (script,) = metadata.entry_points(group="console_scripts", name="lowtide")
    assert script.value == "lowtide.cli:main"
    (backend,) = metadata.entry_points(group="torch_dynamo_backends", name="lowtide")
    assert backend.value == "lowtide.api:dynamo_backend"


def test_entry_points_load() -> None:
    (script,) = metadata.entry_points(group="console_scripts", name="lowtide")
    assert callable(script.load())
    (backend,) = metadata.entry_points(group="torch_dynamo_backends", name="lowtide")
    assert callable(backend.load())


def test_installed_extras_are_those_of_pyproject() -> None:
    """A stale editable install would test yesterday's metadata."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(metadata.metadata("lowtide").get_all("Provides-Extra") or []) == set(project["optional-dependencies"])


def cuda_packages_beyond_torch(distributions: dict[str, list[str]]) -> set[str]:
    """CUDA packages that something other than the installed torch brought in.

    Args:
        distributions: Requirement lines of each installed distribution, by normalised name.

    Returns:
        Names of installed CUDA packages that do not follow from torch's own requirements. A CPU build of torch
        requires none, so with one every CUDA package counts.
    """
    brought_by_torch: set[str] = set()
    pending = ["torch"]
    while pending:
        for line in distributions.get(pending.pop(), []):
            name = canonicalize_name(Requirement(line).name)
            if name not in brought_by_torch:
                brought_by_torch.add(name)
                pending.append(name)
    cuda = {name for name in distributions if name.startswith(("nvidia-", "cuda-")) or name == "triton"}
    return cuda - brought_by_torch


def test_no_extra_brings_cuda() -> None:
    installed = {
        canonicalize_name(distribution.metadata["Name"]): list(distribution.requires or [])
        for distribution in metadata.distributions()
    }
    assert "torch" in installed
    assert cuda_packages_beyond_torch(installed) == set()


def test_cuda_packages_beyond_torch_tells_whose_they_are() -> None:
    cpu = {"torch": ["sympy"], "sympy": [], "nvidia-nccl-cu13": [], "triton": []}
    cuda = {
        **cpu,
        "torch": ["cuda-toolkit[cublas]==13", "triton"],
        "cuda-toolkit": ["nvidia-nccl-cu13; extra == 'nccl'"],
    }
    assert cuda_packages_beyond_torch(cpu) == {"nvidia-nccl-cu13", "triton"}
    assert cuda_packages_beyond_torch(cuda) == set()
