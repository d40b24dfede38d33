"""``python -m benchmarks``: every benchmark, one after the other, into folders of their own; called again, it goes on.

    python -m benchmarks --list             what there is, and how long it took where it was published
    python -m benchmarks --short            a look at each: some minutes (``make bench``)
    python -m benchmarks --publish          all of it, then pages and README from it: hours (``make bench-full``)
    python -m benchmarks --part edge        one of them

What ended well is kept, unless ``--again`` says to measure it anew; what was interrupted starts over, or goes on where
it can (comparison, planner). A part that fails stops none of the others. ``--publish`` copies what ended well into
benchmarks/results, and has pages and README written from that.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.journal import Journal, Record, lock_folder
from benchmarks.publishing import publish
from benchmarks.running import Stopped, run_part
from benchmarks.suite import PARTS, Part

_ROOT = Path(__file__).parents[1]
_RESULTS = _ROOT / "benchmarks" / "results"
_SECONDS_PER_MINUTE = 60.0


def main() -> int:
    """Run what is asked for and not done; exit code 1 if anything failed, 130 after Ctrl-C."""
    parser = _parser()
    options = parser.parse_args()
    if options.short and options.publish:
        parser.error("--publish: a look in short is nothing to publish")
    parts = [part for part in PARTS if options.part is None or part.name in options.part]
    if options.list:
        print(_listing(parts))
        return 0
    if options.short:
        if longer := [part.name for part in parts if not part.short]:
            _say(f"no short look at: {', '.join(longer)}")
        parts = [part for part in parts if part.short]
    output = (options.output or _ROOT / "build" / ("bench" if options.short else "bench-full")).resolve()
    try:
        output.mkdir(parents=True, exist_ok=True)
        lock = lock_folder(output)
    except OSError as error:
        parser.error(f"-o {output}: {error.strerror}")
    with lock:
        return _run(parts, output, options)


def _run(parts: Sequence[Part], output: Path, options: argparse.Namespace) -> int:
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    try:
        failed = run_parts(parts, output, is_short=options.short, is_again=options.again)
    except Stopped:
        print(f"stopped; the same command goes on, --again apart. Results: {output}", file=sys.stderr)
        return 130
    if options.publish:
        try:
            failed += publish([part for part in parts if part.name not in failed], output, _RESULTS)
        except subprocess.CalledProcessError as error:
            print(f"a page could not be written: {' '.join(map(str, error.cmd[1:]))}", file=sys.stderr)
            return 1
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


def run_parts(parts: Sequence[Part], output: Path, *, is_short: bool, is_again: bool) -> list[str]:
    """Run them, and note each in the journal of the folder.

    Args:
        parts: What is to be measured.
        output: Where results go, those of a part into a folder of its name.
        is_short: A look at each.
        is_again: Also what the journal says has ended well.

    Returns:
        Names of those that failed.

    Raises:
        Stopped: Ctrl-C, or a signal like it.
    """
    journal = Journal(output)
    if is_again:
        for part in parts:
            journal.void(part)
    todo = [part for part in parts if not journal.is_done(part, is_short=is_short)]
    if kept := [part.name for part in parts if part not in todo]:
        _say(f"kept: {', '.join(kept)} (--again measures it anew)")
    failed: list[str] = []
    for index, part in enumerate(todo):
        left = "" if is_short else _time_left(todo[index:])
        _say(f"part {index + 1} of {len(todo)}: {part.name}, {part.measures}{left}")
        record = run_part(part, output, journal, is_short=is_short)
        if record["exit_code"]:
            failed.append(part.name)
        _say(f"part {index + 1} of {len(todo)}: {part.name} took {_minutes(record['seconds'])}")
    return failed


def _interrupt(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _listing(parts: Sequence[Part]) -> str:
    published = Journal(_RESULTS)
    lines = []
    for part in parts:
        record = published.last(part)
        took = "" if record is None else f"{_minutes(record['seconds'])} on {record['started'][:10]}"
        lines.append(f"{part.name:16} {took:22} {part.measures}")
    return "\n".join(lines)


def _time_left(parts: Sequence[Part]) -> str:
    """How long these took where they were published; nothing where one of them was not."""
    published = Journal(_RESULTS)
    records: list[Record | None] = [published.last(part) for part in parts]
    if None in records:
        return ""
    seconds = sum(record["seconds"] for record in records if record is not None)
    return f" (all that is left took {_minutes(seconds)} when published)"


def _minutes(seconds: float) -> str:
    return f"{seconds / _SECONDS_PER_MINUTE:.1f} min"


def _say(line: str) -> None:
    print(f"== {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
