"""What rows are worth beside each other: the best bound for each, the gap to it, and who is on the Pareto front.

    time │ ×      ×                    ● on the front: nobody needs less memory and takes no longer,
         │ ●──┐      ×                 │ nor takes less time and needs no more memory
         │    └──●──┐    ×             × beaten
         │          └──────●
         └──────────────────── memory

Modelled and measured rows have fronts of their own. Shown is a front without those who save next to no memory over
somebody faster on it: some bytes of alignment buy nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lowtide.comparison.rows import EAGER, Kind, Outcome, Row
from lowtide.ir import Scope
from lowtide.ir.plan import increase_percent

__all__ = ["JudgedRow", "judge"]

_WIDTH_BY_ORDER = {"staged": 0, "fixed": 1, "free": 2}
_FIXED = Scope()
_LEAST_SAVED_SHARE = 1000  # of somebody's memory: whoever saves less than 1/1000 of it is shown no place on the front


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRow:
    """A row beside the others.

    Attributes:
        row: The row.
        outcome: Its own, or ``optimal`` where somebody else's bound proves it.
        bound_duration: The best that any row proves for plans like this one within its budget, or None.
        proven_order: Of an optimal row: among plans of which order nobody is faster, as in ``Scope.order``; else None.
        is_on_front: Whether nobody of its sort is better in memory or time and no worse in the other.
        is_shown_on_front: Whether it is on the front and saves more than 0.1 % of memory over the next who is faster.
        is_bit_equal: Whether a training computed what eager computes, to the bit; None where that is not known.
    """

    row: Row
    outcome: Outcome
    bound_duration: int | None
    proven_order: str | None
    is_on_front: bool
    is_shown_on_front: bool
    is_bit_equal: bool | None

    @property
    def bound_percent(self) -> float | None:
        """The bound as TDI in percent."""
        if self.bound_duration is None:
            return None
        return increase_percent(self.bound_duration, self.row.baseline_duration)

    @property
    def gap_points(self) -> float | None:
        """TDI beyond the bound, in points of percent; None without either."""
        increase, bound = self.row.increase_percent, self.bound_percent
        return None if increase is None or bound is None else increase - bound

    def as_dict(self) -> dict[str, Any]:
        """A flat row for pandas."""
        row, cell = self.row, self.row.cell
        is_measured = cell.kind.is_measured
        return {
            "kind": str(cell.kind),
            "method": cell.method,
            "budget": cell.budget or None,
            "budget_bytes": row.budget_bytes,
            "status": str(self.outcome),
            "proven_order": self.proven_order,
            "needed_bytes": row.needed_bytes,
            "peak_bytes": row.peak_bytes,
            "memory_percent": row.memory_percent,
            "duration": row.duration,
            "tdi_percent": None if is_measured else row.increase_percent,
            "overhead_percent": row.increase_percent if is_measured else None,
            "lower_bound_tdi_percent": self.bound_percent,
            "gap_points": self.gap_points,
            "order": None if row.scope is None else row.scope.order,
            "max_copies": None if row.scope is None else row.scope.max_copies,
            "num_recomputes": row.num_recomputes,
            "is_on_front": self.is_on_front,
            "is_bit_equal": self.is_bit_equal,
            "seconds": row.seconds,
            "baseline_peak_bytes": row.baseline_peak_bytes,
            "baseline_duration": row.baseline_duration,
            "reason": row.reason or None,
        }


def judge(rows: Sequence[Row]) -> tuple[JudgedRow, ...]:
    """Put every row beside all others.

    Args:
        rows: Of one graph, in any order.

    Returns:
        The same, in the same order.
    """
    points = [row for row in rows if row.is_found and row.cell.kind is not Kind.BOUND]
    modelled = _front(row for row in points if not row.cell.kind.is_measured)
    measured = _front(row for row in points if row.cell.kind.is_measured)
    front = {row.cell.key for row in (*modelled, *measured)}
    shown = {row.cell.key for row in (*_worth_showing(modelled), *_worth_showing(measured))}
    eager_bits = next((row.bits for row in rows if row.cell.kind.is_measured and row.cell.method == EAGER), None)
    judged = []
    for row in rows:
        bounds = _bounds_for(row, rows)
        bound = max((duration for _, duration in bounds), default=None)
        is_proven = row.outcome is Outcome.FEASIBLE and row.duration is not None and row.duration == bound
        outcome = Outcome.OPTIMAL if is_proven else row.outcome
        judged.append(
            JudgedRow(
                row=row,
                outcome=outcome,
                bound_duration=bound,
                proven_order=_widest_order(row, bounds) if outcome is Outcome.OPTIMAL else None,
                is_on_front=row.cell.key in front,
                is_shown_on_front=row.cell.key in shown,
                is_bit_equal=None if row.bits is None or eager_bits is None else row.bits == eager_bits,
            )
        )
    return tuple(judged)


def _front(rows: Iterable[Row]) -> list[Row]:
    """Those that nobody beats; equals stand beside each other."""
    front: list[Row] = []
    for row in sorted(rows, key=_point):
        if not front or _point(row)[1] < _point(front[-1])[1] or _point(row) == _point(front[-1]):
            front.append(row)
    return front


def _worth_showing(front: Sequence[Row]) -> list[Row]:
    """Those of a front (from little memory to much) who save memory worth naming over the next shown who is faster."""
    shown: list[Row] = []
    for row in reversed(front):
        (needed, duration), (next_needed, next_duration) = _point(row), _point(shown[-1] if shown else row)
        if duration == next_duration or (next_needed - needed) * _LEAST_SAVED_SHARE > next_needed:
            shown.append(row)
    return shown


def _point(row: Row) -> tuple[int, int]:
    """Memory and time of a row that has both."""
    return row.needed_bytes or 0, row.duration or 0


def _bounds_for(row: Row, rows: Iterable[Row]) -> list[tuple[Scope, int]]:
    """The bounds that hold for plans like this row's within its budget."""
    if row.cell.kind in (Kind.PLAIN, Kind.MEASURED) or row.outcome is Outcome.INFEASIBLE:
        return []
    scope = row.scope or _FIXED
    return [
        (other.scope, other.lower_bound_duration)
        for other in rows
        if other.lower_bound_duration is not None
        and not other.cell.kind.is_measured
        and other.budget_bytes == row.budget_bytes
        and other.scope is not None
        and _holds_in(other.scope, scope)
    ]


def _widest_order(row: Row, bounds: Iterable[tuple[Scope, int]]) -> str | None:
    """The widest order of the bounds that a row meets: what is proven for any order says most."""
    met = [scope.order for scope, duration in bounds if duration == row.duration]
    return max(met, key=_WIDTH_BY_ORDER.__getitem__, default=None if row.scope is None else row.scope.order)


def _holds_in(proven: Scope, wanted: Scope) -> bool:
    """Whether what holds for all plans of one scope holds for those of another: the other is part of it."""
    is_wider = _WIDTH_BY_ORDER[proven.order] >= _WIDTH_BY_ORDER[wanted.order]
    allows = proven.max_copies is None or (wanted.max_copies is not None and wanted.max_copies <= proven.max_copies)
    return is_wider and allows
