"""What a file of results says: machines, and cells with their outcomes, in the order in which they were measured."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.planner.cells import BOUND, Cell, Outcome, cell_from_dict, outcome_from_dict

FORMAT, VERSION = "lowtide.benchmark.planner", 2


@dataclass(frozen=True, slots=True)
class Results:
    """Outcomes by cell, and the machine records of the runs that measured them.

    Attributes:
        runs: In the order of the file.
        outcome_by_cell: The last outcome of each cell.
        run_by_cell: Which run that outcome is from: its place in ``runs``.
    """

    runs: tuple[dict[str, Any], ...]
    outcome_by_cell: dict[Cell, Outcome]
    run_by_cell: dict[Cell, int]

    def part(self, name: str) -> dict[Cell, Outcome]:
        return {cell: outcome for cell, outcome in self.outcome_by_cell.items() if cell.part == name}


@dataclass(frozen=True, slots=True)
class Summary:
    """A planner on a cell over its seeds; a seed without a plan counts as worse than every plan.

    Attributes:
        cell: With seed 0.
        outcomes: One per seed.
    """

    cell: Cell
    outcomes: tuple[Outcome, ...]

    @property
    def tdi_percent(self) -> float | None:
        """The median, or None where half of the seeds have no plan."""
        worst = float("inf")
        found = median(worst if one.tdi_percent is None else one.tdi_percent for one in self.outcomes)
        return None if found == worst else found

    @property
    def bound_percent(self) -> float | None:
        """The best that any seed proved: a proof is a proof."""
        return max((one.bound_percent for one in self.outcomes if one.bound_percent is not None), default=None)

    @property
    def cpu_seconds(self) -> float:
        return median(one.cpu_seconds for one in self.outcomes)

    @property
    def wall_seconds(self) -> float:
        return median(one.wall_seconds for one in self.outcomes)

    @property
    def num_plans(self) -> int:
        return sum(one.tdi_percent is not None for one in self.outcomes)

    @property
    def status(self) -> str:
        """What all seeds say, or else the weakest that one of them says."""
        for status in ("killed", "failed", "refused", "timeout", "infeasible", "feasible"):
            if any(one.status == status for one in self.outcomes):
                return status
        return "optimal"


def read_results(path: Path) -> Results:
    """Read what was measured so far; nothing where there is no file. A last line that was cut off is passed over.

    Raises:
        ValueError: The file is of another format or version.
    """
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    records = []
    for number, line in enumerate(lines):
        try:
            records.append(json.loads(line))
        except ValueError:
            if number < len(lines) - 1:
                raise
    runs = tuple(record for record in records if record["record"] == "run")
    for run in runs:
        if (run["format"], run["version"]) != (FORMAT, VERSION):
            raise ValueError(f"{path}: holds {run['format']} {run['version']}, not {FORMAT} {VERSION}: move it away")
    outcome_by_cell: dict[Cell, Outcome] = {}
    run_by_cell: dict[Cell, int] = {}
    num_runs = 0
    for record in records:
        if record["record"] == "run":
            num_runs += 1
        elif record["record"] == "cell":
            cell = cell_from_dict(record["cell"])
            outcome_by_cell[cell] = outcome_from_dict(record["outcome"])
            run_by_cell[cell] = num_runs - 1
    return Results(runs, outcome_by_cell, run_by_cell)


def summarize(outcome_by_cell: dict[Cell, Outcome]) -> list[Summary]:
    """Put the seeds of each cell together, in the order of the first of them."""
    by_cell: dict[Cell, list[Outcome]] = {}
    for cell, outcome in outcome_by_cell.items():
        by_cell.setdefault(replace(cell, seed=0), []).append(outcome)
    return [Summary(cell, tuple(outcomes)) for cell, outcomes in by_cell.items()]


def best_bound(summaries: Iterable[Summary]) -> float | None:
    """The highest bound that anybody proved of all plans in the order of the cell; staged plans are not all plans."""
    proven = [
        one.bound_percent
        for one in summaries
        if one.bound_percent is not None
        and (one.cell.contender == BOUND or all(_is_whole_scope(outcome, one.cell) for outcome in one.outcomes))
    ]
    return max(proven, default=None)


def _is_whole_scope(outcome: Outcome, cell: Cell) -> bool:
    return outcome.scope == {"order": cell.order, "max_copies": None}
