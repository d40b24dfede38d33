"""A comparison as tables for people: budget by budget, the fastest first, whoever is on the Pareto front marked."""

from __future__ import annotations

from collections.abc import Sequence

from lowtide.cli.output import print_facts, print_table, print_text
from lowtide.comparison.comparing import Comparison
from lowtide.comparison.judging import JudgedRow
from lowtide.comparison.rows import EAGER, Kind, Outcome
from lowtide.comparison.words import (
    MEASURED_HEADER,
    MODELLED_HEADER,
    Block,
    blocks_of,
    cells_of,
    front_of,
    remarks_on,
    title_of,
)
from lowtide.units import format_bytes

__all__ = ["print_comparison"]

_ABOUT = (
    "● on the Pareto front: nobody needs less memory and takes no longer, nor the other way round; who saves less than "
    "0.1 % of memory over somebody faster is left out. TDI: time beyond plain by the graph's durations. gap: points to "
    "what is proven for such plans."
)
_ABOUT_PEERS = (
    "checkpoint, amb: what torch.utils.checkpoint around every block, and PyTorch's activation_memory_budget at its "
    "best of 21 ratios, would recompute, as plans of the same graph."
)
_ABOUT_MEASURED = (
    "really run: most bytes from malloc in forward and backward, CPU time of a step beyond eager's (median of three, "
    "one thread), whether all that four steps compute is equal to eager's to the bit. amb: activation_memory_budget."
)
_OUTCOMES_WITH_REASONS = (Outcome.FAILED, Outcome.OVER, Outcome.TIMEOUT)


def print_comparison(comparison: Comparison) -> None:
    """Print all of it on stdout."""
    print_facts(_facts(comparison))
    print_text()
    print_text("the Pareto front, on the cost model")
    print_table(
        ("memory", "of plain", "TDI", "by"), [_front_cells(rows) for rows in front_of(comparison)], right=(0, 1, 2)
    )
    for block in blocks_of(comparison):
        print_text()
        _print_block(block)
    print_text()
    print_text(_ABOUT)
    if any(row.row.cell.kind is Kind.PEER for row in comparison.rows):
        print_text(_ABOUT_PEERS)
    if comparison.is_measured:
        print_text(_ABOUT_MEASURED)
    if not comparison.is_complete:
        print_text("Stopped early: the same command goes on where -o FILE has kept the rows.")
    for remark in remarks_on(comparison):
        print_text(remark)


def _facts(comparison: Comparison) -> list[tuple[str, str]]:
    plain = next(row.row for row in comparison.rows if row.row.cell.kind is Kind.PLAIN)
    facts = [("graph", title_of(comparison)), ("plain peak", format_bytes(plain.needed_bytes or 0))]
    for judged in comparison.rows:
        row = judged.row
        if row.cell.kind.is_measured and row.cell.method == EAGER and row.is_found:
            seconds = (row.duration or 0) / 1e9
            facts.append(("eager", f"{format_bytes(row.needed_bytes or 0)}, {seconds:.3f} s a step, as measured"))
    return facts


def _front_cells(rows: Sequence[JudgedRow]) -> tuple[str, ...]:
    """One place of the front, and who is there."""
    _, _, _, *figures = cells_of(rows[0])
    methods = dict.fromkeys(row.row.cell.method for row in rows)
    return (*figures[:3], ", ".join(methods))


def _print_block(block: Block) -> None:
    print_text(block.title)
    if block.bound:
        print_text(block.bound)
    if block.found:
        header = MEASURED_HEADER if block.is_measured else MODELLED_HEADER
        print_table(header, [cells_of(row) for row in block.found], right=(3, 4, 5, 6, 7))
    for (outcome, reason), rows in _by_outcome(block.missed).items():
        methods = ", ".join(row.row.cell.method for row in rows)
        print_text(f"  {outcome}: {methods}: {reason}" if reason else f"  {outcome}: {methods}")


def _by_outcome(rows: Sequence[JudgedRow]) -> dict[tuple[Outcome, str], list[JudgedRow]]:
    """Rows by outcome and, where that leaves somebody asking why, by reason."""
    by_outcome: dict[tuple[Outcome, str], list[JudgedRow]] = {}
    for row in rows:
        reason = row.row.reason if row.outcome in _OUTCOMES_WITH_REASONS else ""
        by_outcome.setdefault((row.outcome, reason), []).append(row)
    return by_outcome
