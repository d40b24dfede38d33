"""``python -m benchmarks.parts_report``: the table of docs/reproducing.md, what there is and how long it took.

With ``--check`` nothing is written; exit code 1 if the page does not say what benchmarks and results do.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.journal import Journal
from benchmarks.marked import markdown_table, renew_pages, replace_marked
from benchmarks.suite import PARTS, Part

__all__ = ["main", "render_parts"]

_ROOT = Path(__file__).parents[1]
_PAGE = _ROOT / "docs" / "reproducing.md"
_RESULTS = _ROOT / "benchmarks" / "results"
_SECONDS_PER_MINUTE = 60.0

Record = Mapping[str, Any]


def main() -> int:
    """Write the table, or check it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parts_report", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if the page is not up to date")
    options = parser.parse_args()
    page = _PAGE.read_text(encoding="utf-8")
    wanted = replace_marked(page, "parts", render_parts(PARTS, Journal(_RESULTS).records()))
    return renew_pages({_PAGE: wanted}, program="benchmarks.parts_report", is_check=options.check)


def render_parts(parts: Sequence[Part], journal: Sequence[Record]) -> str:
    """What stands between the markers.

    Args:
        parts: All benchmarks.
        journal: What ``python -m benchmarks --publish`` noted of those that it published.
    """
    record_by_part = {record["part"]: record for record in journal}
    rows = [_cells(part, record_by_part.get(part.name)) for part in parts]
    header = ("part", "measures", "results", "took", "measured")
    known = [record_by_part[part.name] for part in parts if part.name in record_by_part]
    minutes = sum(record["seconds"] for record in known) / _SECONDS_PER_MINUTE
    total = f"\n{len(known)} of {len(parts)} parts, {minutes:.0f} minutes in all.\n" if known else ""
    return "\n".join([*markdown_table(header, rows), ""]) + total


def _cells(part: Part, record: Record | None) -> tuple[str, ...]:
    files = ", ".join(f"[{file}](../benchmarks/results/{file})" for file in part.files)
    told = (part.name, f"[{part.measures}]({part.page})", files)
    if record is None:
        return (*told, "not noted", "before this command was there")
    minutes, cpu_minutes = (record[name] / _SECONDS_PER_MINUTE for name in ("seconds", "cpu_seconds"))
    load = record["load_average_at_start"][0]
    return (
        *told,
        f"{minutes:.1f} min, {cpu_minutes:.1f} of CPU",
        f"{record['started'][:10]} at {record['commit']}, load {load:.1f} before",
    )


if __name__ == "__main__":
    sys.exit(main())
