"""The import rule that pyproject.toml configures for torch and the solvers really bites."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

CONFIG = """
[tool.importlinter]
root_packages = ["sample"]
include_external_packages = true
exclude_type_checking_imports = true
contract_types = ["confined: tools.import_rules.ConfinedContract"]

[[tool.importlinter.contracts]]
name = "torch at the edges"
type = "confined"
confined_modules = ["torch"]
allowed_importers = ["sample.emit.torch_*"]
"""


def lint(folder: Path, sources: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Write a package of these sources and judge it by the rule above."""
    for name, text in sources.items():
        path = folder / "sample" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(text, encoding="utf-8")
    (folder / "sample" / "__init__.py").touch()
    (folder / "pyproject.toml").write_text(CONFIG, encoding="utf-8")
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("emit/torch_backend.py", "import torch\n"),
        ("planners/greedy.py", "import numpy\n"),
        ("planners/greedy.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\n"),
    ],
    ids=["at the edge", "another package", "for annotations only"],
)
def test_allowed(tmp_path: Path, name: str, text: str) -> None:
    done = lint(tmp_path, {name: text})
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "text", "line_number"),
    [
        ("planners/greedy.py", "import torch\n", 1),
        ("planners/greedy.py", "def run():\n    from torch import nn\n", 2),
        ("emit/plain.py", "import torch.nn\n", 1),
    ],
    ids=["top level", "inside a function", "neighbour of an edge"],
)
def test_refused_with_module_and_line(tmp_path: Path, name: str, text: str, line_number: int) -> None:
    done = lint(tmp_path, {name: text})
    module = "sample." + name.removesuffix(".py").replace("/", ".")
    assert done.returncode == 1
    assert f"{module} imports torch (line {line_number})" in done.stdout
    assert "Allowed: sample.emit.torch_*" in done.stdout
