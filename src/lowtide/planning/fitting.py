"""From a budget for addresses back to budgets for live bytes: plan, lay out, and plan again with less, until it fits.

budget ─────┬───────────────────────────────┬─ what the footprint may be
            │ slack: doubled until a layout  │
peak budget ▼ fits, then halved              ▼ what the planner is told
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from lowtide.planning.attempt import Attempt
from lowtide.units import Bytes

__all__ = ["lower_until_it_fits"]

_logger = logging.getLogger("lowtide")

_MOST_TRIES = 10
_FINEST_SHARE = 512  # of the budget: slack is not told apart more finely


def lower_until_it_fits(
    first: Attempt,
    try_peak_budget: Callable[[Bytes], Attempt],
    *,
    least_bytes: Bytes,
    resolution_bytes: Bytes,
    is_over: Callable[[], bool],
) -> Attempt:
    """Bisect the slack between the budget and the peak that the planner may reach.

    Args:
        first: What came of the whole budget; its footprint exceeds it, its peak does not.
        try_peak_budget: Plans for a peak, lays out the plan, and holds that against the whole budget.
        least_bytes: No peak can be below this.
        resolution_bytes: Slack is not told apart more finely.
        is_over: True ends the search.

    Returns:
        The shortest try that fits; without one, that of the smallest footprint.
    """
    budget_bytes = first.budget_bytes
    resolution_bytes = max(resolution_bytes, budget_bytes // _FINEST_SHARE, 1)
    most_slack_bytes = budget_bytes - least_bytes
    too_little_bytes = 0  # slack with which no try has fitted
    enough_bytes: Bytes | None = None
    slack_bytes = first.needed_bytes - budget_bytes
    best = first
    for _ in range(_MOST_TRIES):
        slack_bytes = min(slack_bytes, most_slack_bytes)
        if is_over() or slack_bytes <= too_little_bytes:
            break
        peak_budget_bytes = budget_bytes - slack_bytes
        tried = try_peak_budget(peak_budget_bytes)
        _logger.debug("peak budget %d: footprint %d, budget %d", peak_budget_bytes, tried.needed_bytes, budget_bytes)
        best = _better_of(best, tried)
        if tried.fits and tried.replayed.duration <= first.replayed.duration:  # the addresses cost nothing
            break
        if tried.fits:
            enough_bytes = slack_bytes
        elif tried.replayed.peak_bytes <= peak_budget_bytes:
            too_little_bytes = slack_bytes
        else:  # less than the planner can do
            most_slack_bytes = slack_bytes
        upper_bytes = min(most_slack_bytes, enough_bytes if enough_bytes is not None else 2 * slack_bytes)
        if upper_bytes - too_little_bytes <= resolution_bytes:
            break
        is_bracketed = upper_bytes in (most_slack_bytes, enough_bytes)
        slack_bytes = (too_little_bytes + upper_bytes + 1) // 2 if is_bracketed else upper_bytes
    return best


def _better_of(best: Attempt, tried: Attempt) -> Attempt:
    if best.fits and tried.fits:
        return min(best, tried, key=lambda attempt: (attempt.replayed.duration, attempt.needed_bytes))
    if best.fits or tried.fits:
        return best if best.fits else tried
    return min(best, tried, key=lambda attempt: attempt.needed_bytes)
