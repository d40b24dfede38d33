"""Staged events: when a node can run, as one number.

    stage 0        n0
    stage 1        n0  n1
    stage 2        n0  n1  n2
    column          0   1   2

Stage j computes the j-th node of the input order for the first time (the diagonal) and before it, in order, whatever is
recomputed. Events are numbered row by row: event(j, k) = j(j + 1)/2 + k.

Source: Bartan et al. 2023, section 3.2 ("input topological order"), counted from 0 instead of 1.
"""

from __future__ import annotations

from math import isqrt

__all__ = ["event_at", "num_events", "stage_and_column_of"]


def event_at(stage: int, column: int) -> int:
    """The event of the node at position ``column`` running in ``stage``; ``column <= stage``."""
    assert 0 <= column <= stage
    return stage * (stage + 1) // 2 + column


def num_events(num_stages: int) -> int:
    """How many events there are: one per stage and column up to it."""
    return num_stages * (num_stages + 1) // 2


def stage_and_column_of(event: int) -> tuple[int, int]:
    """The stage and the column of an event: the inverse of :func:`event_at`."""
    stage = (isqrt(8 * event + 1) - 1) // 2
    return stage, event - num_events(stage)
