"""The code of docs/report.md runs as it stands there, and its numbers are those of the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from lowtide.reports import page_columns
from lowtide.reports.files import ENDINGS

PAGE = (Path(__file__).parents[2] / "docs" / "report.md").read_text(encoding="utf-8")


def test_the_page_runs(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"plan.perfetto.json", "dtr.pickle"}


def test_every_ending_is_told() -> None:
    told = re.findall(r"`(\.[a-z.]+)`", PAGE.split("| ending |")[1].split("##")[0])
    assert tuple(told) == ENDINGS


def test_limits_are_those_of_the_code() -> None:
    text = PAGE.split("## Large plans")[1]
    for limit in (page_columns._MOST_POINTS, page_columns._MOST_ROWS, page_columns._MOST_BLOCKS):
        assert f"{limit:,} " in text
