"""Two-phase rounding: S from shares, and the least R that goes with it."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np

from lowtide.planners.checkmate.rounding import complete_runs, kept_shares, rounded_at_half, rounded_by_chance

A, B, C, D = range(4)


def kept(*pairs: tuple[int, int]) -> Any:
    array = np.zeros((5, 4), dtype=np.bool_)
    for stage, storage in pairs:
        array[stage, storage] = True
    return array


def test_what_is_kept_is_not_computed_again(make_bench: Any) -> None:
    instance = make_bench().instance
    everything = kept((1, A), (2, B), (3, B))
    assert complete_runs(instance, everything) == frozenset()


def test_what_is_not_kept_is_computed_with_its_inputs(make_bench: Any) -> None:
    instance = make_bench().instance
    assert complete_runs(instance, kept((1, A))) == {(3, B), (3, A)}
    assert complete_runs(instance, kept((1, A), (3, A))) == {(2, A), (3, B)}  # a is kept from stage 2 on
    assert complete_runs(instance, kept((1, A), (2, A), (3, A))) == {(3, B)}
    assert complete_runs(instance, kept()) == {(1, A), (3, A), (3, B)}


def test_what_cannot_be_made_again_is_kept_whatever_the_rounding_says(make_bench: Any) -> None:
    instance = make_bench(makes_again=((0,), (), (2,), (3,))).instance
    assert complete_runs(instance, kept((1, A))) == frozenset()
    instance = make_bench(makes_again=((), (1,), (2,), (3,))).instance
    assert complete_runs(instance, kept()) == {(3, B)}


def test_a_recomputation_that_reads_what_is_made_later_is_no_plan(make_bench: Any) -> None:
    instance = make_bench(reads_again=((), (0, 3), (), (1,))).instance
    assert complete_runs(instance, kept((1, A))) is None


def test_shares_are_read_off_and_rounded(make_bench: Any) -> None:
    bench = make_bench()
    values = np.full(bench.program.num_variables, 0.4)
    values[bench.variables.kept[2, A]] = 0.6
    values[bench.variables.kept[3, A]] = 1.0 + 1e-9
    shares = kept_shares(bench.instance, bench.variables, values)
    assert shares.shape == (5, 4)
    assert shares[2, A] == 0.6
    assert shares[3, A] == 1.0
    assert shares[1, B] == 0.0  # b is not made before stage 1
    assert np.argwhere(rounded_at_half(shares)).tolist() == [[2, A], [3, A]]


def test_rounding_by_chance_follows_the_shares_and_the_seed(make_bench: Any) -> None:
    shares = np.array([[0.0, 1.0, 0.5]])
    drawn = list(islice(rounded_by_chance(shares, seed=1), 200))
    counts = np.sum(drawn, axis=0)[0]
    assert counts[0] == 0
    assert counts[1] == 200
    assert 60 < counts[2] < 140
    again = list(islice(rounded_by_chance(shares, seed=1), 200))
    assert all(np.array_equal(one, other) for one, other in zip(drawn, again, strict=True))


def test_what_can_no_longer_be_made_again_is_kept(make_bench: Any) -> None:
    instance = make_bench(last_stages=(3, 2, 3, 3)).instance  # b not in stage 3
    assert complete_runs(instance, kept((1, A))) == {(2, B), (2, A)}
    assert complete_runs(instance, kept((1, A), (2, B))) == frozenset()
