"""A comparison as tables for people: budget by budget, the fastest first, whoever is on the Pareto front marked."""

from __future__ import annotations

from collections.abc import Sequence

from lowtide.cli.output import print_facts, print_table, print_text
from lowtide.comparison.comparing import Comparison
from lowtide.comparison.judging import JudgedRow
from lowtide.comparison.rows import Kind, Outcome
from lowtide.comparison.words import (
    MEASURED_HEADER,
    MODELLED_HEADER,
    Block,
    blocks_of,
    cells_of,
    eager_of,
    front_of,
    remarks_on,
    step_words,
    title_of,
)
from lowtide.units import format_bytes

__all__ = ["print_comparison"]

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
    for remark in remarks_on(comparison):
        print_text(remark)


def _facts(comparison: Comparison) -> list[tuple[str, str]]:
    plain = next(row.row for row in comparison.rows if row.row.cell.kind is Kind.PLAIN)
    facts = [("graph", title_of(comparison)), ("plain peak", format_bytes(plain.needed_bytes or 0))]
    eager = eager_of(comparison)
    if eager is not None:
        facts.append(("eager", f"{format_bytes(eager.needed_bytes or 0)}, {step_words(eager)}, as measured"))
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
