"""``python -m benchmarks``: every benchmark, one after the other, into a folder; called again, it goes on.

    python -m benchmarks --list             what there is, and how long it took where it was published
    python -m benchmarks --short            a look at each: some minutes (``make bench``)
    python -m benchmarks --publish          all of it, then pages and README from it: hours (``make bench-full``)
    python -m benchmarks --part edge        one of them

What ended well is not measured again unless ``--again`` says so; what was interrupted starts over, or goes on where
it can (comparison, planner). A part that fails stops none of the others. ``--publish`` copies what ended well into
benchmarks/results, and has pages and README written from that.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.machine import children_cpu_seconds, commit
from benchmarks.suite import JOURNAL, OUT, PAGES, PARTS, Part

_ROOT = Path(__file__).parents[1]
_RESULTS = _ROOT / "benchmarks" / "results"
_SECONDS_PER_MINUTE = 60.0

Record = dict[str, Any]


def main() -> int:
    """Run what is asked for and not done; exit code 1 if anything failed, 130 after Ctrl-C."""
    parser = _parser()
    options = parser.parse_args()
    if options.short and options.publish:
        parser.error("--publish: a look in short is nothing to publish")
    parts = [part for part in PARTS if options.part is None or part.name in options.part]
    if options.short:
        parts = [part for part in parts if part.short]
    if options.list:
        print(_listing(parts))
        return 0
    output = options.output or _ROOT / "build" / ("bench" if options.short else "bench-full")
    output.mkdir(parents=True, exist_ok=True)
    failed = run_parts(parts, output, is_short=options.short, is_again=options.again)
    if failed is None:
        print(f"stopped; the same command goes on. Results: {output}", file=sys.stderr)
        return 130
    if options.publish:
        publish([part for part in parts if part.name not in failed], output)
    if failed:
        print(f"failed: {', '.join(failed)}. The same command tries them again; results: {output}", file=sys.stderr)
    print(output)
    return int(bool(failed))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [part.name for part in PARTS]
    parser.add_argument("--part", action="append", choices=names, metavar="NAME", help="repeat it; default: all")
    parser.add_argument("--short", action="store_true", help="a look at each; nothing is downloaded")
    parser.add_argument("--again", action="store_true", help="measure what has ended well again, too")
    parser.add_argument("--publish", action="store_true", help="afterwards renew benchmarks/results, pages and README")
    parser.add_argument("--list", action="store_true", help="only say what there is")
    parser.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="default: build/bench-full, or build/bench")
    return parser


def run_parts(parts: Sequence[Part], output: Path, *, is_short: bool, is_again: bool) -> list[str] | None:
    """Run them, and note each in the journal of the folder.

    Args:
        parts: What is to be measured.
        output: Where results go.
        is_short: A look at each.
        is_again: Also what the journal says has ended well.

    Returns:
        Names of those that failed, or None after Ctrl-C.
    """
    done = set() if is_again else _done(output, is_short=is_short)
    todo = [part for part in parts if part.name not in done]
    if len(todo) < len(parts):
        _say(f"kept: {', '.join(part.name for part in parts if part.name in done)} (--again measures it anew)")
    failed: list[str] = []
    for index, part in enumerate(todo):
        left = "" if is_short else _time_left(todo[index:])
        _say(f"part {index + 1} of {len(todo)}: {part.name}, {part.measures}{left}")
        if is_again:
            _remove(part, output)
        record = _run_part(part, output, is_short=is_short)
        if record is None:
            return None
        with (output / JOURNAL).open("a", encoding="utf-8") as journal:
            print(json.dumps(record), file=journal)
        if record["exit_code"]:
            failed.append(part.name)
        _say(f"part {index + 1} of {len(todo)}: {part.name} took {_minutes(record['seconds'])}")
    return failed


def _run_part(part: Part, output: Path, *, is_short: bool) -> Record | None:
    """Its line for the journal; None if somebody pressed Ctrl-C."""
    began = time.perf_counter()
    cpu_began = children_cpu_seconds()
    record: Record = {
        "part": part.name,
        "is_short": is_short,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "load_average_at_start": [round(load, 2) for load in os.getloadavg()],
    }
    exit_code = 0
    for command in part.short if is_short else part.commands:
        arguments = [argument.replace(OUT, str(output)) for argument in command]
        try:
            exit_code = exit_code or subprocess.run([sys.executable, *arguments], cwd=_ROOT, check=False).returncode
        except KeyboardInterrupt:
            return None
        if exit_code in (130, -signal.SIGINT):
            return None
    seconds, cpu_seconds = time.perf_counter() - began, children_cpu_seconds() - cpu_began
    return {**record, "exit_code": exit_code, "seconds": round(seconds, 1), "cpu_seconds": round(cpu_seconds, 1)}


def publish(parts: Sequence[Part], output: Path) -> None:
    """Copy what parts left in a folder into benchmarks/results, and write pages and README from that.

    Raises:
        CalledProcessError: A page could not be written.
    """
    measured = (record for record in _read_journal(output) if record["exit_code"] == 0 and not record["is_short"])
    journal = {record["part"]: record for record in (*_read_journal(_RESULTS), *measured)}
    for part in parts:
        for file in part.files:
            if (output / file).is_file():
                _copy(output / file, _RESULTS / file, is_added_to=part.is_added_to)
    (_RESULTS / JOURNAL).write_text("".join(json.dumps(record) + "\n" for record in journal.values()), encoding="utf-8")
    for page in PAGES:
        subprocess.run([sys.executable, *page], cwd=_ROOT, check=True)
    _say(f"published: {', '.join(part.name for part in parts)}; git diff shows what has changed")


def _copy(source: Path, target: Path, *, is_added_to: bool) -> None:
    if not is_added_to or not target.is_file():
        shutil.copyfile(source, target)
        return
    rows = source.read_text(encoding="utf-8")
    if not target.read_text(encoding="utf-8").endswith(rows):  # published before
        with target.open("a", encoding="utf-8") as results:
            results.write(rows)


def _remove(part: Part, output: Path) -> None:
    for file in part.files:
        (output / file).unlink(missing_ok=True)


def _done(output: Path, *, is_short: bool) -> set[str]:
    """What ended well the last time that it was measured."""
    is_well = {
        record["part"]: record["exit_code"] == 0 for record in _read_journal(output) if record["is_short"] == is_short
    }
    return {name for name, well in is_well.items() if well}


def _read_journal(folder: Path) -> list[Record]:
    path = folder / JOURNAL
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [json.loads(line) for line in lines]


def _listing(parts: Sequence[Part]) -> str:
    published = {record["part"]: record for record in _read_journal(_RESULTS)}
    lines = []
    for part in parts:
        record = published.get(part.name)
        took = "" if record is None else f"{_minutes(record['seconds'])} on {record['started'][:10]}"
        lines.append(f"{part.name:16} {took:22} {part.measures}")
    return "\n".join(lines)


def _time_left(parts: Sequence[Part]) -> str:
    """How long these took where they were published; nothing where one of them was not."""
    seconds_by_part = {record["part"]: record["seconds"] for record in _read_journal(_RESULTS)}
    if not all(part.name in seconds_by_part for part in parts):
        return ""
    return f" (all that is left took {_minutes(sum(seconds_by_part[part.name] for part in parts))} when published)"


def _minutes(seconds: float) -> str:
    return f"{seconds / _SECONDS_PER_MINUTE:.1f} min"


def _say(line: str) -> None:
    print(f"== {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
