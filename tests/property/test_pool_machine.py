"""The native pool and the reference do the same, call for call: answers, errors and every block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lowtide.errors import InputError
from lowtide.ir import End
from lowtide.ir.block import SLAB, Fit
from lowtide.pool.native import NativePool
from lowtide.pool.protocol import Pool, SmallRequests
from lowtide.pool.reference import ReferencePool

ends = st.sampled_from(End)
fits = st.sampled_from(Fit)
picks = st.integers(0, 2**16)
sizes = st.integers(0, 700) | st.integers(0, 12).map(lambda units: 64 * units)
odd_sizes = st.sampled_from([-(2**70), -(2**63), -1, 10**6, 2**62, 2**63 - 65, 2**63 - 64, 2**63 - 1, 2**63, 2**70])
strange_owners = st.sampled_from(["nobody", SLAB, "", "o0"])


@dataclass(frozen=True)
class Failure:
    text: str


class PoolMachine(RuleBasedStateMachine):
    """Drives both pools with the same calls."""

    def __init__(self) -> None:
        super().__init__()
        self.pools: tuple[Pool, Pool]
        self.live: list[str] = []
        self.num_named = 0

    @initialize(
        alignment_bytes=st.sampled_from([1, 16, 64, 512]),
        num_units=st.integers(1, 120),
        num_slab_units=st.sampled_from([0, 1, 2, 3, 4, 12]),
        largest_share=st.integers(0, 4),
    )
    def build(self, alignment_bytes: int, num_units: int, num_slab_units: int, largest_share: int) -> None:
        slab_bytes = alignment_bytes * num_slab_units
        small = SmallRequests(slab_bytes * largest_share // 4, slab_bytes) if num_slab_units else None
        self.unit = alignment_bytes
        self.pools = (
            NativePool(capacity_bytes=alignment_bytes * num_units, alignment_bytes=alignment_bytes, small=small),
            ReferencePool(capacity_bytes=alignment_bytes * num_units, alignment_bytes=alignment_bytes, small=small),
        )

    def both(self, call: Callable[[Pool], object]) -> object:
        answers = []
        for pool in self.pools:
            try:
                answers.append(call(pool))
            except InputError as error:
                answers.append(Failure(str(error)))
        assert answers[0] == answers[1]
        return answers[0]

    def new_name(self) -> str:
        self.num_named += 1
        return f"o{self.num_named}"

    def owner(self, pick: int) -> str:
        return self.live[pick % len(self.live)]

    def allocate_in_both(self, size_bytes: int, end: End, fit: Fit) -> None:
        name = self.new_name()
        answer = self.both(lambda pool: pool.allocate(name, size_bytes=size_bytes, end=end, fit=fit))
        if isinstance(answer, int):
            self.live.append(name)

    @rule(size_bytes=sizes, end=ends, fit=fits)
    def allocate(self, size_bytes: int, end: End, fit: Fit) -> None:
        self.allocate_in_both(size_bytes, end, fit)

    @rule(num_units=st.integers(1, 9), end=ends, fit=fits)
    def allocate_units(self, num_units: int, end: End, fit: Fit) -> None:
        self.allocate_in_both(self.unit * num_units, end, fit)

    @rule(size_bytes=odd_sizes, end=ends, fit=fits)
    def allocate_an_odd_size(self, size_bytes: int, end: End, fit: Fit) -> None:
        answer = self.both(lambda pool: pool.allocate("odd", size_bytes=size_bytes, end=end, fit=fit))
        assert isinstance(answer, Failure) == (size_bytes < 0)
        assert not isinstance(answer, int)

    @rule(pick=picks, num_units=st.integers(0, 8), end=ends)
    def take(self, pick: int, num_units: int, end: End) -> None:
        holes = [block for block in self.pools[1].blocks() if block.owner is None]
        if not holes:
            return
        hole, name = holes[pick % len(holes)], self.new_name()
        size_bytes = self.unit * num_units
        answer = self.both(
            lambda pool: pool.take(name, hole_offset=hole.offset, size_bytes=size_bytes, end=end),
        )
        assert isinstance(answer, int) == (hole.size_bytes >= size_bytes)
        if isinstance(answer, int):
            self.live.append(name)

    @rule(hole_offset=picks | st.sampled_from([-1, 2**63, -(2**70)]), size_bytes=sizes | odd_sizes)
    def take_anywhere(self, hole_offset: int, size_bytes: int) -> None:
        name = self.new_name()
        if isinstance(self.both(lambda pool: pool.take(name, hole_offset=hole_offset, size_bytes=size_bytes)), int):
            self.live.append(name)

    @precondition(lambda self: self.live)
    @rule(pick=picks)
    def free(self, pick: int) -> None:
        name = self.live.pop(pick % len(self.live))
        assert self.both(lambda pool: pool.free(name)) is None
        assert isinstance(self.both(lambda pool: pool.free(name)), Failure)  # twice

    @precondition(lambda self: self.live)
    @rule(pick=picks, end=ends)
    def slide(self, pick: int, end: End) -> None:
        blocks = self.pools[1].blocks()
        beside_holes = [
            block.owner
            for block, neighbour in [*pairwise(blocks), *pairwise(reversed(blocks))]
            if block.owner not in (None, SLAB) and neighbour.owner is None
        ]
        name = self.owner(pick) if pick % 4 == 0 or not beside_holes else beside_holes[pick % len(beside_holes)]
        assert name is not None
        self.both(lambda pool: pool.slide(name, end=end))

    @precondition(lambda self: self.live)
    @rule(pick=picks)
    def pin(self, pick: int) -> None:
        name = self.owner(pick)
        assert self.both(lambda pool: pool.pin(name)) is None

    @precondition(lambda self: self.live)
    @rule(pick=picks)
    def unpin(self, pick: int) -> None:
        name = self.owner(pick)
        self.both(lambda pool: pool.unpin(name))

    @precondition(lambda self: self.live)
    @rule(pick=picks)
    def hand_over(self, pick: int) -> None:
        old, new = self.live.pop(pick % len(self.live)), self.new_name()
        assert self.both(lambda pool: pool.hand_over(old, new_owner=new)) is None
        self.live.append(new)

    @precondition(lambda self: self.live)
    @rule(pick=picks, other=picks)
    def use_a_name_twice(self, pick: int, other: int) -> None:
        name, target = self.owner(pick), self.owner(other)
        assert isinstance(self.both(lambda pool: pool.allocate(name, size_bytes=1)), Failure)
        assert isinstance(self.both(lambda pool: pool.hand_over(name, new_owner=target)), Failure)

    @rule(name=strange_owners)
    def ask_for_a_stranger(self, name: str) -> None:
        calls: list[Callable[[Pool], object]] = [
            lambda pool: pool.free(name),
            lambda pool: pool.pin(name),
            lambda pool: pool.unpin(name),
            lambda pool: pool.slide(name, end=End.LOW),
            lambda pool: pool.hand_over(name, new_owner="new"),
        ]
        for call in calls:
            assert isinstance(self.both(call), Failure)
        assert isinstance(self.both(lambda pool: pool.allocate(SLAB, size_bytes=1)), Failure)

    @invariant()
    def they_agree(self) -> None:
        if not hasattr(self, "pools"):
            return
        native, reference = self.pools
        assert native.blocks() == reference.blocks()
        assert native.small_blocks() == reference.small_blocks()
        assert native.capacity_bytes == reference.capacity_bytes
        assert native.free_bytes == reference.free_bytes
        assert native.largest_hole_bytes == reference.largest_hole_bytes
        assert native.high_water_bytes == reference.high_water_bytes


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=200, stateful_step_count=80, deadline=None, derandomize=True)
