"""A comparison in words: what tables on a terminal and in a report share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from lowtide.comparison.comparing import Comparison
from lowtide.comparison.judging import JudgedRow
from lowtide.comparison.rows import EAGER, Kind, Outcome, Row
from lowtide.units import format_bytes

__all__ = [
    "MEASURED_HEADER",
    "MODELLED_HEADER",
    "Block",
    "bits_words",
    "blocks_of",
    "cells_of",
    "eager_of",
    "front_of",
    "percent_words",
    "remarks_on",
    "step_words",
    "title_of",
]

MODELLED_HEADER = ("", "method", "status", "memory", "of plain", "TDI", "gap", "took")
MEASURED_HEADER = ("", "method", "status", "peak", "of eager", "time", "bits", "took")


_STATUS_BY_PROVEN_ORDER = {"fixed": "optimal in order", "staged": "optimal, staged"}
_ABOUT_ORDER = (
    "Optimal in order: proven that no plan in the graph's given order is faster; one in another order may be."
)
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
_STOPPED_EARLY = "Stopped early: the same command goes on where -o FILE has kept the rows."
_ARTICLE_BY_ORDER = {"given order": "the given order", "any order": "any order"}


@dataclass(frozen=True, slots=True)
class Block:
    """Rows within one budget, or all that take none.

    Attributes:
        title: The budget, in words.
        budget: The budget as it was written; empty where there is none.
        bound: What is proven within it, in words; empty where nothing is.
        is_measured: Whether its rows were really run.
        found: Rows with memory and time, fastest first.
        missed: The others.
    """

    title: str
    budget: str
    bound: str
    is_measured: bool
    found: tuple[JudgedRow, ...]
    missed: tuple[JudgedRow, ...]


def title_of(comparison: Comparison) -> str:
    """What was compared on."""
    nodes = f"{comparison.num_nodes:,} node{'' if comparison.num_nodes == 1 else 's'}"
    return f"{comparison.name or 'unnamed graph'}, {nodes}"


def eager_of(comparison: Comparison) -> Row | None:
    """The row of the training by which all others are measured, where it was run."""
    rows = (judged.row for judged in comparison.rows)
    return next((row for row in rows if row.cell.kind.is_measured and row.cell.method == EAGER and row.is_found), None)


def blocks_of(comparison: Comparison) -> tuple[Block, ...]:
    """Modelled rows budget by budget, largest first; then measured ones: those without a budget, then likewise."""
    blocks = []
    for is_measured in (False, True):
        rows = [row for row in comparison.rows if row.row.cell.kind.is_measured is is_measured]
        for budget in ("", *comparison.budgets):
            here = [row for row in rows if row.row.cell.budget == budget and row.row.cell.kind is not Kind.PLAIN]
            if here:
                blocks.append(_block(here, budget, is_measured=is_measured))
    return tuple(blocks)


def _block(rows: Sequence[JudgedRow], budget: str, *, is_measured: bool) -> Block:
    contenders = [row for row in rows if row.row.cell.kind is not Kind.BOUND]
    found = [row for row in contenders if row.row.is_found]
    found.sort(key=lambda row: (row.row.duration or 0, row.row.needed_bytes or 0, row.row.seconds))
    sizes = {row.row.budget_bytes for row in rows if row.row.budget_bytes is not None}
    size = f", {format_bytes(min(sizes))}" if sizes and "B" not in budget else ""
    title = f"within {budget}{size}" if budget else "without a budget"
    return Block(
        title=f"really run, {title}" if is_measured else title,
        budget=budget,
        bound=_bound_words([row for row in rows if row.row.cell.kind is Kind.BOUND]),
        is_measured=is_measured,
        found=tuple(found),
        missed=tuple(row for row in contenders if not row.row.is_found),
    )


def _bound_words(bounds: Iterable[JudgedRow]) -> str:
    """What is proven within a budget."""
    words = []
    for bound in bounds:
        order = bound.row.cell.method.removeprefix("bound, ")
        if bound.outcome is Outcome.INFEASIBLE:
            words.append(f"no plan in {_ARTICLE_BY_ORDER[order]}")
        elif bound.bound_percent is not None:
            least = percent_words(bound.bound_percent)
            least = "more than 0 %" if least.startswith("< ") else f"at least {least}"
            words.append(f"{least} in {_ARTICLE_BY_ORDER[order]}")
    return f"proven: {', '.join(words)}" if words else ""


def front_of(comparison: Comparison) -> tuple[tuple[JudgedRow, ...], ...]:
    """The front of the modelled rows as it is shown, from much memory to little; equals together, quickest first."""
    front = [row for row in comparison.rows if row.is_shown_on_front and not row.row.cell.kind.is_measured]
    front.sort(key=lambda row: (-(row.row.needed_bytes or 0), row.row.seconds))
    return tuple(tuple(places) for _, places in groupby(front, key=lambda row: row.row.needed_bytes))


def cells_of(judged: JudgedRow) -> tuple[str, ...]:
    """A row's cells, under ``MODELLED_HEADER`` or ``MEASURED_HEADER``."""
    row = judged.row
    share = "" if row.memory_percent is None else f"{row.memory_percent:.1f} %"
    is_measured = row.cell.kind.is_measured
    return (
        "●" if judged.is_shown_on_front else "",
        row.cell.method,
        _STATUS_BY_PROVEN_ORDER.get(judged.proven_order or "", str(judged.outcome)),
        "" if row.needed_bytes is None else format_bytes(row.needed_bytes),
        share,
        "" if row.increase_percent is None else percent_words(row.increase_percent),
        bits_words(judged) if is_measured else _gap_words(judged.gap_points),
        f"{row.seconds:.1f} s",
    )


def remarks_on(comparison: Comparison) -> list[str]:
    """What a reader of its tables has to know, a paragraph each: first what columns and methods are."""
    remarks = [_ABOUT]
    if any(row.row.cell.kind is Kind.PEER for row in comparison.rows):
        remarks.append(_ABOUT_PEERS)
    if comparison.is_measured:
        remarks.append(_ABOUT_MEASURED)
    if not comparison.is_complete:
        remarks.append(_STOPPED_EARLY)
    if any(row.proven_order == "fixed" for row in comparison.rows):
        remarks.append(_ABOUT_ORDER)
    return [*remarks, *(f"{note[:1].upper()}{note[1:]}." for note in comparison.notes)]


def step_words(eager: Row) -> str:
    """What a step of eager takes."""
    return f"{(eager.duration or 0) / 1e9:.3f} s a step"


def percent_words(percent: float) -> str:
    """A figure in percent: an increase that is there never reads as none."""
    if 0 < abs(percent) < 0.005:
        return "< 0.01 %" if percent > 0 else "> -0.01 %"
    return f"{percent:.2f} %"


def _gap_words(points: float | None) -> str:
    """A gap in points; one that is not closed never reads as none."""
    if points is None:
        return ""
    if points == 0:
        return "none"
    return "< 0.01" if 0 < points < 0.005 else f"{points:.2f}"


def bits_words(judged: JudgedRow) -> str:
    """Whether a training computed what eager does; of eager itself, whether it repeats."""
    if judged.row.cell.method == EAGER:
        return "" if judged.is_bit_equal else "do not repeat"
    if judged.is_bit_equal is None:
        return "unknown"
    return "equal" if judged.is_bit_equal else "differ"
