"""All cells, one process each, written down as they end; what is measured already is not measured again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.machine import children_cpu_seconds, describe_run
from benchmarks.planner.cells import BOUND, Cell, Outcome, outcome_from_dict
from benchmarks.planner.parts import Folders
from benchmarks.planner.results import VERSION, read_results

_ROOT = Path(__file__).parents[2]
_PACKAGES = ("lowtide", "numpy", "highspy", "ortools", "torch", "transformers")
_KILL_FACTOR, _KILL_SECONDS = 4.0, 60.0  # beyond its limit, before a planner is ended

Log = Callable[[str], None]


def run_cells(
    cells: Iterable[Cell],
    path: Path,
    folders: Folders,
    *,
    most_cpu_seconds: float = float("inf"),
    log: Log = lambda _: None,
    measure: Callable[[Cell, Path | None], Outcome] | None = None,
) -> int:
    """Measure what the file does not hold yet.

    A cell is passed over, too, where the same with a shorter limit was settled.

    Args:
        cells: What to measure, in this order.
        path: File of results, appended to.
        folders: Where graph files are.
        most_cpu_seconds: Stop once the cells of this call have taken that much, processes' starts included.
        log: Told of every cell.
        measure: Instead of a process of its own.

    Returns:
        How many cells were measured.
    """
    drop_unfinished_line(path)
    known = read_results(path).outcome_by_cell
    settled = {_without_seconds(cell) for cell, outcome in known.items() if outcome.is_settled}
    measure = measure or measure_in_process
    started_cpu_seconds = children_cpu_seconds()
    num_measured = 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        for cell in cells:
            if cell in known or _without_seconds(cell) in settled:
                continue
            if children_cpu_seconds() - started_cpu_seconds >= most_cpu_seconds:
                log(f"{most_cpu_seconds:.0f} CPU seconds are spent: call again to go on")
                break
            if num_measured == 0:
                _append(file, describe_run("planner", packages=_PACKAGES, version=VERSION))
            outcome = measure(cell, folders.of(cell.part))
            _append(file, {"record": "cell", "cell": cell.as_dict(), "outcome": asdict(outcome)})
            known[cell] = outcome
            num_measured += 1
            if outcome.is_settled:
                settled.add(_without_seconds(cell))
            log(describe_cell(cell, outcome))
    return num_measured


def drop_unfinished_line(path: Path) -> None:
    """Take away what was being written when an earlier call was ended."""
    content = path.read_bytes() if path.is_file() else b""
    if not content.endswith(b"\n") and content:
        path.write_bytes(content[: content.rfind(b"\n") + 1])


def measure_in_process(cell: Cell, folder: Path | None) -> Outcome:
    """Measure a cell in a process of its own, ended where it runs far beyond its limit."""
    request = json.dumps({"cell": cell.as_dict(), "folder": None if folder is None else str(folder.resolve())})
    try:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.planner.child"],
            cwd=_ROOT,
            input=request,
            capture_output=True,
            text=True,
            check=False,
            timeout=_KILL_FACTOR * cell.seconds + _KILL_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        return Outcome(status="killed", message=f"still running after {error.timeout:.0f} s")
    if done.returncode:
        return Outcome(status="failed", message=(done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1])
    return outcome_from_dict(json.loads(done.stdout.splitlines()[-1]))


def describe_cell(cell: Cell, outcome: Outcome) -> str:
    """One line for whoever waits."""
    tdi = "no plan" if outcome.tdi_percent is None else f"TDI {outcome.tdi_percent:.3f} %"
    bound = "no bound" if outcome.bound_percent is None else f"bound {outcome.bound_percent:.3f} %"
    said = bound if cell.contender == BOUND else f"{tdi}, {bound}"
    return (
        f"{cell.part} {cell.instance} {cell.percent} % {cell.contender} {cell.seconds:.0f} s seed {cell.seed}: "
        f"{outcome.status}, {said}, {outcome.cpu_seconds:.1f} s CPU, {outcome.rss_peak_bytes / 2**20:.0f} MiB"
    )


def _without_seconds(cell: Cell) -> Cell:
    return replace(cell, seconds=0.0)


def _append(file: Any, record: dict[str, Any]) -> None:
    file.write(json.dumps(record) + "\n")
    file.flush()
