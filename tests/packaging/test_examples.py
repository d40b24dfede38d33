"""Every script under examples runs as its first lines say, quickly, and what it prints to show something shows it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lowtide.units import parse_bytes

EXAMPLES = Path(__file__).parents[2] / "examples"
MOST_SECONDS = 150  # a minute is meant; other tests run beside it, and the torch shim may be compiled first
LARGE_BYTES, SMALL_BYTES = 16 * 16 * 16 * 4, 16 * 16 * 4
"""Of the tensors in edge_model.py, float32."""


def run(command: list[str], *, folder: Path) -> str:
    """What a command prints, run in an empty folder with the programs of this environment."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=MOST_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_example(name: str, folder: Path) -> str:
    return run([sys.executable, str(EXAMPLES / name)], folder=folder)


def test_each_is_short_says_how_to_run_it_and_is_tested_here() -> None:
    names = {path.name for path in EXAMPLES.glob("*.py")}
    tested = set(re.findall(r'run_example\("(\w+\.py)"', Path(__file__).read_text(encoding="utf-8")))
    assert names == tested
    for name in names:
        text = (EXAMPLES / name).read_text(encoding="utf-8")
        assert f"python examples/{name}\n" in text
        assert 20 <= len(text.splitlines()) <= 62, name


@pytest.mark.slow
def test_compile_model_is_within_its_budget_and_equal(tmp_path: Path) -> None:
    printed = run_example("compile_model.py", tmp_path)
    sizes = {name: parse_bytes(size) for name, size in re.findall(r"^(.*?)  +(\d[\d.]* \wi?B)$", printed, re.MULTILINE)}
    assert sizes["planned peak"] <= sizes["budget"] < 0.71 * sizes["plain peak"]
    (num_recomputes,) = re.findall(r"^recomputed +(\d+) of \d+ operations$", printed, re.MULTILINE)
    assert int(num_recomputes) > 0
    (equal,) = re.findall(r"^same weights +(\d+) of (\d+) tensors", printed, re.MULTILINE)
    assert equal[0] == equal[1] != "0"
    assert "same losses   yes\n" in printed


@pytest.mark.slow
def test_eager_budget_halves_what_the_loop_takes(tmp_path: Path) -> None:
    printed = run_example("eager_budget.py", tmp_path)
    figures = {
        name: int(number) for name, number in re.findall(r"^(needs|budget|took) +(\d+) bytes", printed, re.MULTILINE)
    }
    evictions = [int(number) for number in re.findall(r"bytes, (\d+) evictions$", printed, re.MULTILINE)]
    assert figures["took"] <= figures["budget"] == figures["needs"] // 2
    assert evictions[0] == 0 < evictions[1]
    assert "same losses to the bit: yes\n" in printed


@pytest.mark.slow
def test_edge_model_needs_what_one_branch_at_a_time_needs(tmp_path: Path) -> None:
    """By hand: the file holds four large tensors beside the image; a plan one, the image, and what is made so far."""
    printed = run_example("edge_model.py", tmp_path)
    arenas = re.findall(r"^(planned|measured) +(\d+) -> (\d+) bytes", printed, re.MULTILINE)
    before, after = 4 * LARGE_BYTES + SMALL_BYTES, LARGE_BYTES + 4 * SMALL_BYTES
    assert arenas == [("planned", str(before), str(after)), ("measured", str(before), str(after))]
    (outputs,) = re.findall(r"^outputs +(\d+) compared, (\d+) differ$", printed, re.MULTILINE)
    assert int(outputs[0]) > 0 == int(outputs[1])


@pytest.mark.slow
def test_compare_policies_shows_that_who_sees_ahead_recomputes_least(tmp_path: Path) -> None:
    header, *rows = run_example("compare_policies.py", tmp_path).splitlines()
    names = header.split()[2:]
    assert names == ["greedy", "search", "coop", "dtr", "lru"]
    assert len(rows) == 3
    slow_downs = []
    for row in rows:
        by_name = {
            name: float("inf" if cell == "none" else cell) for name, cell in zip(names, row.split()[2:], strict=True)
        }
        assert 1 < by_name["search"] == min(by_name.values()) < float("inf"), row
        slow_downs.append(by_name["search"])
    assert slow_downs == sorted(slow_downs), "a smaller budget costs more"


@pytest.mark.slow
def test_own_policy_is_found_by_name_and_gets_through(tmp_path: Path) -> None:
    printed = run_example("own_policy.py", tmp_path)
    pattern = r"^(\S+) +slow-down ([\d.]+), (\d+) recomputations, (\d+) evictions, completed$"
    figures = {name: tuple(numbers) for name, *numbers in re.findall(pattern, printed, re.MULTILINE)}
    assert list(figures) == ["largest-stale", "lru", "coop"]
    own = figures["largest-stale"]
    assert float(own[0]) > 1
    assert own != figures["lru"], "it decides by itself"
    (command,) = re.findall(
        r"^(lowtide simulate .*)$", (EXAMPLES / "own_policy.py").read_text(encoding="utf-8"), re.MULTILINE
    )
    told = json.loads(run(["bash", "-c", f"{command} --json"], folder=EXAMPLES))
    assert (f"{told['overhead']:.3f}", str(told["num_recomputes"]), str(told["num_evictions"])) == own
