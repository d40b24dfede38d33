"""``python -m benchmarks.planner``: planners side by side, a JSON line per cell; call it again to go on.

    python -m benchmarks.planner --short                     generated graphs, about a minute
    python -m benchmarks.planner --instances DIR             everything but published instances: hours
    python -m benchmarks.planner --published DIR             the Moccasin paper's experiment on node-link files
    python -m benchmarks.planner --part published            the same on graphs made by the recipe of its random ones
    python -m benchmarks.planner.report                      docs/benchmarks.md from what was measured

Files of DIR that are not there are left out. Options narrow the choice; ``--list`` shows what is left.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.planner.cells import Cell, load_instance
from benchmarks.planner.parts import (
    CAPTURED,
    CAPTURED_MODELS,
    ORDER_FREE,
    PARTS,
    PUBLISHED,
    PUBLISHED_STAND_INS,
    Choice,
    Folders,
)
from benchmarks.planner.report import text_report
from benchmarks.planner.results import read_results
from benchmarks.planner.running import run_cells
from lowtide.importers.generate import GENERATE_PREFIX
from lowtide.referee import baseline, largest_working_set

RESULTS = Path(__file__).parents[1] / "results" / "planner.jsonl"
_RAW = Path(__file__).parents[1] / "results" / "raw" / "planner"
_MOST_WORKING_SET_PERCENT = 55  # of the peak, for a generated graph to say anything about the free order


def main() -> int:
    """Measure what is asked for and not measured yet; print what the file then says."""
    options = _parser().parse_args()
    folders = Folders(instances=options.instances, captured=options.captured, published=options.published)
    cells = named(chosen_cells(options), options.only)
    if not cells:
        print(f"--only {options.only!r}: no cell has that in its name; --list shows them", file=sys.stderr)
        return 2
    if not options.list and any(cell.part == CAPTURED for cell in cells):
        capture_missing({cell.instance for cell in cells if cell.part == CAPTURED}, options.captured, options.costs)
    cells = list(possible_cells(cells, folders, are_captured=options.list))
    if options.list:
        print(
            "\n".join(
                f"{cell.part} {cell.instance} {cell.percent} % {cell.contender} {cell.seconds:.0f} s" for cell in cells
            )
        )
        return 0
    run_cells(
        cells,
        options.output,
        folders,
        most_cpu_seconds=60 * options.cpu_minutes,
        log=lambda line: print(line, file=sys.stderr, flush=True),
    )
    print(text_report(read_results(options.output)))
    print(options.output)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.planner", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--instances", type=Path, metavar="DIR", help="graph files, layered-250.json and so on")
    parser.add_argument("--published", type=Path, metavar="DIR", help="published instances, node-link JSON")
    parser.add_argument("--part", action="append", choices=tuple(PARTS), help="repeat it; default: all that can be")
    parser.add_argument("--short", action="store_true", help="small generated graphs, two seconds, two seeds")
    parser.add_argument("--only", metavar="TEXT", default="", help="only this instance; those whose name holds it")
    parser.add_argument("--planner", action="append", default=[], metavar="NAME", help="repeat it; default: the part's")
    parser.add_argument("--seconds", action="append", default=[], type=float, metavar="S", help="limits; repeat it")
    parser.add_argument("--percent", action="append", default=[], type=int, metavar="P", help="budgets; repeat it")
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="of search (default 5)")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="of each planner (default 2)")
    parser.add_argument("--cpu-minutes", type=float, default=float("inf"), metavar="M", help="stop after so many")
    parser.add_argument("--captured", type=Path, default=_RAW, metavar="DIR", help=f"captured graphs: {_RAW}")
    parser.add_argument("--costs", choices=("profiled", "estimated"), default="profiled", help="of captured graphs")
    parser.add_argument("--list", action="store_true", help="only say what would be measured")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, metavar="FILE", help=f"default: {RESULTS}")
    return parser


def chosen_cells(options: argparse.Namespace) -> Iterator[Cell]:
    """Every cell of the parts that were asked for; with a published experiment and no part named, only that."""
    published = PUBLISHED_STAND_INS
    if options.published:
        published = tuple(sorted(path.stem for path in options.published.glob("*.json")))
    choice = Choice(
        planners=options.planner,
        seconds=options.seconds,
        percents=options.percent,
        num_seeds=min(options.seeds, 2) if options.short else options.seeds,
        threads=options.threads,
        is_short=options.short,
        published=published,
    )
    parts = options.part or ([PUBLISHED] if options.published else [name for name in PARTS if name != PUBLISHED])
    for part in parts:
        yield from PARTS[part](choice)


def named(cells: Iterable[Cell], text: str) -> list[Cell]:
    """The cells of the instance of that name, or else of those whose name holds the text."""
    holding = [cell for cell in cells if text in cell.instance]
    return [cell for cell in holding if cell.instance == text] or holding


def possible_cells(cells: list[Cell], folders: Folders, *, are_captured: bool) -> Iterator[Cell]:
    """Those whose graph is there; a generated one is left out where its working set leaves planners nothing to do."""
    is_possible: dict[tuple[str, str], bool] = {}
    for cell in cells:
        key = (cell.part, cell.instance)
        if key not in is_possible:
            is_possible[key] = (are_captured and cell.part == CAPTURED) or _is_possible(cell, folders)
        if is_possible[key]:
            yield cell


def _is_possible(cell: Cell, folders: Folders) -> bool:
    if cell.part == ORDER_FREE:
        graph = load_instance(cell.instance, None)
        assert graph is not None
        least_bytes, peak_bytes = largest_working_set(graph).size_bytes, baseline(graph).peak_bytes
        return 100 * least_bytes < _MOST_WORKING_SET_PERCENT * peak_bytes
    folder = folders.of(cell.part)
    is_file = folder is not None and (folder / f"{cell.instance}.json").is_file()
    return cell.instance.startswith(GENERATE_PREFIX) or is_file


def capture_missing(names: set[str], folder: Path, costs: str) -> None:
    """Capture the models whose graphs are not in the folder; what cannot be captured is said and left out."""
    for name in sorted(names):
        path = folder / f"{name}.json"
        if path.is_file():
            continue
        command = [sys.executable, "-m", "benchmarks.planner.capturing", CAPTURED_MODELS[name], str(path)]
        done = subprocess.run(
            [*command, "--costs", costs], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False
        )
        said = done.stdout if done.returncode == 0 else (done.stderr.strip().splitlines() or ["failed"])[-1]
        print(f"captured {name}: {said.strip()}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
