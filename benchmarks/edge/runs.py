"""What the benchmarks of edge models share: options, the record of the run, one JSON line per row, then the tables."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_run
from benchmarks.marked import markdown_table

Row = dict[str, Any]
Table = Callable[[Sequence[Row]], str]


def parser_of(program: str, description: str | None, *, cache: Path, results: Path, repeats: int) -> Any:
    """The options that every one of them has.

    Args:
        program: How it is called.
        description: What it does.
        cache: Where downloads are kept unless said otherwise.
        results: Where results go unless said otherwise.
        repeats: Inferences that are timed unless said otherwise.
    """
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--only", metavar="TEXT", default="", help="only models whose name holds this")
    parser.add_argument("--cache", type=Path, default=cache, metavar="DIR", help=f"for downloads; default: {cache}")
    parser.add_argument("--offline", action="store_true", help="only nets that are built here")
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S", help="of each search (default 10)")
    parser.add_argument(
        "--repeats", type=int, default=repeats, metavar="N", help=f"inferences that are timed (default {repeats})"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of planner and inputs")
    parser.add_argument("-o", "--output", type=Path, default=results, metavar="FILE", help=f"default: {results}")
    return parser


def write_rows(
    options: argparse.Namespace, rows: Iterable[Row], tables: Sequence[Table], *, kind: str, packages: Sequence[str]
) -> None:
    """Write every row as it comes, and the first table's line of it to stderr; in the end all tables.

    Args:
        options: As parsed.
        rows: The measurements.
        tables: Turn rows into Markdown.
        kind: Of the results, as machine.describe_run takes it.
        packages: Whose versions matter.
    """
    written: list[Row] = []
    options.output.parent.mkdir(parents=True, exist_ok=True)
    with options.output.open("w", encoding="utf-8") as results:
        print(json.dumps(_describe_run(options, kind, packages)), file=results)
        for row in rows:
            written.append(row)
            print(json.dumps(row), file=results, flush=True)
            print(tables[0]([row]).splitlines()[-1], file=sys.stderr, flush=True)
    for table in tables:
        print(table(written))
    print(options.output)


def markdown(columns: Sequence[str], texts: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table; columns that are no ``texts`` are flush right."""
    return "\n".join(markdown_table(columns, lines, right=set(columns) - set(texts)))


def kib(size_bytes: int) -> str:
    """Bytes in KiB."""
    return f"{size_bytes / 1024:.0f}"


def saved_percent(after: int, before: int) -> str:
    """How much less one size is than another."""
    return f"{round(100 * (1 - after / before), 1) + 0.0:.1f} %" if before else "0"


def _describe_run(options: argparse.Namespace, kind: str, packages: Sequence[str]) -> Row:
    run = describe_run(kind, packages=packages)
    return {**run, "seconds": options.seconds, "repeats": options.repeats, "seed": options.seed}
