"""Cells of tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from benchmarks.planner.results import Summary

K = TypeVar("K")
_NOTHING = "–"


def group(summaries: Iterable[Summary], key: Callable[[Summary], K]) -> dict[K, list[Summary]]:
    """Summaries by a key, in the order in which keys come first."""
    groups: dict[K, list[Summary]] = {}
    for one in summaries:
        groups.setdefault(key(one), []).append(one)
    return groups


def best_of(summaries: Iterable[Summary]) -> Summary | None:
    """The one with the best plan; the first of equal ones."""
    found = [one for one in summaries if one.tdi_percent is not None]
    return min(found, key=lambda one: one.tdi_percent or 0.0, default=None)


def plan_words(one: Summary | None) -> str:
    """What came of a planner on a cell: TDI, what it proved, CPU seconds; or why there is no plan."""
    if one is None:
        return ""
    if one.status in ("refused", "killed", "failed"):
        return one.status
    staged = "†" if any((outcome.scope or {}).get("order") == "staged" for outcome in one.outcomes) else ""
    took = f", {figure(one.cpu_seconds, ' s')}"
    if one.status == "infeasible":
        return f"proven: none{staged}{took}"
    if one.tdi_percent is None:
        return f"no plan{_seeds(one)}{took}"
    if one.status == "optimal":
        return f"**{one.tdi_percent:.3f}**{staged}{took}"
    bound = one.bound_percent
    proved = f" (≥ {bound:.3f}{staged})" if bound is not None and bound > 0 else ""
    return f"{one.tdi_percent:.3f}{_seeds(one)}{proved}{took}"


def _seeds(one: Summary) -> str:
    """How many seeds have a plan, where not all say the same."""
    is_mixed = 0 < one.num_plans < len(one.outcomes)
    return f" [{one.num_plans}/{len(one.outcomes)} seeds]" if is_mixed else ""


def shown(number: float | None, *, places: int = 3) -> str:
    """A number, or a dash where there is none."""
    return _NOTHING if number is None else f"{number:.{places}f}"


def figure(number: float, unit: str) -> str:
    """A number to two figures or so."""
    return f"{number:.0f}{unit}" if number >= 10 else f"{number:.1f}{unit}"
