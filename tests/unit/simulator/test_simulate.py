"""Simulations worked out by hand, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from programs import MIB, chain, leaf, op, release, residual_chain, trace_of

from lowtide.errors import InputError, UnitError
from lowtide.ir import Block, Call, Interval
from lowtide.policies.coop import Coop
from lowtide.policies.parts import Part, without
from lowtide.policies.protocol import Facts
from lowtide.policies.table import POLICIES, policy_named
from lowtide.referee import check_trace
from lowtide.simulator.budgets import budget_of, capacity_of
from lowtide.simulator.program import compile_trace
from lowtide.simulator.result import RegionKind
from lowtide.simulator.run import simulate
from lowtide.simulator.sweep import minimum_budget, sweep
from lowtide.testing import chain_graph


def test_without_pressure_nothing_is_evicted() -> None:
    # x, a0 ... a7, and one gradient: 10 MiB
    result = simulate(chain(8), budget="100%")
    assert (result.completed, result.overhead, result.num_recomputes, result.num_evictions) == (True, 1.0, 0, 0)
    assert result.peak_bytes == result.plain_peak_bytes == 10 * MIB
    assert result.num_searches == 0
    assert result.mean_search_us == result.fragmentation == 0.0


def test_one_eviction_worked_out_by_hand() -> None:
    """Three values of 1 MiB fit; a and b are made from x, c needs room: b costs as much as a, but a is staler."""
    trace = trace_of(
        leaf("x"),
        op("x -> a", cost=1000),
        op("x -> b", cost=1000),
        op("b -> c", cost=1000),
        *release("c"),
        op("a -> d", cost=1000),
        *release("d"),
    )
    result = simulate(trace, budget=3 * MIB)
    # a goes for c. It is made again once c is released, then d finds no room: b goes, nobody needs it again.
    assert (result.completed, result.num_recomputes, result.num_evictions) == (True, 1, 2)
    assert result.overhead == 5000 / 4000
    assert (result.num_searches, result.fragmentation) == (2, 0.0)
    assert result.peak_bytes == result.footprint_bytes == 3 * MIB
    assert result.ratio == (3 - 3) / (4 - 3)


def test_fragmentation_is_the_free_share_just_after_a_request_that_needed_eviction() -> None:
    """b (2 MiB) goes for c (1 MiB): 1 of 4 MiB is free just after."""
    trace = trace_of(leaf("x"), op("x -> b", size_bytes=2 * MIB), op("x -> l"), op("l -> c"))
    assert simulate(trace, budget=4 * MIB, policy="size").fragmentation == 0.25


def test_an_op_in_place_takes_no_bytes_for_coop_and_a_copy_for_dtr() -> None:
    trace = trace_of(leaf("x"), op("x -> a"), op("a -> b", in_place=True))
    assert simulate(trace, budget=2 * MIB).peak_bytes == 2 * MIB
    assert simulate(trace, budget=3 * MIB, policy="dtr").peak_bytes == 3 * MIB
    assert simulate(trace, budget=2 * MIB, policy="dtr").reason.startswith(f"no room for {MIB} bytes")


def test_a_ghost_comes_back_beside_the_bytes_it_once_had() -> None:
    """b overwrites a; d was made from a, is evicted for e, and made again from a ghost that is made again first."""
    trace = trace_of(
        leaf("x"),
        op("x -> a"),
        op("a -> d"),
        op("a -> b", in_place=True),
        op("x -> e", size_bytes=2 * MIB),
        *release("e"),
        op("d b -> f"),
    )
    result = simulate(trace, budget=4 * MIB, records_trace=True)
    assert (result.completed, result.num_evictions, result.num_recomputes) == (True, 1, 2)
    assert result.trace is not None
    again = [event.outputs for event in result.trace.events if isinstance(event, Call) and event.recompute]
    assert again == [("a",), ("d",)]
    assert check_trace(result.trace).num_recomputes == 2


def test_a_budget_that_cannot_work_says_why() -> None:
    result = simulate(chain(8), budget=2 * MIB)
    assert not result.completed
    assert result.reason == f"no room for {MIB} bytes in an arena of {2 * MIB}"
    figures = result.as_dict()
    assert (figures["policy"], figures["budget_bytes"], figures["completed"]) == ("coop", 2 * MIB, False)
    assert [figures[key] for key in ("overhead", "num_recomputes", "num_evictions", "peak_bytes")] == [None] * 4


def test_the_thrash_limit_ends_a_run() -> None:
    long = chain(64)
    assert simulate(long, budget=9 * MIB, thrash_limit=50).completed
    result = simulate(long, budget=9 * MIB, thrash_limit=1.2)
    assert not result.completed
    assert result.reason == "recomputation has taken more time than allowed"


def test_a_recomputation_that_goes_in_circles_keeps_what_it_still_awaits() -> None:
    """Two branches read y; while one of them is recomputed, y and the other push each other out."""
    compiled = compile_trace(residual_chain(12, num_inner=4))
    free = without(policy_named("coop"), [Part.HOLDING])
    holding, losing = (simulate(compiled, budget=28 * MIB, policy=policy, thrash_limit=50) for policy in ("coop", free))
    assert holding.completed
    assert losing.completed
    assert holding.num_recomputes < losing.num_recomputes
    in_python = simulate(compiled, budget=28 * MIB, thrash_limit=50, chooses_in_python=True)
    assert in_python == holding


def test_budgets_are_bytes_shares_and_ratios() -> None:
    compiled = compile_trace(chain(8))
    assert (compiled.peak_bytes, compiled.floor_bytes) == (10 * MIB, 2 * MIB)  # x and the last gradient stay
    assert budget_of(compiled, "50%") == 5 * MIB
    assert budget_of(compiled, "r=0.5") == 6 * MIB
    assert budget_of(compiled, "6 MiB") == budget_of(compiled, 6 * MIB) == 6 * MIB
    assert capacity_of(compiled, 6 * MIB + 4095) == 6 * MIB
    with pytest.raises(UnitError, match="For a share of the plain peak write '60%'"):
        budget_of(compiled, 60)
    with pytest.raises(UnitError, match="the ratio must be at most 10"):
        budget_of(compiled, "r=50")


def test_a_graph_is_simulated_in_its_order() -> None:
    graph = chain_graph(12)
    result = simulate(graph, budget="100%")
    assert (result.completed, result.overhead, result.num_evictions) == (True, 1.0, 0)


class Lowest:
    """Evicts the lowest block that may go."""

    name = "lowest"

    def choose(self, blocks: Sequence[Block], *, size_bytes: int, facts: Facts) -> Interval | None:
        for index, block in enumerate(blocks):
            if block.owner is not None and not block.is_pinned:
                return Interval(index, index + 1)
        return None


class Wrong(Lowest):
    def __init__(self, chosen: object) -> None:
        self._chosen = chosen

    def choose(self, blocks: Sequence[Block], *, size_bytes: int, facts: Facts) -> Interval | None:
        return self._chosen  # type: ignore[return-value]  # on purpose


def test_a_policy_of_ones_own_is_asked() -> None:
    result = simulate(chain(8), budget="80%", policy=Lowest())
    assert (result.policy, result.completed) == ("lowest", True)
    assert result.num_evictions > 0


@pytest.mark.parametrize(
    ("chosen", "text"),
    [
        (Interval(0, 1), "chose the block at offset 0, which is pinned"),
        (Interval(0, 99), "give an Interval within"),
        ("all", "chose 'all': give an Interval"),
    ],
)
def test_what_a_policy_must_not_choose_is_refused(chosen: object, text: str) -> None:
    with pytest.raises(InputError, match=text):
        simulate(chain(8), budget="60%", policy=Wrong(chosen))


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(InputError, match="source is of type str: give a Trace or a Graph"):
        simulate("trace.jsonl", budget="50%")  # type: ignore[arg-type]  # on purpose
    with pytest.raises(InputError, match=r"thrash_limit 0\.5 must be above 1"):
        simulate(chain(2), budget="50%", thrash_limit=0.5)
    with pytest.raises(InputError, match="budget of 2000 bytes: an arena has at least 4096 bytes"):
        simulate(chain(2), budget=2000)
    with pytest.raises(InputError, match="policy is of type int"):
        simulate(chain(2), budget="50%", policy=3)  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize("name", POLICIES)
def test_the_same_again_is_the_same_and_native_is_the_twin(name: str) -> None:
    trace = chain(24)
    first = simulate(trace, budget="60%", policy=name, records_trace=True, seed=3)
    assert first == simulate(trace, budget="60%", policy=name, records_trace=True, seed=3)
    assert first == simulate(trace, budget="60%", policy=name, records_trace=True, seed=3, chooses_in_python=True)
    assert first.completed
    assert first.num_evictions > 0


def test_chance_depends_on_the_seed() -> None:
    first, second = (simulate(chain(24), budget="60%", policy="random", records_trace=True, seed=s) for s in (1, 2))
    assert first.trace is not None
    assert second.trace is not None
    assert first.trace.events != second.trace.events


def test_snapshots_tile_the_arena() -> None:
    result = simulate(chain(24), budget="60%", num_snapshots=5)
    assert len(result.snapshots) == 5
    for snapshot in result.snapshots:
        assert snapshot.regions[0][0].start == 0
        assert snapshot.regions[-1][0].end == result.capacity_bytes
        for (left, kind), (right, next_kind) in zip(snapshot.regions, snapshot.regions[1:], strict=False):
            assert left.end == right.start
            assert kind is not next_kind
    kinds = {kind for snapshot in result.snapshots for _, kind in snapshot.regions}
    assert kinds >= {RegionKind.KEPT, RegionKind.EVICTABLE, RegionKind.BACKWARD}
    assert replace(result, snapshots=()) == simulate(chain(24), budget="60%")


def test_a_run_can_be_watched_and_stopped() -> None:
    shares: list[float] = []
    assert simulate(chain(200), budget="60%", on_progress=shares.append).completed
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert len(shares) > 2
    stopped = simulate(chain(200), budget="60%", should_stop=lambda: True)
    assert (stopped.completed, stopped.reason) == (False, "stopped")


def test_a_sweep_gives_flat_rows() -> None:
    seen: list[str] = []
    rows = sweep(
        chain(24), budgets=["60%", 2 * MIB], policies=["dtr", Coop()], on_row=lambda result: seen.append(result.policy)
    )
    assert [(row["policy"], row["budget_bytes"], row["completed"]) for row in rows] == [
        ("dtr", 26 * MIB * 6 // 10, True),
        ("dtr", 2 * MIB, False),
        ("coop", 26 * MIB * 6 // 10, True),
        ("coop", 2 * MIB, False),
    ]
    assert seen == ["dtr", "dtr", "coop", "coop"]
    assert all(isinstance(value, int | float | str | None) for row in rows for value in row.values())
    assert sweep(chain(24), budgets=["60%"], should_stop=lambda: True) == []


def test_the_minimum_budget_completes_and_a_step_below_does_not() -> None:
    trace = chain(24)
    found = minimum_budget(trace, policy="coop")
    assert found.budget_bytes is not None
    assert found.ratio is not None
    step_bytes = (26 - 2) * MIB // 256
    assert simulate(trace, budget=found.budget_bytes).completed
    assert not simulate(trace, budget=found.budget_bytes - step_bytes - 1).completed
    # The last op of the chain reads two values and makes one: 3 MiB, and x stays.
    assert 3 * MIB <= found.budget_bytes <= 5 * MIB
