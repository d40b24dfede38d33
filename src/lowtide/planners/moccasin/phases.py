"""The two phases: first a plan that fits, then the best one.

Phase 1 minimises max(peak, budget), starting from the plan without recomputation; it ends as soon as the budget is met.
Phase 2 fixes the budget and minimises the duration, hinted by phase 1.

Source: Bartan et al. 2023, section 3.3.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ortools.sat.python import cp_model

from lowtide.ir import Graph, Incumbent, Step
from lowtide.planners.cp_solving import run_solver
from lowtide.planners.moccasin.model import build_model, total_duration
from lowtide.planners.moccasin.problem import Problem
from lowtide.planners.moccasin.steps import RetainedCopy, Run, steps_from_retention
from lowtide.planners.moccasin.variables import Variables

__all__ = ["Outcome", "SearchLimits", "solve"]

logger = logging.getLogger("lowtide")


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """How long and with what the solver may search.

    Attributes:
        seconds: Wall-clock time for both phases together, or None.
        threads: Workers.
        seed: Of the solver.
        should_stop: True ends the search, or None.
        on_progress: Called with every better plan or bound, or None.
    """

    seconds: float | None
    threads: int
    seed: int
    should_stop: Callable[[], bool] | None
    on_progress: Callable[[Incumbent], None] | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the two phases found.

    Attributes:
        steps: The best plan, or the one of the smallest peak, or None.
        lower_bound_duration: Proven.
        fits: Whether its peak is within the budget.
        is_optimal: Whether its duration is proven least.
        is_infeasible: Whether it is proven that none fits.
        incumbents: The course of phase 2.
    """

    steps: tuple[Step, ...] | None
    lower_bound_duration: int
    fits: bool = False
    is_optimal: bool = False
    is_infeasible: bool = False
    incumbents: tuple[Incumbent, ...] = ()


def solve(graph: Graph, problem: Problem, limits: SearchLimits) -> Outcome:
    """Search for the best plan of a problem, both phases."""
    course = _Course(limits, baseline_duration=graph.baseline_duration)
    model, variables = build_model(problem)
    _hint_baseline(model, problem, variables)
    model.minimize(variables.capacity)
    solver = course.solver()
    status = _run(solver, model, course, _FitsBudget(problem.budget_bytes, course))
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        is_infeasible = status == cp_model.INFEASIBLE
        return Outcome(None, graph.baseline_duration, is_infeasible=is_infeasible)
    steps = _steps(graph, problem, variables, solver)
    if solver.value(variables.capacity) > problem.budget_bytes:
        return Outcome(steps, graph.baseline_duration, is_infeasible=_exceeds(solver, problem))
    course.found(round(solver.value(total_duration(problem, variables))))
    _hint_solution(model, solver)
    model.add(variables.capacity == problem.budget_bytes)
    model.minimize(total_duration(problem, variables))
    solver = course.solver()
    status = _run(solver, model, course, _BetterPlan(course))
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        steps = _steps(graph, problem, variables, solver)
        course.bound(solver.best_objective_bound)
    return Outcome(
        steps,
        course.lower_bound_duration,
        fits=True,
        is_optimal=status == cp_model.OPTIMAL,
        incumbents=tuple(course.incumbents),
    )


def _exceeds(solver: cp_model.CpSolver, problem: Problem) -> bool:
    """Whether phase 1 proved that every plan's peak is above the budget."""
    return solver.best_objective_bound > problem.budget_bytes + 0.5


@dataclass
class _Course:
    """The clock, the incumbents and the bound of one search."""

    limits: SearchLimits
    baseline_duration: int
    incumbents: list[Incumbent] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.duration: int | None = None
        self.lower_bound_duration = self.baseline_duration

    def solver(self) -> cp_model.CpSolver:
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = self.limits.threads
        solver.parameters.random_seed = self.limits.seed
        if self.limits.seconds is not None:
            solver.parameters.max_time_in_seconds = max(0.0, self.limits.seconds - self.seconds())
        return solver

    def seconds(self) -> float:
        return time.monotonic() - self.started

    def found(self, duration: int) -> None:
        with self._lock:
            if self.duration is None or duration < self.duration:
                self.duration = duration
                self._note()

    def bound(self, bound: float) -> None:
        rounded = -int(-(bound - 1e-6) // 1)
        with self._lock:
            if rounded > self.lower_bound_duration:
                self.lower_bound_duration = rounded
                self._note()

    def _note(self) -> None:
        incumbent = Incumbent(self.seconds(), self.duration, self.lower_bound_duration)
        self.incumbents.append(incumbent)
        if self.limits.on_progress is not None:
            self.limits.on_progress(incumbent)


class _FitsBudget(cp_model.CpSolverSolutionCallback):
    """Ends phase 1 at the first plan within the budget."""

    def __init__(self, budget_bytes: int, course: _Course) -> None:
        super().__init__()
        self._budget_bytes = budget_bytes
        self._course = course

    def on_solution_callback(self) -> None:
        """Called by the solver."""
        logger.debug("moccasin phase 1: peak %d bytes, %.1f s", self.objective_value, self._course.seconds())
        if self.objective_value <= self._budget_bytes:
            self.stop_search()


class _BetterPlan(cp_model.CpSolverSolutionCallback):
    """Notes every better plan of phase 2."""

    def __init__(self, course: _Course) -> None:
        super().__init__()
        self._course = course

    def on_solution_callback(self) -> None:
        """Called by the solver."""
        self._course.bound(self.best_objective_bound)
        self._course.found(round(self.objective_value))


def _run(
    solver: cp_model.CpSolver,
    model: cp_model.CpModel,
    course: _Course,
    callback: cp_model.CpSolverSolutionCallback,
) -> int:
    if isinstance(callback, _BetterPlan):
        solver.best_bound_callback = course.bound
    return run_solver(solver, model, callback, should_stop=course.limits.should_stop)


def _hint_baseline(model: cp_model.CpModel, problem: Problem, variables: Variables) -> None:
    """Start phase 1 from the plan without recomputation."""
    for executions in variables.executions:
        for execution in executions[1:]:
            model.add_hint(execution.is_present, 0)
    for value in problem.values:
        last_use = max((problem.columns[r].first_event for r in value.readers), default=None)
        first = variables.copies[value.name][0]
        if last_use is not None and value.is_evictable:
            model.add_hint(first.end, last_use)


def _hint_solution(model: cp_model.CpModel, solver: cp_model.CpSolver) -> None:
    model.clear_hints()  # type: ignore[no-untyped-call]
    for index in range(len(model.proto.variables)):
        variable = model.get_int_var_from_proto_index(index)
        model.add_hint(variable, solver.value(variable))


def _steps(graph: Graph, problem: Problem, variables: Variables, solver: cp_model.CpSolver) -> tuple[Step, ...]:
    runs = [
        Run(solver.value(execution.start), column.position, index)
        for column, executions in zip(problem.columns, variables.executions, strict=True)
        for index, execution in enumerate(executions)
        if solver.value(execution.is_present)
    ]
    copies = [
        RetainedCopy(name, solver.value(copy.start), solver.value(copy.end))
        for name, all_copies in variables.copies.items()
        for copy in all_copies
        if solver.value(copy.is_present)
    ]
    return steps_from_retention(graph, problem, runs, copies)
