"""The smallest budget known to work: asked for, and near to what is possible though the plain peak is far."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.planning.smallest import smallest_known_to_work


def asked_for(enough_bytes: int, *, met_bytes: int, least_bytes: int, known_bytes: int) -> tuple[int, list[int]]:
    """What is found where every budget from ``enough_bytes`` on works, and the budgets that were tried."""
    tried: list[int] = []

    def works(budget_bytes: int) -> bool:
        tried.append(budget_bytes)
        return budget_bytes >= enough_bytes

    found = smallest_known_to_work(
        met_bytes, works, least_bytes=least_bytes, known_bytes=known_bytes, is_over=lambda: False
    )
    return found, tried


@pytest.mark.parametrize("excess_percent", [0, 1, 3, 7, 15, 40])
def test_it_is_near_to_what_is_enough_though_the_plain_peak_is_far(excess_percent: int) -> None:
    enough_bytes = 1_000_000 * (100 + excess_percent) // 100
    found, tried = asked_for(enough_bytes, met_bytes=1_000_000, least_bytes=600_000, known_bytes=100_000_000)
    assert found in tried
    assert enough_bytes <= found <= enough_bytes * 105 // 100 + 20_000
    assert len(tried) <= 8


@given(
    enough=st.integers(1, 10**6), least=st.integers(1, 10**6), met=st.integers(1, 10**6), known=st.integers(1, 10**6)
)
def test_it_works_and_was_asked_for_or_known(enough: int, least: int, met: int, known: int) -> None:
    least, met, known = sorted((least, met, known))
    found, tried = asked_for(min(enough, known), met_bytes=met, least_bytes=least, known_bytes=known)
    assert found >= min(enough, known)
    assert found == known or found in tried
    assert all(least <= budget < known for budget in tried)


def test_nothing_is_asked_where_time_is_over() -> None:
    def refuse(budget_bytes: int) -> bool:
        raise AssertionError(budget_bytes)

    assert smallest_known_to_work(10, refuse, least_bytes=5, known_bytes=99, is_over=lambda: True) == 99
