"""Simulations over budgets and policies, and the lowest budget that a policy completes within."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lowtide.policies.protocol import Policy
from lowtide.simulator.budgets import budget_of, capacity_of, ratio_of
from lowtide.simulator.result import MinimumBudget, Simulation
from lowtide.simulator.run import THRASH_LIMIT, Source, compiled_source, policy_of, simulate
from lowtide.units import Budget

__all__ = ["minimum_budget", "sweep"]

_SLAB_ROOM_BYTES = 64 * 1024
_STEPS_OF_RANGE = 256


def sweep(
    source: Source,
    *,
    budgets: Sequence[Budget],
    policies: Sequence[str | Policy] = ("coop",),
    seed: int = 0,
    thrash_limit: float = THRASH_LIMIT,
    on_row: Callable[[Simulation], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> list[dict[str, Any]]:
    """Simulate every policy at every budget.

    Args:
        source: As for :func:`~lowtide.simulator.run.simulate`.
        budgets: As many as wanted.
        policies: Policies or their names.
        seed: Of policies that draw.
        thrash_limit: As for ``simulate``.
        on_row: Called with every result.
        should_stop: True ends the sweep with the rows so far.

    Returns:
        Flat rows, policy by policy, for ``pandas.DataFrame``.

    Raises:
        InputError: The source, a policy or an option is wrong.
        UnitError: A budget cannot be read.
    """
    compiled = compiled_source(source)
    chosen = [policy_of(policy) for policy in policies]
    sizes = [budget_of(compiled, budget) for budget in budgets]
    rows: list[dict[str, Any]] = []
    for policy in chosen:
        for budget_bytes in sizes:
            result = simulate(
                compiled,
                budget=budget_bytes,
                policy=policy,
                seed=seed,
                thrash_limit=thrash_limit,
                should_stop=should_stop,
            )
            if should_stop is not None and should_stop():
                return rows
            rows.append(result.as_row())
            if on_row is not None:
                on_row(result)
    return rows


def minimum_budget(
    source: Source,
    *,
    policy: str | Policy = "coop",
    seed: int = 0,
    thrash_limit: float = THRASH_LIMIT,
    should_stop: Callable[[], bool] | None = None,
) -> MinimumBudget:
    """Find the lowest budget that a policy completes within, by bisection between P and the peak.

    Whether a run completes need not be monotone in the budget; bisection finds a budget that completes while one
    256th of the range below does not.

    Args:
        source: As for :func:`~lowtide.simulator.run.simulate`.
        policy: A policy or its name.
        seed: Of policies that draw.
        thrash_limit: As for ``simulate``.
        should_stop: True ends the search with the best so far.

    Raises:
        InputError: The source, the policy or an option is wrong.
    """
    compiled = compiled_source(source)
    chosen = policy_of(policy)

    def run_at(budget_bytes: int) -> Simulation | None:
        if capacity_of(compiled, budget_bytes) <= 0:
            return None
        result = simulate(
            compiled, budget=budget_bytes, policy=chosen, seed=seed, thrash_limit=thrash_limit, should_stop=should_stop
        )
        return result if result.completed else None

    low = compiled.floor_bytes
    high = compiled.peak_bytes
    best = run_at(high)
    while best is None and high < 2 * compiled.peak_bytes + 64 * _SLAB_ROOM_BYTES:  # slabs and holes take their share
        low, high = high, high + max(compiled.peak_bytes // 8, _SLAB_ROOM_BYTES)
        best = run_at(high)
    step_bytes = max((compiled.peak_bytes - compiled.floor_bytes) // _STEPS_OF_RANGE, 1)
    while best is not None and high - low > step_bytes and not (should_stop is not None and should_stop()):
        middle = (low + high) // 2
        result = run_at(middle)
        low, high, best = (middle, high, best) if result is None else (low, middle, result)
    if best is None:
        return MinimumBudget(policy=chosen.name, budget_bytes=None, memory_ratio=None, ratio=None, overhead=None)
    return MinimumBudget(
        policy=chosen.name,
        budget_bytes=high,
        memory_ratio=best.memory_ratio,
        ratio=ratio_of(compiled, high),
        overhead=best.overhead,
    )
