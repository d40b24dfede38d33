"""What is asked of the absence relaxation, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass

from lowtide.ir import Interval
from lowtide.planners.bounds.bound import Bound
from lowtide.planners.bounds.families import Stages

__all__ = ["AbsenceOptions", "AbsenceSolution"]


@dataclass(frozen=True, slots=True)
class AbsenceOptions:
    """How far to go.

    Attributes:
        are_whole: Whether to end with whole variables (MIP, tighter) or without (LP, faster).
        max_stages: Use only so many overloaded stages, spread out and the fullest of their neighbourhoods; None: as
            many as it takes (tightest).
        stages: Use exactly these stages, or None.
        max_search_nodes: Nodes of each branch and bound, or None. It ends a solve alike on every machine.
        time_limit_seconds: Wall-clock time, or None; the best bound reached by then holds.
        are_returns_checked: Whether what comes back needs its inputs; False leaves the gap cover.
    """

    are_whole: bool = True
    max_stages: int | None = None
    stages: tuple[int, ...] | None = None
    max_search_nodes: int | None = None
    time_limit_seconds: float | None = None
    are_returns_checked: bool = True


@dataclass(frozen=True, slots=True)
class AbsenceSolution:
    """What the relaxation proved, and the best solution it met: where a plan of that cost would recompute and keep.

    Values are between 0 and 1, whole where the solution is; only those above 0 are listed. Families and nodes are
    those of ``stages``, by position.

    Attributes:
        bound: What is proven.
        stages: The graph, stage by stage.
        chosen: The overloaded stages that the solution speaks of, increasing.
        runs: By (node, span): the node runs again after stage ``start`` of the span and up to stage ``end`` of it.
        absent: By (family, chosen stage): live, but not resident there.
        held: By (family, chosen stage): resident there although nothing in the given order needs it any more.
        is_whole: Whether the values are whole.
        is_settled: Whether the rounds ended by themselves: it is optimal, and breaks no row that was looked for.
        cost: Of the solution: duration beyond the baseline's.
    """

    bound: Bound
    stages: Stages
    chosen: tuple[int, ...]
    runs: dict[tuple[int, Interval], float]
    absent: dict[tuple[int, int], float]
    held: dict[tuple[int, int], float]
    is_whole: bool
    is_settled: bool
    cost: float
