"""The code of docs/traces.md runs as it stands there, from top to bottom."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the page records torch programs")

PAGE = Path(__file__).parents[2] / "docs" / "traces.md"


def test_the_page_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) == 4
    checks = "assert len(dtr_trace.events) == 2\nassert trace_of_graph(graph_of_trace(again)) == again\n"
    done = subprocess.run(
        [sys.executable, "-c", "\n".join([*blocks, checks])], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "trace.jsonl").is_file()
