"""What each policy chooses, on cases worked out by hand, and as the native code chooses."""

from __future__ import annotations

import random

import pytest

from lowtide import _online
from lowtide.ir import Block, Interval
from lowtide.policies.facts import GivenFacts, ValueFacts
from lowtide.policies.parts import Part, without
from lowtide.policies.table import policy_named
from lowtide.policies.window import cheapest_window

A, HOLE, B, C, PINNED, D = (
    Block(0, 100, "a"),
    Block(100, 50, None),
    Block(150, 300, "b"),
    Block(450, 100, "c"),
    Block(550, 100, "p", is_pinned=True),
    Block(650, 400, "d"),
)
BLOCKS = (A, HOLE, B, C, PINNED, D)
FACTS = GivenFacts(
    {
        "a": ValueFacts(projected_cost=12, staleness=2, neighborhood_cost=90, component_cost=9, own_cost=5, chance=0.9),
        "b": ValueFacts(
            projected_cost=10, staleness=5, neighborhood_cost=10, component_cost=800, own_cost=4, chance=0.2
        ),
        "c": ValueFacts(
            projected_cost=1, staleness=1, neighborhood_cost=1.5, component_cost=7, own_cost=0.4, chance=0.3
        ),
        "d": ValueFacts(
            projected_cost=30, staleness=4, neighborhood_cost=80, component_cost=80, own_cost=3, chance=0.4
        ),
    }
)


@pytest.mark.parametrize(
    ("name", "position"),
    [
        # C/s:            a 6, b 2, c 1, d 7.5.      400 bytes: hole+b+c = 3, a+hole+b = 8, d = 7.5
        ("coop", Interval(2, 4)),
        ("coop-paper", Interval(2, 4)),
        ("dtr", Interval(2, 3)),  # C/(s·size):   a .06, b .0067, c .01, d .019
        ("dte", Interval(2, 3)),  # + free:       a 6/150, b 2/350, c .01, d .019
        ("lru", Interval(2, 3)),  # s:            b 5
        ("size", Interval(5, 6)),  # size:        d 400
        ("random", Interval(2, 3)),  # chance:    b .2
        ("dtr-ideal", Interval(2, 3)),  # e*/(s·size): a .45, b .0067, c .015, d .05
        ("dtr-eq", Interval(0, 1)),  # a .045, b .53, c .07, d .05
        ("dtr-local", Interval(5, 6)),  # c/(s·size): a .025, b .0027, c .004, d .0019
        ("msps", Interval(3, 4)),  # C/size:      a .12, b .033, c .01, d .075
    ],
)
def test_a_choice_worked_out_by_hand(name: str, position: Interval) -> None:
    assert policy_named(name).choose(BLOCKS, size_bytes=400, facts=FACTS) == position


def test_coop_one_by_one_takes_the_least_cost_by_staleness() -> None:
    assert without(policy_named("coop"), [Part.WINDOW]).choose(BLOCKS, size_bytes=400, facts=FACTS) == Interval(3, 4)


def test_a_window_is_shrunk_from_the_left_and_of_equal_ones_the_lowest_wins() -> None:
    blocks = (Block(0, 100, "a"), Block(100, 100, "b"), Block(200, 200, "c"), Block(400, 200, "d"))
    facts = GivenFacts({name: ValueFacts(projected_cost=1) for name in "abcd"})
    assert policy_named("coop").choose(blocks, size_bytes=200, facts=facts) == Interval(2, 3)
    assert policy_named("coop").choose(blocks[:2], size_bytes=200, facts=facts) == Interval(0, 2)
    assert policy_named("coop").choose(blocks, size_bytes=601, facts=facts) is None


def random_arena(rng: random.Random, *, draw_worth: bool) -> tuple[list[Block], list[float]]:
    blocks: list[Block] = []
    worths: list[float] = []
    offset = 0
    for index in range(rng.randint(1, 40)):
        size_bytes = rng.randint(1, 20)
        worth = rng.choice([1e-9, 1.0, 1e9]) * rng.random() if draw_worth else float(rng.randint(0, 3))
        is_free = rng.random() < 0.3 and (not blocks or blocks[-1].owner is not None)
        is_pinned = not is_free and rng.random() < 0.1
        blocks.append(Block(offset, size_bytes, None if is_free else str(index), is_pinned))
        worths.append(_online.FREE if is_free else _online.FORBIDDEN if is_pinned else worth)
        offset += size_bytes
    return blocks, worths


def test_bytes_beyond_the_request_count_as_requests_to_come() -> None:
    """a: 2 for one request; b: 3 for three, of which 2.5 count: 1.2."""
    blocks = (Block(0, 100, "a"), Block(100, 300, "b"), Block(400, 10_000, "pinned", is_pinned=True))
    facts = GivenFacts({"a": ValueFacts(projected_cost=2), "b": ValueFacts(projected_cost=3)})
    assert policy_named("coop").choose(blocks, size_bytes=100, facts=facts) == Interval(1, 2)
    assert policy_named("coop-paper").choose(blocks, size_bytes=100, facts=facts) == Interval(0, 1)
    assert without(policy_named("coop"), [Part.SURPLUS]).choose(blocks, size_bytes=100, facts=facts) == Interval(0, 1)
    # 100 bytes are at most a 64th of an arena of 6,400
    small = (*blocks[:2], Block(400, 6_000, "pinned", is_pinned=True))
    assert policy_named("coop").choose(small, size_bytes=100, facts=facts) == Interval(1, 2)
    smaller = (*blocks[:2], Block(400, 5_999, "pinned", is_pinned=True))
    assert policy_named("coop").choose(smaller, size_bytes=100, facts=facts) == Interval(0, 1)


@pytest.mark.parametrize("surplus", [1.0, 2.5])
@pytest.mark.parametrize("draw_worth", [True, False])
def test_the_native_window_is_the_one_that_the_twin_finds(draw_worth: bool, surplus: float) -> None:
    """Also where the sums of neighbouring windows differ by 18 orders of magnitude, and where many are equal."""
    num_found = 0
    for seed in range(1500):
        rng = random.Random(seed)
        blocks, worths = random_arena(rng, draw_worth=draw_worth)
        size_bytes = rng.randint(1, 80)
        worth_of = dict(zip(blocks, worths, strict=True)).__getitem__
        twin = cheapest_window(blocks, size_bytes=size_bytes, worth_of=worth_of, surplus=surplus)
        sizes = [block.size_bytes for block in blocks]
        first, last = _online.choose_window(sizes, worths, size_bytes, surplus=surplus)
        assert (first, last) == ((-1, -1) if twin is None else (twin.start, twin.end - 1)), seed
        num_found += twin is not None
    assert num_found > 500


def test_gradients_are_priced_without_their_staleness_where_there_are_two_tiers() -> None:
    blocks = (Block(0, 100, "gradient"), Block(100, 100, "activation"))
    facts = GivenFacts(
        {
            "gradient": ValueFacts(projected_cost=10, staleness=100, is_backward=True),
            "activation": ValueFacts(projected_cost=1, staleness=1),
        }
    )
    assert policy_named("coop").choose(blocks, size_bytes=100, facts=facts) == Interval(1, 2)
    assert policy_named("coop-paper").choose(blocks, size_bytes=100, facts=facts) == Interval(0, 1)
