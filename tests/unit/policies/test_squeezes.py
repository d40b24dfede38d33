"""What is evicted to slide the rest together, and where it moves least, as worked out the long way."""

from __future__ import annotations

import random

import pytest

from lowtide import _online

FREE, FORBIDDEN, MOVABLE = _online.FREE, _online.FORBIDDEN, _online.MOVABLE


def random_rows(rng: random.Random, *, draw_worth: bool) -> tuple[list[int], list[float]]:
    sizes = [rng.randint(1, 20) for _ in range(rng.randint(1, 30))]
    kinds = rng.choices(("free", "offered", "movable", "fixed"), (3, 6, 1, 1), k=len(sizes))
    worth_by_kind = {"free": FREE, "movable": MOVABLE, "fixed": FORBIDDEN}
    return sizes, [
        worth_by_kind.get(kind, rng.choice([1e-9, 1.0, 1e9]) * rng.random() if draw_worth else float(rng.randint(0, 3)))
        for kind in kinds
    ]


def runs_of(worths: list[float]) -> list[list[int]]:
    """Positions between blocks that cannot move."""
    runs: list[list[int]] = [[]]
    for position, worth in enumerate(worths):
        if worth == FORBIDDEN:
            runs.append([])
        else:
            runs[-1].append(position)
    return runs


def squeeze_of(sizes: list[int], worths: list[float], run: list[int], size: int) -> tuple[float, list[int]]:
    """The cheapest per byte until the bytes suffice, then without those, the dearest first, that are not needed."""
    free = sum(sizes[position] for position in run if worths[position] == FREE)
    offered = sorted(
        (position for position in run if worths[position] >= 0), key=lambda at: (worths[at] / sizes[at], at)
    )
    taken: list[int] = []
    while free < size and len(taken) < len(offered):
        taken.append(offered[len(taken)])
        free += sizes[taken[-1]]
    if free < size:
        return float("inf"), []
    kept: list[int] = []
    for position in reversed(taken):
        if free - sizes[position] >= size:
            free -= sizes[position]
        else:
            kept.append(position)
    return sum((worths[position] for position in kept), start=0.0), kept


def slide_of(sizes: list[int], worths: list[float], size: int) -> tuple[int, int, int]:
    best = (-1, -1, -1)
    for run in runs_of(worths):
        for first in run:
            for last in range(first, run[-1] + 1):
                stretch = range(first, last + 1)
                free = sum(sizes[position] for position in stretch if worths[position] == FREE)
                owned = sum(sizes[first : last + 1]) - free
                if free >= size and (best[2] < 0 or owned < best[2]):
                    best = (first, last, owned)
    return best


@pytest.mark.parametrize("draw_worth", [True, False])
def test_the_cheapest_per_byte_go_from_the_run_where_that_costs_least(draw_worth: bool) -> None:
    num_found = 0
    for seed in range(1500):
        rng = random.Random(seed)
        sizes, worths = random_rows(rng, draw_worth=draw_worth)
        size = rng.randint(1, 80)
        wanted = min((squeeze_of(sizes, worths, run, size) for run in runs_of(worths)), key=lambda found: found[0])
        assert _online.choose_squeeze(sizes, worths, size) == wanted, seed
        num_found += wanted[0] < float("inf")
    assert num_found > 500


def test_blocks_slide_where_the_fewest_bytes_move() -> None:
    num_found = 0
    for seed in range(1500):
        rng = random.Random(seed)
        sizes, worths = random_rows(rng, draw_worth=False)
        size = rng.randint(1, 30)
        wanted = slide_of(sizes, worths, size)
        first, last, owned = _online.choose_slide(sizes, worths, size)
        assert owned == wanted[2], seed
        if owned < 0:
            continue
        num_found += 1
        free = sum(sizes[at] for at in range(first, last + 1) if worths[at] == FREE)
        assert free >= size
        assert sum(sizes[first : last + 1]) - free == owned
        assert FORBIDDEN not in worths[first : last + 1]
    assert num_found > 500


def test_a_block_that_must_stay_may_lie_elsewhere_but_gives_no_bytes() -> None:
    # hole 4 | stays 9 | a 4 for 8 | hole 4 | fixed | b 8 for 9
    sizes, worths = [4, 9, 4, 4, 1, 8], [FREE, MOVABLE, 8.0, FREE, FORBIDDEN, 9.0]
    assert _online.choose_squeeze(sizes, worths, 8) == (0.0, [])
    assert _online.choose_slide(sizes, worths, 8) == (0, 3, 13)
    assert _online.choose_squeeze(sizes, worths, 12) == (8.0, [2])
    assert _online.choose_squeeze(sizes, worths, 13) == (float("inf"), [])
