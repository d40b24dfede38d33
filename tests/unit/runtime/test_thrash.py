"""What is said of a budget that is far too small."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from test_stats import FIGURES

from lowtide.runtime.stats import SessionStats
from lowtide.runtime.thrash import Thrash, budget_to_try


def _thrash(elapsed_seconds: float, **changes: float) -> Thrash:
    stats = SessionStats.from_shim({**FIGURES, **changes}, budget_bytes=2**20)
    return Thrash.of(stats, elapsed_seconds=elapsed_seconds)


def test_shares_and_the_next_budget() -> None:
    thrash = _thrash(1.5)
    assert thrash.wait_percent == 50.0
    assert thrash.recomputes_per_op == 0.3
    assert thrash.enough_bytes == 3 * 2**20
    assert thrash.next_bytes == 2 * 2**20
    assert thrash.as_dict()["next_bytes"] == 2 * 2**20


def test_halfway_to_what_is_enough_is_tried_and_nothing_smaller() -> None:
    assert budget_to_try(100, enough_bytes=301) == 200
    assert budget_to_try(100, enough_bytes=99) == 100


def test_one_line_says_what_happens_and_what_to_do() -> None:
    assert str(_thrash(1.0)) == (
        "the budget of 1.00 MiB is too small: 75 % of the time goes into recomputation, 0.3 recomputed ops for each "
        "new one; try 2.00 MiB, which should be comfortable (less may do): of 3.00 MiB nothing would have been evicted "
        "so far"
    )


def test_nothing_is_divided_by_zero_and_no_smaller_budget_is_advised() -> None:
    thrash = _thrash(0.0, num_calls=0, peak_demand_bytes=100)
    assert thrash.wait_percent == 100.0
    assert thrash.next_bytes == 2**20
