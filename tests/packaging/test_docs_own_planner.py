"""The page on planners of one's own tells the truth: its files, commands and laws work as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "own-planner.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Every Python block in the file that its first line names."""
    names = []
    for block in blocks("python"):
        (name,) = re.findall(r"\A# (\w+\.py)\n", block)
        (tmp_path / name).write_text(block, encoding="utf-8")
        names.append(name)
    assert names == ["idle_planner.py", "beside_others.py", "test_idle_planner.py"]
    return tmp_path


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": ""}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=280
    )


@pytest.mark.slow
def test_the_commands_find_the_planner_and_accept_its_plan(folder: Path) -> None:
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    assert [line.split()[1] for line in lines] == ["plan", "verify"]
    for line in lines:
        done = run(["bash", "-c", line], folder)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"


@pytest.mark.slow
def test_the_planner_stands_beside_others(folder: Path) -> None:
    done = run([sys.executable, "beside_others.py"], folder)
    assert done.returncode == 0, done.stderr
    names, statuses, increases = zip(*(line.split()[:3] for line in done.stdout.splitlines()), strict=True)
    assert names == ("idle", "greedy", "search")
    assert set(statuses) <= {"feasible", "optimal"}
    assert float(increases[0]) >= float(increases[2]) > 0


@pytest.mark.slow
def test_the_laws_hold(folder: Path) -> None:
    done = run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_idle_planner.py"], folder)
    assert done.returncode == 0, done.stdout
    assert re.search(r"\b1\d\d passed", done.stdout)


@pytest.mark.slow
def test_the_laws_notice_a_planner_that_ignores_the_budget(folder: Path) -> None:
    planner = folder / "idle_planner.py"
    text = planner.read_text(encoding="utf-8")
    assert text.count("while overflow") == 1
    spoilt = text.replace("while overflow", "while False").replace("Status.TIMEOUT if", "Status.FEASIBLE if")
    planner.write_text(spoilt, encoding="utf-8")
    done = run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_idle_planner.py"], folder)
    assert done.returncode == 1, done.stdout


def test_the_entry_point_is_declared_in_the_group_that_the_table_searches() -> None:
    (block,) = blocks("toml")
    declared = tomllib.loads(block)["project"]["entry-points"]
    assert declared == {"lowtide.planners": {"idle": "idle_planner:IdlePlanner"}}
