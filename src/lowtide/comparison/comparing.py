"""A whole comparison: every cell answered once, in turn, and judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lowtide.comparison.judging import JudgedRow, judge
from lowtide.comparison.measured import measured_cells, run_measured
from lowtide.comparison.modelled import ModelledCells
from lowtide.comparison.options import ComparisonOptions
from lowtide.comparison.results_file import continue_rows, open_results
from lowtide.comparison.rows import EAGER, Cell, CellKey, Kind, Row
from lowtide.errors import InputError
from lowtide.ir import Graph
from lowtide.planning.facts import gather_facts, read_budget
from lowtide.units import Budget, Bytes

__all__ = ["Comparison", "Progress", "compare_graph"]

_SECONDS_BY_KIND = {Kind.POLICY: 1.0, Kind.MEASURED: 30.0}
"""What a cell takes until one of its method has been seen; planners and bounds: their time limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What came of it.

    Attributes:
        name: Of the graph.
        num_nodes: Of the graph.
        duration_unit: ``"ns"`` or ``"unit"``.
        budgets: As they were written, largest first, and in bytes.
        rows: The plain graph, then one for each cell that was answered.
        is_measured: Whether real runs were asked for.
        is_complete: Whether every cell was answered.
        notes: What a reader has to know, one sentence each.
    """

    name: str
    num_nodes: int
    duration_unit: str
    budgets: Mapping[str, Bytes]
    rows: tuple[JudgedRow, ...]
    is_measured: bool
    is_complete: bool
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a comparison is.

    Attributes:
        cell: What is under way, or was just answered.
        row: What came of it; None while it is under way.
        num_done: Cells answered.
        num_cells: Cells that have to be run, those recorded left out.
        seconds_left: Estimated.
    """

    cell: Cell
    row: Row | None
    num_done: int
    num_cells: int
    seconds_left: float


def compare_graph(
    graph: Graph,
    *,
    budgets: Sequence[Budget],
    options: ComparisonOptions,
    output: Path | None = None,
    on_progress: Callable[[Progress], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Comparison:
    """Answer every cell that the output does not hold yet, and put all of them beside each other.

    Args:
        graph: What is compared on.
        budgets: As in ``lowtide.plan``; of measured rows a percentage is one of eager's measured peak.
        options: Who is compared.
        output: JSON lines, written row by row and taken up again; None keeps none.
        on_progress: Told before and after every cell.
        should_stop: True ends the comparison; the cell under way is dropped.

    Raises:
        InputError: A budget is wrong, or the output is of another comparison.
        FormatError: The output is broken or cannot be written.
        MeterUnavailable: Trainings are to be measured, and the meter was not built.
    """
    header = options.as_header()
    recorded = continue_rows(output, graph, header, is_profiled=options.source_model is not None)
    facts = gather_facts(recorded.graph)
    modelled = ModelledCells(facts, options, should_stop)
    bytes_by_budget, notes = _distinct({_written(budget): read_budget(facts, budget) for budget in budgets})
    chosen = tuple(bytes_by_budget)
    cells = (*modelled.cells(chosen), *measured_cells(options, chosen))
    known: dict[CellKey, Row] = dict(recorded.row_by_key)
    todo = [cell for cell in cells if cell.key not in known]
    clock = _Clock(options.time_limit_seconds)
    with open_results(output, recorded, header) as results:
        for index, cell in enumerate(todo):
            if should_stop():
                break
            on_progress(_progress(cell, None, index, todo, clock))
            if cell.kind.is_measured:
                row = run_measured(cell, options, known.get((str(Kind.MEASURED), EAGER, "")), should_stop)
            else:
                row = modelled.run(cell, bytes_by_budget[cell.budget])
            if should_stop():  # it was not let finish
                break
            known[cell.key] = row
            clock.note(row)
            results.write(row)
            on_progress(_progress(cell, row, index + 1, todo, clock))
    answered = [known[cell.key] for cell in cells if cell.key in known]
    return Comparison(
        name=graph.name,
        num_nodes=len(graph.nodes),
        duration_unit=graph.duration_unit,
        budgets=bytes_by_budget,
        rows=judge((modelled.plain(), *answered)),
        is_measured=options.model is not None,
        is_complete=len(answered) == len(cells),
        notes=(*options.notes, *notes),
    )


class _Clock:
    """How long cells take: the mean of those of the same method, a guess before there is one."""

    def __init__(self, time_limit_seconds: float) -> None:
        self._time_limit_seconds = time_limit_seconds
        self._seconds_by_method: dict[tuple[Kind, str], list[float]] = {}

    def note(self, row: Row) -> None:
        self._seconds_by_method.setdefault((row.cell.kind, row.cell.method), []).append(row.seconds)

    def expected(self, cell: Cell) -> float:
        seen = self._seconds_by_method.get((cell.kind, cell.method))
        if seen:
            return sum(seen) / len(seen)
        return _SECONDS_BY_KIND.get(cell.kind, self._time_limit_seconds)


def _progress(cell: Cell, row: Row | None, num_done: int, todo: Sequence[Cell], clock: _Clock) -> Progress:
    return Progress(
        cell=cell,
        row=row,
        num_done=num_done,
        num_cells=len(todo),
        seconds_left=sum(clock.expected(left) for left in todo[num_done:]),
    )


def _written(budget: Budget) -> str:
    return str(budget).strip()


def _distinct(bytes_by_budget: Mapping[str, Bytes]) -> tuple[dict[str, Bytes], list[str]]:
    """Budgets, largest first, each once; and which were left out."""
    if not bytes_by_budget:
        raise InputError("there is no budget: give at least one, e.g. 60%")
    first_by_bytes: dict[Bytes, str] = {}
    notes = []
    for budget, size_bytes in bytes_by_budget.items():
        first = first_by_bytes.setdefault(size_bytes, budget)
        if first != budget:
            notes.append(f"{budget} is {size_bytes:,} bytes as {first} is: compared once")
    return {first_by_bytes[size_bytes]: size_bytes for size_bytes in sorted(first_by_bytes, reverse=True)}, notes
