"""Tutorials and how-to pages run as a reader runs them: files written from the page, its commands in order.

A Python block whose first line names a file becomes that file; every line of a shell block is run, from a folder that
holds nothing else.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TUTORIALS = sorted(path.name for path in (DOCS / "tutorials").glob("*.md"))


def read(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def run_page(page: str, folder: Path) -> dict[str, str]:
    """Do what the page says; a block in ``text`` is what the command before it prints.

    Returns:
        What each command printed.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": "", "HF_HUB_OFFLINE": "1"}
    printed, printed_last = {}, ""
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```$", read(page), flags=re.MULTILINE | re.DOTALL):
        if language == "text":
            assert without_times(block) == without_times(printed_last), f"{page}: what is printed, and what it says"
            continue
        if language == "python":
            (name,) = re.findall(r"\A# (\w+\.py)\n", block)
            (folder / name).write_text(block, encoding="utf-8")
            continue
        assert language == "sh", f"{page}: a block in {language} is not run"
        for line in block.splitlines():
            done = subprocess.run(
                ["bash", "-c", line],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=200,
            )
            assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
            printed[line] = done.stdout + done.stderr
            printed_last = done.stdout
    return printed


def without_times(text: str) -> list[list[str]]:
    """The words of each line but those that a clock gives."""
    lines = [line.split() for line in re.sub(r"[\d.]+(?= µ?s\b)|(?<=_us\": )[\d.]+", "#", text).splitlines()]
    if lines and lines[0] and lines[0][-1] == "µs":  # a column of them
        return [line[:-1] for line in lines]
    return lines


def test_every_tutorial_is_tested_here() -> None:
    assert TUTORIALS == ["edge.md", "research.md", "training.md"]


@pytest.mark.slow
@pytest.mark.timeout(600)  # eight processes one after the other, most of which import torch
def test_training(tmp_path: Path) -> None:
    printed = run_page("tutorials/training.md", tmp_path)
    assert re.search(r"512(\.0)? KiB", printed["lowtide plan graph.json --time-limit 5"])
    losses = re.findall(r"loss [\d.]+", printed["python train.py"])
    assert len(losses) == 3
    assert "training step planned: peak " in printed["python train.py"]
    assert re.findall(r"loss [\d.]+", printed["python train_eagerly.py"]) == losses
    assert re.search(r"[1-9]\d* evictions", printed["python train_eagerly.py"])
    without = (tmp_path / "train.py").read_text(encoding="utf-8")
    plain = "".join(line for line in without.splitlines(keepends=True) if "lowtide.compile(" not in line)
    assert plain != without
    (tmp_path / "train_plainly.py").write_text(plain, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "train_plainly.py"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=200
    )
    assert re.findall(r"loss [\d.]+", done.stdout) == losses, "the same losses without that line"


@pytest.mark.slow
def test_edge(tmp_path: Path) -> None:
    printed = run_page("tutorials/edge.md", tmp_path)
    sizes = [int(size) for size in re.findall(r"^ *(\d+) ", printed["lowtide plan model.tflite"], flags=re.MULTILINE)]
    told = [1024 * int(size) for size in re.findall(r"needs\s+(\d+) KiB", read("tutorials/edge.md"))]
    assert len(told) == 2
    assert f"arena now   {told[0]} bytes" in re.sub(r" {2,}", "   ", printed["lowtide plan model.tflite"])
    assert min(sizes) == told[1]
    assert (tmp_path / "smaller.tflite").stat().st_size > 0


@pytest.mark.slow
def test_research(tmp_path: Path) -> None:
    printed = run_page("tutorials/research.md", tmp_path)
    online, ahead, bound = map(float, re.findall(r"\+([\d.]+) %", printed["python distance.py"]))
    assert 0 < bound <= min(ahead, online)


@pytest.mark.slow
def test_own_importer(tmp_path: Path) -> None:
    printed = run_page("own-importer.md", tmp_path)
    steps = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))["steps"]
    assert steps.count({"compute": "stem"}) == 2, "the plan drops it and computes it twice"
    assert any(line.startswith("lowtide verify") for line in printed)


def run_trainer(name: str, folder: Path) -> str:
    """What a script of docs/trainers.md prints."""
    run_page("trainers.md", folder)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, name]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hugging_face.py", "lightning_run.py"])
def test_trainers_log_the_figures(name: str, tmp_path: Path) -> None:
    logged = run_trainer(name, tmp_path) + "".join(
        path.read_text(encoding="utf-8") for path in tmp_path.rglob("metrics.csv")
    )
    keys = re.findall(r"`(lowtide/training/\w+)`", read("trainers.md"))
    assert len(keys) == 3
    for key in keys:
        assert key in logged


@pytest.mark.slow
def test_lora_trains_within_its_plan(tmp_path: Path) -> None:
    (line,) = run_trainer("lora.py", tmp_path).splitlines()
    budget, plain_peak, peak = map(float, re.findall(r"([\d.]+) MiB", line))
    assert peak <= budget < plain_peak


def test_own_policy_is_that_of_the_example() -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```$", read("own-policy.md"), flags=re.MULTILINE | re.DOTALL)
    assert block in (ROOT / "examples" / "own_policy.py").read_text(encoding="utf-8")
    methods = re.findall(r"^\| `(\w+)` \|", read("own-policy.md").split("## What it may ask")[1], flags=re.MULTILINE)
    protocol = ast.parse((ROOT / "src" / "lowtide" / "policies" / "protocol.py").read_text(encoding="utf-8"))
    (facts,) = [node for node in protocol.body if isinstance(node, ast.ClassDef) and node.name == "Facts"]
    assert set(methods) == {node.name for node in facts.body if isinstance(node, ast.FunctionDef)}
