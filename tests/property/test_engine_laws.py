"""Laws of the online engine, on random programs and graphs, under every policy."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide import _online
from lowtide.importers.trace_graph import trace_of_graph
from lowtide.ir import Call, Mark, MarkKind, Trace
from lowtide.policies.parts import Part, without
from lowtide.policies.protocol import Policy
from lowtide.policies.table import POLICIES, policy_named
from lowtide.referee import check_trace
from lowtide.simulator.program import CompiledTrace, compile_trace
from lowtide.simulator.run import native_config, simulate
from lowtide.testing import random_graph

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "simulator"))
from programs import random_trace

seeds = st.integers(0, 2**32 - 1)
ABSENT, IN_POOL = 0, 1
ALIVE, COST_KNOWN = 1, 4


def policies() -> Iterator[Policy]:
    for name in POLICIES:
        yield policy_named(name)
    for part in Part:
        yield without(policy_named("coop"), [part])
    yield without(policy_named("dtr"), [Part.DROPPING])


ALL = {policy.name: policy for policy in policies()}


def a_trace(seed: int, num_calls: int) -> Trace:
    rng = Random(seed)
    if rng.random() < 0.3:
        return trace_of_graph(random_graph(rng, num_nodes=max(num_calls // 4, 1)))
    return random_trace(rng, num_calls=num_calls)


def start(
    compiled: CompiledTrace, policy: Policy, ratio: float, *, small_bytes: int, thrash_limit: float = 20
) -> _online.Simulation:
    capacity_bytes = max(int(ratio * compiled.peak_bytes) // compiled.alignment, 1) * compiled.alignment
    config = native_config(
        compiled, policy, capacity_bytes=capacity_bytes, thrash_limit=thrash_limit, small_bytes=small_bytes, seed=5
    )
    return _online.Simulation(compiled.program, config, logs=False)


@settings(deadline=None, max_examples=250)
@given(seeds, st.integers(1, 60), st.sampled_from(sorted(ALL)), st.sampled_from([1.3, 1.0, 0.8, 0.6, 0.4]))
def test_what_happened_is_a_legal_trace_within_the_budget(seed: int, num_calls: int, name: str, ratio: float) -> None:
    """No block beyond the capacity, none over another, inputs resident at every call: the referee checks it all."""
    compiled = compile_trace(a_trace(seed, num_calls))
    budget_bytes = max(int(ratio * compiled.peak_bytes), compiled.alignment)
    small_bytes = Random(seed).choice([0, 0, 256])
    result = simulate(
        compiled, budget=budget_bytes, policy=ALL[name], records_trace=True, small_bytes=small_bytes, seed=seed
    )
    assert result.trace is not None
    figures = check_trace(result.trace)
    assert result.peak_bytes <= result.capacity_bytes
    assert figures.num_evictions == result.num_evictions
    assert figures.num_recomputes == result.num_recomputes
    assert figures.num_calls >= result.num_calls + result.num_recomputes
    again = compile_trace(result.trace)
    if result.completed:
        assert (again.num_calls, again.base_cost) == (compiled.num_calls, compiled.base_cost)


@settings(deadline=None, max_examples=200)
@given(seeds, st.integers(1, 60), st.sampled_from(sorted(ALL)), st.sampled_from([0.9, 0.7, 0.5]))
def test_the_python_twin_decides_as_the_engine_does(seed: int, num_calls: int, name: str, ratio: float) -> None:
    compiled = compile_trace(a_trace(seed, num_calls))
    budget_bytes = max(int(ratio * compiled.peak_bytes), compiled.alignment)
    native = simulate(compiled, budget=budget_bytes, policy=ALL[name], records_trace=True, seed=seed)
    twin = simulate(
        compiled, budget=budget_bytes, policy=ALL[name], records_trace=True, seed=seed, chooses_in_python=True
    )
    assert native == twin


@settings(deadline=None, max_examples=200)
@given(seeds, st.integers(1, 60), st.sampled_from(sorted(ALL)), st.sampled_from([1.0, 0.8, 0.6, 0.4]))
def test_after_every_call_no_lock_is_left_and_known_costs_are_right(
    seed: int, num_calls: int, name: str, ratio: float
) -> None:
    compiled = compile_trace(a_trace(seed, num_calls))
    simulation = start(compiled, ALL[name], ratio, small_bytes=0)
    for position in range(1, compiled.program.num_instructions + 1):
        outcome = simulation.run(position)
        check_cells(simulation)
        if outcome.reason:
            break


def check_cells(simulation: _online.Simulation) -> None:
    cells = {row[0]: row for row in simulation.cells()}
    records = {row[0]: row for row in simulation.records()}
    for cell, _, producer, home, flags, locks, pins, awaited, cost in cells.values():
        assert (locks, pins, awaited) == (0, 0, 0), f"cell {cell}"
        if flags & COST_KNOWN and producer != -1:
            expected = sum(records[record][1] for record in needed_for(cell, cells, records))
            assert cost == pytest.approx(expected, rel=1e-12), f"cell {cell}"
        if home == ABSENT:
            assert producer != -1, f"cell {cell} is absent for good"
        if not flags & ALIVE and home != ABSENT:
            read = any(cell in row[2] for row in records.values())
            assert read, f"cell {cell} is held by nobody, and nobody reads it"
    owned = [cell for _, _, cell, _ in simulation.blocks() if cell >= 0]
    assert sorted(owned) == sorted(cell for cell, row in cells.items() if row[3] == IN_POOL)


def needed_for(
    cell: int,
    cells: dict[int, tuple[int, int, int, int, int, int, int, int, float]],
    records: dict[int, tuple[int, float, list[int], list[int]]],
) -> set[int]:
    """Records to execute so that a cell comes back: its own, and those of absent ancestors."""
    found: set[int] = set()
    waiting = [cells[cell][2]]
    while waiting:
        record = waiting.pop()
        if record in found:
            continue
        found.add(record)
        waiting += [cells[above][2] for above in records[record][2] if cells[above][3] == ABSENT]
    return found


@settings(deadline=None, max_examples=100)
@given(seeds, st.integers(1, 60), st.sampled_from(["dtr-ideal", "dtr-eq", "dtr-local", "msps"]))
def test_a_policy_blind_to_addresses_evicts_nothing_at_the_peak(seed: int, num_calls: int, name: str) -> None:
    """Where no op in place copies first, and no leaf is released while others may still be recomputed from it."""
    compiled = compile_trace(random_trace(Random(seed), num_calls=num_calls, is_plain=True))
    result = simulate(compiled, budget=compiled.peak_bytes, policy=name)
    assert (result.completed, result.num_evictions, result.overhead) == (True, 0, 1.0)


@settings(deadline=None, max_examples=40)
@given(seeds, st.integers(1, 40), st.sampled_from(sorted(ALL)))
def test_when_all_is_released_nothing_is_left(seed: int, num_calls: int, name: str) -> None:
    compiled = compile_trace(released_at_end(random_trace(Random(seed), num_calls=num_calls)))
    simulation = start(compiled, ALL[name], 0.8, small_bytes=0)
    if simulation.run().is_completed:
        assert simulation.cells() == []
        assert simulation.records() == []
        assert [cell for _, _, cell, _ in simulation.blocks()] == [-1]


def released_at_end(trace: Trace) -> Trace:
    released = {event.id for event in trace.events if isinstance(event, Mark)}
    made = [name for event in trace.events if isinstance(event, Call) for name in event.outputs]
    left = [name for name in made if name not in released]
    return replace(trace, events=(*trace.events, *(Mark(MarkKind.RELEASE, name) for name in left)))


@pytest.mark.parametrize("name", ["coop", "dtr-eq", "dtr-local"])
def test_a_thousand_steps_leave_no_cells_and_no_records(name: str) -> None:
    compiled = compile_trace(released_at_end(random_trace(Random(6), num_calls=60)))
    simulation = start(compiled, ALL[name], 0.9, small_bytes=256, thrash_limit=1e9)
    for _ in range(1000):
        assert simulation.run().is_completed
        simulation.restart()
    assert simulation.cells() == []
    assert simulation.records() == []
    assert simulation.blocks() == [(0, simulation.blocks()[0][1], -1, False)]
    assert simulation.stats.num_evictions > 1000
