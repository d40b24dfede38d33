"""README tells the truth: its Python and its commands run as they stand, its tables are what the program says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from lowtide.cli.doctor import SUPPORT_HEADER, SUPPORT_TABLE

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONSTRAINTS = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
TORCH = next(line for line in CONSTRAINTS if line.startswith("torch=="))
SENTENCE = (
    "lowtide trains and runs neural networks within a memory budget given in bytes: it recomputes tensors instead of "
    "keeping them, and the result is the same to the bit."
)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def shell_lines() -> list[str]:
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    return [re.sub(r"\s+#.*$", "", line) for line in lines if line.strip()]


def run(command: list[str], *, folder: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, "LOWTIDE_CACHE": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )


def test_first_screen() -> None:
    assert SENTENCE in README.replace("\n", " ")
    assert shell_lines()[:2] == ["make demo", "make test"]
    assert README.index("make demo") < README.index("```python")


@pytest.mark.slow
def test_python_runs_as_it_stands(tmp_path: Path) -> None:
    assert len(blocks("python")) == 4
    (tmp_path / "readme.py").write_text("\n".join(blocks("python")), encoding="utf-8")
    done = run([sys.executable, "readme.py"], folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "% longer" in done.stdout


@pytest.mark.slow
def test_lowtide_commands_run_as_they_stand(tmp_path: Path) -> None:
    commands = [line for line in shell_lines() if line.startswith("lowtide ")]
    assert {command.split()[1] for command in commands} == {
        "capture",
        "plan",
        "verify",
        "simulate",
        "compare",
        "doctor",
    }
    for command in commands:
        done = run(["bash", "-c", command], folder=tmp_path)
        assert done.returncode == 0, f"{command}: {done.stderr}"


def test_other_commands_name_what_exists() -> None:
    """The rest is too slow to run here (make test runs this test, the wheel has tests of its own): it is right."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    lines = [part.strip() for line in shell_lines() if not line.startswith("lowtide ") for part in line.split("&&")]
    for words in map(shlex.split, lines):
        if words[0] == "make":
            assert set(words[1:]) <= targets
        else:
            assert words[:2] == ["pip", "install"]
            assert words[2:] in (
                ["-c", "constraints.txt", ".[torch]"],
                [TORCH, "lowtide[torch] @ git+file://localhost/path/to/lowtide"],
                [TORCH, "dist/lowtide-*.whl"],
            )
            assert "\ntorch = [" in project


def test_links_lead_somewhere() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / link).exists(), link


def test_support_table_is_that_of_doctor() -> None:
    rows = [(row.device, row.system, row.torch, row.compile, row.budget) for row in SUPPORT_TABLE]
    table = "".join(f"| {' | '.join(cells)} |\n" for cells in (SUPPORT_HEADER, ("---",) * 5, *rows))
    assert f"<!-- support: begin -->\n{table}<!-- support: end -->\n" in README


@pytest.mark.parametrize("report", ["benchmarks.training.report", "benchmarks.readme"])
def test_measured_figures_are_those_of_the_result_files(report: str) -> None:
    done = run([sys.executable, "-m", report, "--check"], folder=ROOT)
    assert done.returncode == 0, done.stderr


def test_picture_is_small() -> None:
    assert (ROOT / "docs" / "images" / "memory.png").stat().st_size < 100_000


def test_nobody_is_told_to_install_lowtide_from_an_index() -> None:
    """On PyPI there is no lowtide: its bare name would fail, or fetch a stranger's package."""
    bare = re.compile(r"""pip install (?:[\w.=-]+ )*["']?lowtide\b(?!\S* @)""")
    assert bare.search("pip install torch==2.13.0 'lowtide[report]'")
    assert not bare.search("pip install torch==2.13.0 'lowtide[torch] @ git+file://localhost/path/to/lowtide'")
    told = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.py")]
    found = [path for path in (*told, *(ROOT / "src").rglob("*.py")) if bare.search(path.read_text(encoding="utf-8"))]
    assert found == []
