"""``python -m benchmarks.planner --instances DIR``: planners side by side, one JSON line per run and per median.

Without ``--instances`` only generated graphs are planned. ``--short`` takes half a minute.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.planner.cells import (
    FULL,
    SHORT,
    Cell,
    Median,
    as_record,
    bound_percent,
    is_hopeless,
    load_instance,
    measure,
    median_of,
    table,
)
from lowtide.errors import InputError, MissingDependency
from lowtide.ir import Graph

RESULTS = Path(__file__).parents[1] / "results" / "planner.jsonl"


def main() -> int:
    """Measure every cell with every planner."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planner", description=__doc__)
    parser.add_argument(
        "--instances", type=Path, metavar="DIR", help="folder of graph files, layered-250.json and so on"
    )
    parser.add_argument("--short", action="store_true", help="three small generated graphs, two seeds")
    parser.add_argument("--only", metavar="TEXT", default="", help="only instances whose name holds this")
    parser.add_argument("--planner", action="append", metavar="NAME", help="repeat it; default: search, greedy, sqrt")
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="seeds of each planner (default 5)")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="threads of each planner (default 2)")
    parser.add_argument("--bound-seconds", type=float, default=20.0, metavar="S", help="for the bound; 0: none")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, metavar="FILE", help=f"default: {RESULTS}")
    options = parser.parse_args()
    cells = SHORT if options.short else FULL
    planners = options.planner or ["search", "greedy", "sqrt"]
    num_seeds = min(options.seeds, 2) if options.short else options.seeds
    medians: list[Median] = []
    options.output.parent.mkdir(parents=True, exist_ok=True)
    with options.output.open("w", encoding="utf-8") as results:
        print(json.dumps(describe_run(options)), file=results)
        for cell in cells:
            graph = load_instance(cell.instance, options.instances) if options.only in cell.instance else None
            if graph is None or is_hopeless(graph, cell):
                continue
            bound = bound_percent(graph, cell, seconds=min(options.bound_seconds, 2.0 if options.short else 1e9))
            for planner in planners:
                medians += run_cell(graph, cell, planner, bound, num_seeds, options.threads, results.write)
                results.flush()
    print(table(medians))
    print(options.output)
    return 0


def run_cell(
    graph: Graph,
    cell: Cell,
    planner: str,
    bound: float | None,
    num_seeds: int,
    threads: int,
    write: object,
) -> list[Median]:
    """All seeds of one planner on one cell, written as they come; the median, or nothing where it refuses."""
    assert callable(write)
    runs = []
    for seed in range(num_seeds):
        try:
            runs.append(measure(graph, cell, planner=planner, seed=seed, threads=threads))
        except (InputError, MissingDependency) as error:
            print(f"{cell.instance} {cell.percent} % {planner}: {error}", file=sys.stderr)
            return []
        write(json.dumps(as_record("run", runs[-1])) + "\n")
    found = median_of(runs, bound)
    write(json.dumps(as_record("median", found)) + "\n")
    print(table([found]).splitlines()[1], file=sys.stderr)
    return [found]


def describe_run(options: argparse.Namespace) -> dict[str, object]:
    """What one must know to run it again."""
    return {
        "record": "run-of-all",
        "format": "lowtide.benchmark.planner",
        "version": 1,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "num_cores": len(os.sched_getaffinity(0)),
        "load_average_at_start": [round(load, 2) for load in os.getloadavg()],
        "python": platform.python_version(),
        "threads": options.threads,
        "seeds": options.seeds,
    }


if __name__ == "__main__":
    raise SystemExit(main())
