"""Cells that are really run: a few training steps in a fresh process under the malloc meter.

    budget 60 % ──▶ floor(60 % of eager's measured peak) ──▶ the peer ──▶ peak and CPU time of a step, bits

Peak: most bytes from malloc from before forward to after backward beyond those before, gradients included. Of
``lowtide.budget`` the most in its arena are added, which the meter does not see: a little too much where the two do not
coincide. What was outside its arena nobody knows ahead: where the sum is over the budget, it is trained again in an
arena that is smaller by that much.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from statistics import median
from typing import TYPE_CHECKING

from lowtide.comparison.options import ComparisonOptions
from lowtide.comparison.peers import ARENA_PEAK, PEERS
from lowtide.comparison.rows import EAGER, Cell, Kind, Outcome, Row
from lowtide.errors import LowtideError
from lowtide.ir.serde import compact_json
from lowtide.measure.errors import ChildFailed, MeterUnavailable
from lowtide.units import Bytes, parse_budget

if TYPE_CHECKING:
    from lowtide.measure.training_types import TrainingResult, TrainingRun

__all__ = ["measured_cells", "run_measured"]

_NUM_STEPS = 4
_NUM_TRIES = 3  # what lies outside an arena depends a little on what is evicted
_TIMEOUT_SECONDS = 1800.0
_TOO_LITTLE = {"LowtideOutOfMemory", "UnitError"}  # an arena below the least that there can be is refused
_OUTCOME_BY_ERROR = {
    "InfeasibleBudget": Outcome.INFEASIBLE,
    "NoPlanFound": Outcome.TIMEOUT,
    "BudgetOverrun": Outcome.OVER,
    "LowtideOutOfMemory": Outcome.GAVE_UP,
}


def measured_cells(options: ComparisonOptions, budgets: tuple[str, ...]) -> tuple[Cell, ...]:
    """Eager first, as all others are measured by it; then every peer without a budget, then within each."""
    if options.model is None:
        return ()
    names = (EAGER, *(name for name in options.peers if name != EAGER))
    lowest = [Cell(kind=Kind.MEASURED, method=name) for name in names if PEERS[name].lowest is not None]
    within = [
        Cell(kind=Kind.MEASURED, method=name, budget=budget)
        for budget in budgets
        for name in names
        if PEERS[name].settings is not None
    ]
    return (*lowest, *within)


def run_measured(
    cell: Cell, options: ComparisonOptions, eager: Row | None, should_stop: Callable[[], bool] = lambda: False
) -> Row:
    """Train, and say what it took.

    Args:
        cell: A measured one.
        options: With a model.
        eager: The row of eager; None only where the cell is that.
        should_stop: Asked all the time; true kills the training at once, and the row is worth nothing.

    Raises:
        MeterUnavailable: The meter was not built.
    """
    started = time.perf_counter()
    if eager is not None and eager.peak_bytes is None:
        reason = "eager could not be trained, so there is nothing to compare with"
        return _row(cell, eager, None, Outcome.FAILED, started, reason=reason)
    eager_peak_bytes = 0 if eager is None else eager.peak_bytes or 0
    budget_bytes = parse_budget(cell.budget, baseline_peak_bytes=eager_peak_bytes) if cell.budget else None
    try:
        if cell.method == EAGER:
            result, repeats = _train_eager(_training_run(cell, options, None, 0), should_stop)
        else:
            result, repeats = _train_within(cell, options, budget_bytes, eager_peak_bytes, should_stop), True
    except MeterUnavailable:
        raise
    except ChildFailed as error:
        outcome = _OUTCOME_BY_ERROR.get(error.error_type or "", Outcome.FAILED)
        return _row(cell, eager, budget_bytes, outcome, started, reason=_reason_of(error))
    except LowtideError as error:
        return _row(cell, eager, budget_bytes, Outcome.FAILED, started, reason=str(error))
    peak_bytes = _peak_bytes(result)
    duration = round(1e9 * median(step.cpu_seconds for step in result.steps[1:]))
    is_over = budget_bytes is not None and peak_bytes > budget_bytes
    measured = replace(
        _row(cell, eager, budget_bytes, Outcome.OVER if is_over else Outcome.COMPLETED, started),
        needed_bytes=peak_bytes,
        peak_bytes=peak_bytes,
        duration=duration,
        bits=_bits_of(result) if repeats else None,
    )
    if eager is None:
        return replace(measured, baseline_peak_bytes=peak_bytes, baseline_duration=duration)
    return measured


def _train_within(
    cell: Cell,
    options: ComparisonOptions,
    budget_bytes: Bytes | None,
    eager_peak_bytes: Bytes,
    should_stop: Callable[[], bool],
) -> TrainingResult:
    """Once; or until it is within the budget, where the peer's own counts less than the meter.

    Where less does not suffice to train at all, or never fits, the lowest peak is what it took: over the budget.
    """
    result = best = _train(_training_run(cell, options, budget_bytes, eager_peak_bytes), should_stop)
    if budget_bytes is None or not PEERS[cell.method].makes_room:
        return best
    given_bytes = budget_bytes
    for _ in range(_NUM_TRIES - 1):
        over_bytes = _peak_bytes(result) - budget_bytes
        if over_bytes <= 0 or over_bytes >= given_bytes:
            break
        given_bytes -= over_bytes
        try:
            result = _train(_training_run(cell, options, given_bytes, eager_peak_bytes), should_stop)
        except ChildFailed as error:
            if error.error_type not in _TOO_LITTLE:
                raise
            break
        best = min(best, result, key=_peak_bytes)
    return best


def _peak_bytes(result: TrainingResult) -> Bytes:
    return (result.peak_bytes() or 0) + int(result.report.get(ARENA_PEAK, 0))


def _training_run(
    cell: Cell, options: ComparisonOptions, budget_bytes: Bytes | None, eager_peak_bytes: Bytes
) -> TrainingRun:
    from lowtide.measure.training_types import TrainingRun

    peer = PEERS[cell.method]
    settings = peer.lowest
    if budget_bytes is not None and peer.settings is not None:
        settings = peer.settings(budget_bytes, eager_peak_bytes)
    return TrainingRun(
        model=options.model or "",
        num_steps=_NUM_STEPS,
        seed=options.seed,
        prepare=peer.prepare,
        prepare_options=settings or {},
        report=peer.report,
    )


def _train_eager(run: TrainingRun, should_stop: Callable[[], bool]) -> tuple[TrainingResult, bool]:
    """Train in two processes: where plain torch does not repeat, nobody can be blamed for other bits.

    All times are relative to eager's, so the steps of both count.
    """
    from lowtide.measure.torch_training import compare_results

    first, second = (_train(run, should_stop) for _ in range(2))
    return replace(first, steps=(*first.steps, *second.steps[1:])), not compare_results(first, second)


def _train(run: TrainingRun, should_stop: Callable[[], bool]) -> TrainingResult:
    from lowtide.measure.torch_training import measure_training

    return measure_training(run, timeout_seconds=_TIMEOUT_SECONDS, should_stop=should_stop)


def _bits_of(result: TrainingResult) -> str:
    """One digest of everything: losses, gradients, weights, buffers, state of the generator, step by step."""
    digests = {name: asdict(digest) for name, digest in result.digests.items()}
    return hashlib.sha256(compact_json(digests).encode()).hexdigest()


def _reason_of(error: ChildFailed) -> str:
    """What was raised, in a line, or two where the first announces the next: the error has the rest."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = lines[0] if lines else ""
    if told.endswith(":") and len(lines) > 1:
        told = f"{told} {lines[1].removeprefix('- ')}"
    return told.removeprefix(f"{error.target!r} raised {error.error_type} in the child process: ") or told


def _row(
    cell: Cell, eager: Row | None, budget_bytes: Bytes | None, outcome: Outcome, started: float, *, reason: str = ""
) -> Row:
    return Row(
        cell=cell,
        outcome=outcome,
        budget_bytes=budget_bytes,
        baseline_peak_bytes=0 if eager is None else eager.baseline_peak_bytes,
        baseline_duration=0 if eager is None else eager.baseline_duration,
        seconds=time.perf_counter() - started,
        reason=" ".join(reason.split()),
    )
