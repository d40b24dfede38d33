"""From what was measured in a folder to benchmarks/results, the pages and README."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.journal import Journal, missing_files
from benchmarks.suite import PAGES, Part

__all__ = ["publish"]

_ROOT = Path(__file__).parents[1]


def publish(parts: Sequence[Part], output: Path, results: Path) -> list[str]:
    """Copy what parts left in a folder into the results, note when it was measured, and write the pages from that.

    Args:
        parts: Those that ended well.
        output: Where they were measured.
        results: Where what is published lies.

    Returns:
        Names of parts that are not published, since a file of theirs is not there.

    Raises:
        CalledProcessError: A page could not be written.
    """
    measured = Journal(output)
    published = {record["part"]: record for record in Journal(results).records()}
    left_out = []
    for part in parts:
        record = measured.last(part)
        if record is None or missing_files(part, output):
            left_out.append(part.name)
            continue
        for file in part.files:
            _copy(output / part.name / file, results / file, is_added_to=part.is_added_to)
        published[part.name] = record
    text = "".join(json.dumps(record) + "\n" for record in published.values())
    Journal(results).path.write_text(text, encoding="utf-8")
    for page in PAGES:
        subprocess.run([sys.executable, *page], cwd=_ROOT, check=True)
    return left_out


def _copy(source: Path, target: Path, *, is_added_to: bool) -> None:
    if not is_added_to or not target.is_file():
        shutil.copyfile(source, target)
        return
    rows, before = source.read_text(encoding="utf-8"), target.read_text(encoding="utf-8")
    if not before.endswith(rows):  # published before
        with target.open("a", encoding="utf-8") as published:
            published.write(rows if before.endswith("\n") or not before else f"\n{rows}")
