"""Runs a program in an arena under a policy.

    Trace or Graph ──compile──▶ program ──▶ engine (C++) ◀── policy, budget        ──▶ Simulation

The engine is the one of the online runtime; here nothing stands behind it, so it only decides and counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import groupby

from lowtide import _online
from lowtide.errors import InputError
from lowtide.importers.trace_graph import trace_of_graph
from lowtide.ir import Graph, Interval, Trace
from lowtide.ir.block import Fit
from lowtide.policies.parts import rules_of
from lowtide.policies.protocol import Compaction, Method, NativeChoice, Policy, Score
from lowtide.policies.table import policy_named
from lowtide.simulator.budgets import budget_of, capacity_of, is_abstract
from lowtide.simulator.chooser import chooser_of
from lowtide.simulator.events import trace_of_events
from lowtide.simulator.program import CompiledTrace, Temper, compile_trace
from lowtide.simulator.result import RegionKind, Simulation, Snapshot
from lowtide.units import Budget

__all__ = ["THRASH_LIMIT", "Source", "compiled_source", "native_config", "policy_of", "simulate"]

Source = Trace | Graph | CompiledTrace

THRASH_LIMIT = 5.0
"""A run whose modelled time reaches this many times that without eviction is given up."""

_INSTRUCTIONS_BETWEEN_LOOKS = 256

_METHODS = {Method.WINDOW: _online.Method.WINDOW, Method.ONE_BY_ONE: _online.Method.ONE_BY_ONE}
_SCORES = {score: getattr(_online.Score, score.name) for score in Score}
_COMPACTIONS = {compaction: getattr(_online.Compaction, compaction.name) for compaction in Compaction}


def simulate(
    source: Source,
    *,
    budget: Budget,
    policy: str | Policy = "coop",
    seed: int = 0,
    thrash_limit: float = THRASH_LIMIT,
    small_bytes: int | None = None,
    records_trace: bool = False,
    num_snapshots: int = 0,
    chooses_in_python: bool = False,
    on_progress: Callable[[float], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Simulation:
    """Carry out a program within a budget, as the online runtime would, and count what that costs.

    Args:
        source: A trace; a graph, which is carried out in its order; or either of them compiled, to save time.
        budget: Bytes, text with a unit, ``"60%"`` of the peak without eviction, or ``"r=0.5"`` (see
            :mod:`lowtide.simulator.budgets`). The arena is the largest multiple of 4096 bytes within.
        policy: What to evict: a policy, its name, or ``pkg.mod:Class``.
        seed: Of policies that draw.
        thrash_limit: Modelled time at which the run is given up, by that without eviction; above 1.
        small_bytes: Requests up to this many bytes lie in slabs and are never evicted; by default a 65,536th of the
            arena (256 bytes to Coop's 10 KiB), or none where the peak is below 1 MiB.
        records_trace: Whether to keep every event as a trace.
        num_snapshots: How often to look at the arena, at even distances.
        chooses_in_python: Ask the policy's ``choose`` even where the engine could choose by itself.
        on_progress: Called now and then with the share of the program that is done.
        should_stop: Asked now and then; true ends the run.

    Returns:
        The figures. A run that does not complete says why.

    Raises:
        InputError: The source, the policy or an option is wrong.
        UnitError: The budget cannot be read.
    """
    compiled = compiled_source(source)
    chosen = policy_of(policy)
    if not thrash_limit > 1:
        raise InputError(f"thrash_limit {thrash_limit} must be above 1, e.g. {THRASH_LIMIT}")
    budget_bytes = budget_of(compiled, budget)
    config = native_config(
        compiled,
        chosen,
        capacity_bytes=capacity_of(compiled, budget_bytes),
        seed=seed,
        thrash_limit=thrash_limit,
        small_bytes=small_bytes,
    )
    if config.capacity <= 0:
        raise InputError(f"budget of {budget_bytes} bytes: an arena has at least {_smallest_capacity(compiled)} bytes")
    engine = _online.Simulation(compiled.program, config, logs=records_trace)
    if chooses_in_python or native_choice(chosen) is None:
        engine.set_chooser(chooser_of(engine, chosen))
    try:
        outcome, snapshots, is_stopped = _run(engine, compiled, num_snapshots, on_progress, should_stop)
    finally:
        engine.set_chooser(None)  # it refers to the engine
    reason = "stopped" if is_stopped else outcome.reason
    trace = None
    if records_trace:
        trace = trace_of_events(compiled, engine.events(), config=config, policy=chosen.name)
    return _figures(compiled, outcome, chosen, config, budget_bytes, reason, trace, snapshots)


def compiled_source(source: Source) -> CompiledTrace:
    """A source, compiled.

    Raises:
        InputError: It is none.
    """
    if isinstance(source, CompiledTrace):
        return source
    if isinstance(source, Graph):
        return compile_trace(trace_of_graph(source))
    if isinstance(source, Trace):
        return compile_trace(source)
    raise InputError(f"source is of type {type(source).__name__}: give a Trace or a Graph")


def policy_of(policy: str | Policy) -> Policy:
    """A policy by its name, or itself.

    Raises:
        InputError: There is none of that name, or it is none.
    """
    if isinstance(policy, str):
        return policy_named(policy)
    if not isinstance(policy, Policy):
        raise InputError(f"policy is of type {type(policy).__name__}: give a name, or an object with name and choose")
    return policy


def native_choice(policy: Policy) -> NativeChoice | None:
    """What of the engine chooses as a policy does, or None where only the policy can."""
    native = getattr(policy, "native", None)
    return native if isinstance(native, NativeChoice) else None


def native_config(
    compiled: CompiledTrace,
    policy: Policy,
    *,
    capacity_bytes: int,
    seed: int = 0,
    thrash_limit: float = THRASH_LIMIT,
    small_bytes: int | None = None,
) -> _online.EngineConfig:
    """The engine's options for a policy; see :func:`simulate`."""
    rules, native = rules_of(policy), native_choice(policy)
    config = _online.EngineConfig()
    config.capacity = capacity_bytes
    config.alignment = compiled.alignment
    config.small_bytes = (0 if is_abstract(compiled) else _online.AUTOMATIC) if small_bytes is None else small_bytes
    if native is not None:
        config.method = _METHODS[native.method]
        config.score = _SCORES[native.score]
        config.surplus = native.surplus
    config.is_ideal = rules.is_ideal
    config.is_copy_on_write = rules.is_copy_on_write
    config.is_two_tiered = rules.is_two_tiered
    config.keeps_dead = rules.keeps_dead
    config.holds_awaited = rules.holds_awaited
    config.compaction = _COMPACTIONS[rules.compaction]
    config.set_place(Temper.CHEAP, is_high=rules.is_partitioned, is_first_fit=rules.cheap_fit is Fit.FIRST)
    config.max_cost = thrash_limit * compiled.base_cost
    config.seed = seed
    return config


def _smallest_capacity(compiled: CompiledTrace) -> int:
    unit_bytes = 1
    while capacity_of(compiled, unit_bytes) <= 0:
        unit_bytes *= 2
    return capacity_of(compiled, unit_bytes)


def _run(
    engine: _online.Simulation,
    compiled: CompiledTrace,
    num_snapshots: int,
    on_progress: Callable[[float], None] | None,
    should_stop: Callable[[], bool] | None,
) -> tuple[_online.SimulationResult, tuple[Snapshot, ...], bool]:
    """In short runs, so that Ctrl-C is heard; returns whether it was stopped."""
    end = compiled.program.num_instructions
    looks = sorted({math.ceil(end * (index + 1) / num_snapshots) for index in range(num_snapshots)})
    snapshots: list[Snapshot] = []
    while True:
        until = min(engine.position + _INSTRUCTIONS_BETWEEN_LOOKS, end, *looks[len(snapshots) : len(snapshots) + 1])
        outcome = engine.run(until)
        if len(snapshots) < len(looks) and outcome.num_executed == looks[len(snapshots)]:
            snapshots.append(_snapshot(engine))
        if on_progress is not None:
            on_progress(outcome.num_executed / end if end else 1.0)
        if outcome.is_completed or outcome.reason:
            return outcome, tuple(snapshots), False
        if should_stop is not None and should_stop():
            return outcome, tuple(snapshots), True


def _snapshot(engine: _online.Simulation) -> Snapshot:
    rows = [
        (offset, offset + size_bytes, _region_kind(engine, cell, may_evict=may_evict))
        for offset, size_bytes, cell, may_evict in engine.blocks()
    ]
    runs = [list(run) for _, run in groupby(rows, key=lambda row: row[2])]
    regions = tuple((Interval(run[0][0], run[-1][1]), run[0][2]) for run in runs)
    return Snapshot(position=engine.position, clock=engine.clock, regions=regions)


def _region_kind(engine: _online.Simulation, cell: int, *, may_evict: bool) -> RegionKind:
    if cell < 0:
        return RegionKind.FREE if cell == -1 else RegionKind.SMALL
    if not may_evict:
        return RegionKind.KEPT
    return RegionKind.BACKWARD if engine.is_backward(cell) else RegionKind.EVICTABLE


def _figures(
    compiled: CompiledTrace,
    outcome: _online.SimulationResult,
    policy: Policy,
    config: _online.EngineConfig,
    budget_bytes: int,
    reason: str,
    trace: Trace | None,
    snapshots: tuple[Snapshot, ...],
) -> Simulation:
    stats = outcome.stats
    num_searches = max(stats.num_searches, 1)
    return Simulation(
        policy=policy.name,
        budget_bytes=budget_bytes,
        capacity_bytes=config.capacity,
        seed=config.seed,
        completed=outcome.is_completed,
        reason=reason,
        num_executed=outcome.num_executed,
        num_calls=stats.num_calls,
        overhead=(stats.base_cost + stats.recompute_cost + stats.move_cost) / stats.base_cost
        if stats.base_cost
        else 1.0,
        num_recomputes=stats.num_recomputes,
        num_evictions=stats.num_evictions,
        num_searches=stats.num_searches,
        num_compactions=stats.num_compactions,
        bytes_moved=stats.bytes_moved,
        mean_search_us=1e6 * stats.search_seconds / num_searches,
        fragmentation=stats.fragmentation_sum / num_searches,
        peak_bytes=stats.peak_bytes,
        footprint_bytes=outcome.high_water,
        plain_peak_bytes=compiled.peak_bytes,
        floor_bytes=compiled.floor_bytes,
        trace=trace,
        snapshots=snapshots,
    )
