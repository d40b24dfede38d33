"""Figures of a session: read from the shim's, told in a few lines."""

from __future__ import annotations

from dataclasses import fields

import pytest

from lowtide.runtime.stats import SessionStats

FIGURES = {
    "capacity": 2**20,
    "resident_bytes": 1000,
    "peak_bytes": 2**19,
    "peak_demand_bytes": 3 * 2**20,
    "has_thrashed": False,
    "num_calls": 10,
    "num_evictions": 4,
    "bytes_evicted": 4096,
    "num_recomputes": 3,
    "num_searches": 4,
    "num_compactions": 1,
    "bytes_moved": 512,
    "num_frozen": 2,
    "num_foreign": 5,
    "bytes_foreign": 2048,
    "recompute_seconds": 0.5,
    "wait_seconds": 0.75,
    "base_cost": 200.0,
    "recompute_cost": 50.0,
    "search_seconds": 0.002,
    "fragmentation_sum": 1.0,
}


def _stats(**changes: float) -> SessionStats:
    return SessionStats.from_shim({**FIGURES, **changes}, budget_bytes=2**20)


def test_ratios_are_made_of_sums() -> None:
    stats = _stats()
    assert stats.recompute_cost_percent == 25.0
    assert stats.fragmentation == 0.25
    assert stats.mean_search_us == pytest.approx(500.0)


def test_nothing_is_divided_by_zero() -> None:
    stats = _stats(base_cost=0.0, num_searches=0)
    assert (stats.recompute_cost_percent, stats.fragmentation, stats.mean_search_us) == (0.0, 0.0, 0.0)


def test_a_dict_has_every_figure() -> None:
    stats = _stats().with_survivors({"num_survivors": 3, "num_restored": 2, "num_lost": 1})
    told = stats.as_dict()
    for field in fields(stats):
        assert getattr(stats, field.name) in told.values(), field.name
    assert told["allocated_bytes.all.peak"] == 2**19
    assert (told["num_survivors"], told["num_restored"], told["num_lost"]) == (3, 2, 1)


def test_lines_to_print() -> None:
    lines = str(_stats()).splitlines()
    assert lines == [
        "budget 1.00 MiB: peak 512.0 KiB, 1000 B in use at the end",
        "10 ops, 3 recomputed (25.0 % more work, 0.50 s)",
        "4 evictions of 4.00 KiB, 4 searches of 500 us, fragmentation 25.0 %, 1 compaction",
        "2 values could no longer be evicted (normal, e.g. after a step): what they came from is overwritten or gone",
        "5 allocations of other threads (2.00 KiB in all) outside the budget",
    ]


def test_what_is_zero_needs_no_line() -> None:
    quiet = str(_stats(num_frozen=0, num_foreign=0))
    assert len(quiet.splitlines()) == 3
    survived = _stats().with_survivors({"num_survivors": 3, "num_restored": 2, "num_lost": 1})
    assert str(survived).endswith("3 tensors outlived the block: 2 recomputed outside the arena, 1 lost")


def test_what_cannot_be_evicted_is_no_news_where_nothing_was() -> None:
    """Every optimizer's step overwrites what activations came from: in a budget that is large enough, too."""
    assert "no longer be evicted" not in str(_stats(num_evictions=0))


def test_one_of_a_thing_is_told_as_one() -> None:
    changes = dict.fromkeys(("num_calls", "num_evictions", "num_searches", "num_frozen", "num_foreign"), 1)
    told = str(_stats(**changes).with_survivors({"num_survivors": 1, "num_restored": 1, "num_lost": 0}))
    for piece in ("1 op,", "1 eviction ", "1 search ", "\n1 value could", "\n1 allocation of", "\n1 tensor outlived"):
        assert piece in told, piece
