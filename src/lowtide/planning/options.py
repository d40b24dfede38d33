"""Options of planning as users give them, checked."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Literal, TypeAlias

from lowtide.errors import InputError
from lowtide.ir import Graph, Incumbent, Scope
from lowtide.planners.protocol import Planner, PlanRequest

__all__ = ["ProgressCallback", "StopCallback", "build_request", "check_limits", "choose_planner", "searched_order"]

ProgressCallback: TypeAlias = Callable[[Incumbent], None]
"""Told of every better plan or bound."""

StopCallback: TypeAlias = Callable[[], bool]
"""Asked now and then; true ends a search with the best found so far."""

_MOST = 2**31 - 1  # of a seed and of copies: what every planner and solver takes
_MOST_THREADS = 1024


def choose_planner(planner: str | Planner) -> Planner:
    """The planner itself, or the one that a name or ``pkg.mod:Class`` stands for.

    Raises:
        InputError: There is none of that name, or the object is no planner.
    """
    if isinstance(planner, str):
        from lowtide.planners.table import planner_named

        return planner_named(planner)
    if not isinstance(planner, Planner):
        raise InputError(f"planner {planner!r} has no name and propose: give a name, pkg.mod:Class, or a Planner")
    return planner


def searched_order(planner: Planner, *, keep_order: bool) -> Literal["fixed", "free", "staged"]:
    """The orders that a planner searches: that given, unless it says ``searches_order`` and may leave it.

    Of one that says ``searches_staged_only`` nothing more is expected, so that what it proves can be said.
    """
    if getattr(planner, "searches_staged_only", False):
        return "staged"
    return "free" if getattr(planner, "searches_order", False) and not keep_order else "fixed"


def build_request(
    graph: Graph,
    *,
    max_copies: int | None,
    seed: int,
    threads: int | None,
    time_limit_seconds: float | None,
    on_progress: ProgressCallback | None,
    should_stop: StopCallback | None,
    order: Literal["fixed", "free", "staged"] = "fixed",
) -> PlanRequest:
    """Everything that a planner is told, but for the budget, which is 0 yet.

    Raises:
        InputError: An option is out of range.
    """
    check_limits(time_limit_seconds=time_limit_seconds, seed=seed)
    return PlanRequest(
        graph=graph,
        budget_bytes=0,
        scope=Scope(order=order, max_copies=None if max_copies is None else _check_whole("max_copies", max_copies, 1)),
        seed=seed,
        threads=_num_usable_cores() if threads is None else _check_whole("threads", threads, 1, _MOST_THREADS),
        time_limit_seconds=time_limit_seconds,
        on_progress=on_progress,
        should_stop=should_stop,
    )


def check_limits(*, time_limit_seconds: float | None, seed: int) -> None:
    """Check what can be checked before there is a graph.

    Raises:
        InputError: An option is out of range.
    """
    limit: object = time_limit_seconds
    if isinstance(limit, int | float) and limit > sys.float_info.max:
        raise InputError(
            f"time limit is above {sys.float_info.max:.1e} s, the most that is taken: choose a smaller number"
        )
    if limit is not None and not (isinstance(limit, int | float) and limit > 0):
        raise InputError(f"time limit {_shown(limit)} must be a number of seconds above 0")
    _check_whole("seed", seed, 0)


def _check_whole(name: str, number: object, smallest: int, largest: int = _MOST) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < smallest:
        raise InputError(f"{name} {_shown(number)} must be a whole number, at least {smallest}")
    if number > largest:
        raise InputError(f"{name} is above {largest}, the most that is taken: choose a smaller number")
    return number


def _shown(number: object) -> str:
    """A number as it was given, cut where it is long."""
    try:
        return f"{number!r:.40}"
    except ValueError:  # Python writes no whole number of many thousands of digits
        return "of many thousands of digits"


def _num_usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
