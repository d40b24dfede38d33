"""What `import lowtide` costs: neither torch nor a solver."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY_PACKAGES = ("torch", "ortools", "highspy", "transformers", "matplotlib", "pandas", "scipy")


def modules_after(statement: str) -> set[str]:
    """Run a statement in a fresh interpreter and return the top-level packages that it loaded."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_import_loads_no_heavy_package() -> None:
    loaded = modules_after("import lowtide")
    assert "lowtide" in loaded
    assert not loaded.intersection(HEAVY_PACKAGES)


def test_modules_after_sees_a_heavy_package() -> None:
    """The test above can fail: its probe reports what is loaded."""
    assert "numpy" in modules_after("import numpy")


def test_import_prints_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "import lowtide"], capture_output=True, text=True, check=True, timeout=120
    )
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize("package", ["torch", "ortools", "highspy"])
def test_import_works_without(package: str) -> None:
    """A user without the extras can import lowtide: every public name resolves at import or asks for the extra."""
    code = f"import sys; sys.modules[{package!r}] = None; import lowtide; print(lowtide.__version__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
