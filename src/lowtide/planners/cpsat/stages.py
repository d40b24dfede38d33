"""One stage by itself: can its recomputations be carried out within the budget, in some order, and how dear is that?

    present before   {a, c}      runs {b, d}, b reads a, d reads b and c      present after {d}
    in order          b: a b c      d: b c d                                  what no later run needs is evicted at once

The model decides only what is present before and after, and what runs. Running in the given order with evictions
right after last uses is tried first; otherwise all orders are, repetitions included, over sets of present storages
(Dijkstra).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from lowtide.planners.cpsat.problem import Problem

__all__ = ["MAX_STATES", "Carried", "StageCase", "carry_out", "carry_out_in_order", "is_beyond"]

MAX_STATES = 20_000
"""Sets of present storages that the exhaustive search of one stage looks at before it gives up."""


@dataclass(frozen=True, slots=True)
class StageCase:
    """What the model decided about a stage.

    Attributes:
        stage: Which.
        before: Storages present at the first execution of the stage before, its outputs included.
        after: Storages that must be present at this stage's first execution, its own outputs left out.
        runs: Columns that run again, by position.
    """

    stage: int
    before: frozenset[int]
    after: frozenset[int]
    runs: tuple[int, ...]

    def duration(self, problem: Problem) -> int:
        """Of one run of each of its columns."""
        return sum(problem.columns[column].duration for column in self.runs)


@dataclass(frozen=True, slots=True)
class Carried:
    """The cheapest way to carry a stage out.

    Attributes:
        sequence: Columns in the order in which they run, or None where there is no way.
        duration: Of all of them; 0 where there is none.
    """

    sequence: tuple[int, ...] | None
    duration: int = 0


def carry_out_in_order(problem: Problem, case: StageCase) -> bool:
    """Whether each column can run once, in the given order and with evictions right after last uses."""
    needed = set(case.after)
    for column in reversed(case.runs):
        row = problem.columns[column]
        needed = {index for index in needed if index not in row.makes or _is_pinned(problem, index, case)}
        needed.update(row.reads)
        if not _fits(problem, needed, column):
            return False
    return needed <= case.before


def carry_out(problem: Problem, case: StageCase, *, max_states: int = MAX_STATES) -> Carried | None:
    """The cheapest sequence of runs, each of any column of the case; the shortest of several.

    A column runs as often as it helps, at most ``max_copies - 1`` times where the problem has that.

    Args:
        problem: What is planned.
        case: The stage.
        max_states: Sets of storages to look at.

    Returns:
        The cheapest way or none, for certain; None where ``max_states`` were not enough to tell.
    """
    concerned = {index for column in case.runs for index in problem.columns[column].reads} | case.after
    start = frozenset(index for index in case.before if index in concerned)
    ticket = count()
    queue: list[tuple[int, int, int, frozenset[int], tuple[int, ...]]] = [(0, 0, next(ticket), start, ())]
    done: set[tuple[frozenset[int], tuple[int, ...]]] = set()
    while queue:
        duration, num_runs, _, present, sequence = heapq.heappop(queue)
        if (state := (present, _counted(problem, sequence))) in done:
            continue
        if present >= case.after:
            return Carried(sequence, duration)
        if len(done) >= max_states:
            return None
        done.add(state)
        for following, column in _followers(problem, case, present, concerned):
            if column is None:
                heapq.heappush(queue, (duration, num_runs, next(ticket), following, sequence))
            elif problem.max_copies is None or sequence.count(column) < problem.max_copies - 1:
                later = duration + problem.columns[column].duration
                heapq.heappush(queue, (later, num_runs + 1, next(ticket), following, (*sequence, column)))
    return Carried(None)


def _counted(problem: Problem, sequence: tuple[int, ...]) -> tuple[int, ...]:
    """What two ways to the same storages may differ in: nothing, unless runs are counted."""
    return () if problem.max_copies is None else tuple(sorted(sequence))


def is_beyond(problem: Problem, case: StageCase, *, extra_duration: int | None, max_states: int) -> bool:
    """Whether a stage is impossible, or takes that much more than one run of each of its columns, for certain.

    Args:
        problem: What is planned.
        case: The stage.
        extra_duration: How much more; None asks whether it is impossible.
        max_states: Sets of storages to look at.
    """
    carried = carry_out(problem, case, max_states=max_states)
    if carried is None:
        return False
    if carried.sequence is None:
        return True
    return extra_duration is not None and carried.duration - case.duration(problem) >= extra_duration


def _followers(
    problem: Problem, case: StageCase, present: frozenset[int], concerned: set[int]
) -> Iterator[tuple[frozenset[int], int | None]]:
    """What can be present next: after an eviction, or after a run of a column."""
    for index in present:
        if not _is_kept(problem, index, case):
            yield present - {index}, None
    for column in case.runs:
        if present.issuperset(problem.columns[column].reads) and _fits(problem, present, column):
            yield present.union(index for index in problem.columns[column].makes if index in concerned), column


def _fits(problem: Problem, present: set[int] | frozenset[int], column: int) -> bool:
    resident = sum(problem.storages[index].size_bytes for index in present)
    row = problem.columns[column]
    return resident + row.fresh_bytes + row.workspace_bytes <= problem.budget_bytes


def _is_pinned(problem: Problem, index: int, case: StageCase) -> bool:
    """Whether a storage cannot leave in a stage: it was pinned at the first execution before."""
    pinned_from = problem.storages[index].pinned_from
    return pinned_from is not None and pinned_from < case.stage


def _is_kept(problem: Problem, index: int, case: StageCase) -> bool:
    """Whether a storage has to stay: it is pinned, or needed after the stage and nothing in it makes it again."""
    if _is_pinned(problem, index, case):
        return True
    is_makeable = any(index in problem.columns[column].makes for column in case.runs)
    return index in case.after and not is_makeable
