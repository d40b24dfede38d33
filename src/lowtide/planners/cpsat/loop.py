"""Solve the model, carry its solution out stage by stage, cut off what cannot be, and again.

One worker of CP-SAT with full linear relaxations: the chains "present now, so present before or made again" are what
makes the bound, and only their linear form sees through them. On small graphs this closes in seconds what a mixed
portfolio of two workers leaves at a bound of 0, and it makes the search deterministic.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from enum import Enum

from ortools.sat.python import cp_model

from lowtide.ir.sequence import steps_from_sequence
from lowtide.planners.cpsat.choice import Choice, choice_from_solution, choice_from_steps, stage_cases
from lowtide.planners.cpsat.course import Course
from lowtide.planners.cpsat.cuts import add_stage_cut
from lowtide.planners.cpsat.model import build_model
from lowtide.planners.cpsat.problem import Problem
from lowtide.planners.cpsat.stages import Carried, StageCase, carry_out, carry_out_in_order
from lowtide.planners.flat import FlatGraph, sequence_of_runs
from lowtide.planners.profile import peak_bytes

__all__ = ["Ending", "Loop"]

logger = logging.getLogger("lowtide")


class Ending(Enum):
    """Why a loop ended."""

    SOLVED = "solved"  # no solution is better than the best plan
    INFEASIBLE = "infeasible"
    STUCK = "stuck"  # a stage too large for the exhaustive search, or a solution that the flat graph cannot express
    OVER = "over"  # time, or asked to stop


class Loop:
    """The loop over one problem.

    Args:
        flat: The graph.
        problem: What to solve.
        course: Knows the best plan; receives better ones and, if they hold for all plans, bounds.
        seed: Of the solver.
        is_bounding: Whether every plan in the given order is a solution of the problem.
        is_executable: Whether every solution of the problem is a plan of the flat graph.
    """

    def __init__(
        self, flat: FlatGraph, problem: Problem, course: Course, *, seed: int, is_bounding: bool, is_executable: bool
    ) -> None:
        self._flat = flat
        self._course = course
        self._seed = seed
        self._is_bounding = is_bounding
        self._is_executable = is_executable
        self._model = build_model(problem)

    def run(self, *, seconds_share: float = 1.0) -> Ending:
        """Solve and cut until the problem is closed or time is up.

        Args:
            seconds_share: Of the time left, where there is a time limit.
        """
        left = self._course.seconds_left()
        reserve = 0.0 if left is None else (1.0 - seconds_share) * left
        while not self._course.is_over:
            left = self._course.seconds_left()
            if left is not None and left <= reserve:
                break
            ending = self._solve_once(None if left is None else left - reserve)
            if ending is not None:
                return ending
        return Ending.OVER

    def _solve_once(self, seconds: float | None) -> Ending | None:
        """One round; None where it takes another one."""
        solver = self._solver(seconds)
        self._aim()
        status = self._course.solve(solver, self._model.model, _Solutions(self))
        assert status != cp_model.MODEL_INVALID, self._model.model.validate()
        baseline_duration = self._flat.graph.baseline_duration
        if status == cp_model.INFEASIBLE:
            return self._nothing_better()
        if status == cp_model.OPTIMAL:
            self._proved(baseline_duration + solver.objective_value)
            best = self._course.duration
            if best is not None and baseline_duration + solver.objective_value >= best:
                return Ending.SOLVED
            return self._carry_out(self.choice(solver))
        self._proved(baseline_duration + solver.best_objective_bound)
        return Ending.OVER

    def choice(self, solved: cp_model.CpSolver | cp_model.CpSolverSolutionCallback) -> Choice:
        """What the solver decided."""
        variables = self._model.variables
        return choice_from_solution(
            self._model.problem,
            frozenset(pair for pair, run in variables.runs.items() if solved.boolean_value(run)),
            frozenset(pair for pair, literal in variables.present.items() if solved.boolean_value(literal)),
        )

    def is_better(self, extra_duration: float) -> bool:
        """Whether a plan with so much recomputation would be the best one."""
        best = self._course.duration
        return best is None or self._flat.graph.baseline_duration + extra_duration < best

    def try_in_order(self, choice: Choice) -> None:
        """Take a solution as a plan if all its stages can run in the given order."""
        cases = list(stage_cases(self._model.problem, choice))
        if all(carry_out_in_order(self._model.problem, case) for case in cases):
            self._accept({case.stage: case.runs for case in cases})

    def _carry_out(self, choice: Choice) -> Ending | None:
        cases = list(stage_cases(self._model.problem, choice))
        runs_by_stage: dict[int, Sequence[int]] = {}
        num_cuts = num_unknown = 0
        for case in cases:
            carried = self._carried(case)
            if carried is None:
                num_unknown += 1
            elif carried.sequence is None or carried.duration > case.duration(self._model.problem):
                add_stage_cut(self._model, case, carried)
                num_cuts += 1
            if carried is not None and carried.sequence is not None:
                runs_by_stage[case.stage] = carried.sequence
        logger.debug("cpsat: %d stages, %d cuts, %d too large", len(cases), num_cuts, num_unknown)
        if len(runs_by_stage) == len(cases):
            self._accept(runs_by_stage)
        if num_cuts:
            return None
        is_closed = self._course.is_closed if self._is_bounding else not num_unknown
        return Ending.SOLVED if is_closed else Ending.STUCK

    def _carried(self, case: StageCase) -> Carried | None:
        if carry_out_in_order(self._model.problem, case):
            return Carried(case.runs, case.duration(self._model.problem))
        return carry_out(self._model.problem, case)

    def _accept(self, runs_by_stage: Mapping[int, Sequence[int]]) -> None:
        """Take a plan down, if it can be carried out on the flat graph and fits."""
        if not self._is_executable:
            return
        graph, problem = self._flat.graph, self._model.problem
        sequence = sequence_of_runs(self._flat, runs_by_stage)
        most = max((sequence.count(name) for name in set(sequence)), default=0)
        if problem.max_copies is not None and most > problem.max_copies:
            return
        if peak_bytes(graph, sequence) <= problem.budget_bytes:
            duration = sum(graph.node_by_name[name].duration for name in sequence)
            self._course.found(steps_from_sequence(graph, sequence), duration)

    def _nothing_better(self) -> Ending:
        if self._course.duration is not None:
            self._proved(self._course.duration)
            return Ending.SOLVED
        if self._is_bounding:
            self._course.is_infeasible = True
        return Ending.INFEASIBLE

    def _proved(self, bound: float) -> None:
        if self._is_bounding:
            self._course.proved(bound)

    def _solver(self, seconds: float | None) -> cp_model.CpSolver:
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.linearization_level = 2
        solver.parameters.random_seed = self._seed % 2**31
        if seconds is not None:
            solver.parameters.max_time_in_seconds = seconds
        if self._is_bounding:
            baseline_duration = self._flat.graph.baseline_duration
            solver.best_bound_callback = lambda bound: self._course.proved(baseline_duration + bound)
        return solver

    def _aim(self) -> None:
        """Minimise the extra duration, from the best plan on and not above it."""
        model, variables = self._model.model, self._model.variables
        objective = self._model.extra_duration
        model.minimize(objective)
        steps, duration = self._course.steps, self._course.duration
        if steps is None or duration is None:
            return
        model.add(objective <= duration - self._flat.graph.baseline_duration)
        model.clear_hints()  # type: ignore[no-untyped-call]
        choice = choice_from_steps(self._flat.graph, self._model.problem, steps)
        for pair, run in variables.runs.items():
            model.add_hint(run, int(pair in choice.runs))
        for (stage, index), present in variables.present.items():
            if not self._model.problem.storages[index].is_needed_at(stage):
                model.add_hint(present, int((stage, index) in choice.present))


class _Solutions(cp_model.CpSolverSolutionCallback):
    """Takes every solution that is a plan in the given order."""

    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self._loop = loop

    def on_solution_callback(self) -> None:
        """Called by the solver."""
        if self._loop.is_better(self.objective_value):
            self._loop.try_in_order(self._loop.choice(self))
