"""The course of a search: its clock, the best plan, the proven bound, and who wants to know or to stop it."""

from __future__ import annotations

import threading
import time

from ortools.sat.python import cp_model

from lowtide.ir import Incumbent, Step
from lowtide.planners.cp_solving import run_solver
from lowtide.planners.protocol import PlanRequest

__all__ = ["Course"]


class Course:
    """What is known so far.

    Args:
        request: What is planned.
        started: ``time.monotonic()`` at the start.

    Attributes:
        incumbents: Every better plan or bound.
        steps: Of the best plan, or None.
        duration: Of the best plan, or None.
        lower_bound_duration: Proven for all plans in the given order.
        is_infeasible: Whether it is proven that none fits.
    """

    def __init__(self, request: PlanRequest, started: float) -> None:
        self.incumbents: list[Incumbent] = []
        self.steps: tuple[Step, ...] | None = None
        self.duration: int | None = None
        self.lower_bound_duration = request.graph.baseline_duration
        self.is_infeasible = False
        self._request = request
        self._started = started
        self._lock = threading.Lock()

    def found(self, steps: tuple[Step, ...], duration: int) -> None:
        """Take down a plan that fits, if it is better."""
        with self._lock:
            if self.duration is None or duration < self.duration:
                self.steps, self.duration = steps, duration
                self._note()

    def proved(self, bound: float) -> None:
        """Take down a bound on the duration, if it is higher; whole durations are rounded up."""
        rounded = -int(-(bound - 1e-6) // 1)
        with self._lock:
            if self.duration is not None:
                rounded = min(rounded, self.duration)
            if rounded > self.lower_bound_duration:
                self.lower_bound_duration = rounded
                self._note()

    def seconds_left(self) -> float | None:
        """Until the time limit, or None without one."""
        if self._request.time_limit_seconds is None:
            return None
        return max(0.0, self._request.time_limit_seconds - (time.monotonic() - self._started))

    @property
    def is_closed(self) -> bool:
        """Whether the best plan is proven optimal."""
        return self.duration is not None and self.duration <= self.lower_bound_duration

    @property
    def is_over(self) -> bool:
        """Whether time is up or somebody asked to stop."""
        left = self.seconds_left()
        if left is not None and left <= 0.0:
            return True
        return self._request.should_stop is not None and self._request.should_stop()

    def solve(
        self, solver: cp_model.CpSolver, model: cp_model.CpModel, callback: cp_model.CpSolverSolutionCallback
    ) -> int:
        """Solve a model until somebody asks to stop; returns the status."""
        return run_solver(solver, model, callback, should_stop=self._request.should_stop)

    def _note(self) -> None:
        incumbent = Incumbent(time.monotonic() - self._started, self.duration, self.lower_bound_duration)
        self.incumbents.append(incumbent)
        if self._request.on_progress is not None:
            self._request.on_progress(incumbent)
