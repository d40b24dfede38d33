"""The smallest budget known to work: one that was asked for and got a plan, not only met on the way to another."""

from __future__ import annotations

from collections.abc import Callable

from lowtide.units import Bytes

__all__ = ["smallest_known_to_work"]

_MOST_TRIES = 8
_FIRST_STEP_SHARE = 50  # of what was met: the first step up; each further one is twice as long
_FINEST_SHARE = 64  # of the budget: no finer than that is worth another try


def smallest_known_to_work(
    met_bytes: Bytes,
    works: Callable[[Bytes], bool],
    *,
    least_bytes: Bytes,
    known_bytes: Bytes,
    is_over: Callable[[], bool],
) -> Bytes:
    """Ask for the smallest peak that was met, then for somewhat more, in steps that double; once one works, bisect.

    A planner that misses its budget has seen some smallest peak; asked for exactly that, it may go another way and miss
    it, though seldom by much. Whoever is told a budget asks for it next, so it has to be one that was asked for.

    Args:
        met_bytes: What the best plan that was met needs.
        works: Whether a budget gets a plan.
        least_bytes: No smaller one does.
        known_bytes: This one does.
        is_over: True ends the trying.
    """
    candidate_bytes, step_bytes = met_bytes, max(1, met_bytes // _FIRST_STEP_SHARE)
    for _ in range(_MOST_TRIES):
        if candidate_bytes >= known_bytes or is_over():
            break
        if works(candidate_bytes):
            known_bytes, step_bytes = candidate_bytes, known_bytes
        else:
            least_bytes = candidate_bytes + 1
        if known_bytes - least_bytes <= known_bytes // _FINEST_SHARE:
            break
        candidate_bytes = min((least_bytes + known_bytes) // 2, candidate_bytes + step_bytes)
        step_bytes *= 2
    return known_bytes
