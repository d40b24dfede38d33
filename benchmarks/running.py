"""One part, measured: its commands one after the other, what they took, and what happens on Ctrl-C."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.journal import INTERRUPTED, Journal, Record
from benchmarks.machine import children_cpu_seconds, describe_run
from benchmarks.suite import OUT, Part

__all__ = ["Stopped", "run_part"]

_ROOT = Path(__file__).parents[1]
_PACKAGES = ("lowtide", "torch", "transformers", "numpy")
_SECONDS_TO_END = 30.0  # after Ctrl-C


class Stopped(Exception):
    """Somebody pressed Ctrl-C, or a signal like it came."""


def run_part(part: Part, output: Path, journal: Journal, *, is_short: bool) -> Record:
    """Measure a part, and note in the journal that it began and how it ended.

    Args:
        part: What to measure.
        output: Its results go into a folder of its name there, which is emptied first unless the part goes on in it.
        journal: Of that folder.
        is_short: A look only.

    Returns:
        The journal's line of its end.

    Raises:
        Stopped: Noted in the journal, too.
    """
    folder = output / part.name
    goes_on = part.goes_on and journal.has_begun(part, is_short=is_short)
    earlier = journal.seconds_interrupted(part) if goes_on else (0.0, 0.0)
    if not goes_on:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    run = {**describe_run("part", packages=_PACKAGES), "part": part.name, "is_short": is_short}
    journal.append(run)
    began, cpu_began = time.perf_counter(), children_cpu_seconds()
    exit_code = 0
    for command in part.short if is_short else part.commands:
        exit_code = exit_code or _run_command([argument.replace(OUT, str(folder)) for argument in command])
    record = {
        **run,
        "exit_code": exit_code,
        "seconds": round(earlier[0] + time.perf_counter() - began, 1),
        "cpu_seconds": round(earlier[1] + children_cpu_seconds() - cpu_began, 1),
    }
    journal.append(record)
    if exit_code == INTERRUPTED:
        raise Stopped
    return record


def _run_command(arguments: list[str]) -> int:
    """Its exit code; 130 where it, or this process, was interrupted.

    It gets a session of its own, so that Ctrl-C reaches this process only, which passes it on and waits.
    """
    process = subprocess.Popen([sys.executable, *arguments], cwd=_ROOT, start_new_session=True)
    try:
        code = process.wait()
    except KeyboardInterrupt:
        _end(process)
        return INTERRUPTED
    return INTERRUPTED if code in (INTERRUPTED, -signal.SIGINT) else code


def _end(process: subprocess.Popen[bytes]) -> None:
    for number, seconds in ((signal.SIGINT, _SECONDS_TO_END), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:  # nobody of it is left
            break
        try:
            process.wait(seconds)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            continue
