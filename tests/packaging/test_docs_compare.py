"""The code of docs/compare.md runs as it stands there, and what it names exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lowtide.cli import main
from lowtide.comparison.peers import PEERS
from lowtide.comparison.rows import Outcome

pytest.importorskip("bokeh", reason="the page draws a report: pip install -c constraints.txt '.[report]'")

PAGE = (Path(__file__).parents[2] / "docs" / "compare.md").read_text(encoding="utf-8")


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": path}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=280
    )


@pytest.mark.slow
def test_the_command_runs(tmp_path: Path) -> None:
    (block,) = re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL)
    done = run(["bash", "-c", block], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "●" in done.stdout
    assert (tmp_path / "compared.html").is_file()


def test_the_python_runs(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    done = run([sys.executable, "-c", block], tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 3


def test_options_peers_and_statuses_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--help"]) == 0
    help_text = capsys.readouterr().out
    options = set(re.findall(r"--[a-z][a-z-]+", PAGE))
    assert len(options) >= 9
    assert not {option for option in options if option not in help_text}
    assert all(f"`{peer}`" in PAGE for peer in PEERS)
    told = {str(outcome) for outcome in Outcome if f"`{outcome}`" in PAGE}
    assert told == {str(outcome) for outcome in Outcome} - {"proven"}
