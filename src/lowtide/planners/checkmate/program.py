"""A mixed-integer program, row by row, and HiGHS to solve it or its linear relaxation."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np
import numpy.typing as npt

from lowtide.planners.highs import QuietHighs

__all__ = ["Floats", "Program", "Solved"]

Floats = npt.NDArray[np.float64]
_INFINITY = float(highspy.kHighsInf)


@dataclass(frozen=True, slots=True)
class Solved:
    """What a solve ended with.

    Attributes:
        values: Of the variables, in the best solution; of a linear program that was stopped, its last iterate. None
            where there is none.
        is_optimal: Whether the solution is proven optimal.
        is_infeasible: Whether it is proven that there is none.
    """

    values: Floats | None
    is_optimal: bool = False
    is_infeasible: bool = False


class Program:
    """Minimise the cost of variables subject to rows ``least <= sum of coefficient x variable <= most``."""

    def __init__(self) -> None:
        self._costs = array("d")
        self._lower = array("d")
        self._upper = array("d")
        self._is_whole = array("b")
        self._starts = array("i", [0])
        self._columns = array("i")
        self._coefficients = array("d")
        self._least = array("d")
        self._most = array("d")

    @property
    def num_variables(self) -> int:
        """How many variables there are."""
        return len(self._costs)

    @property
    def num_nonzeros(self) -> int:
        """How many coefficients there are."""
        return len(self._columns)

    def add_binary(self, *, cost: float = 0.0, most: int = 1) -> int:
        """Add a variable that is 0 or 1 (only 0 with ``most`` 0); returns its index."""
        return self._add(cost, 0.0, float(most), is_whole=True)

    def add_continuous(self, *, most: float) -> int:
        """Add a variable from 0 to ``most``; returns its index."""
        return self._add(0.0, 0.0, most, is_whole=False)

    def fix(self, variable: int, value: float) -> None:
        """Give a variable its value."""
        self._lower[variable] = self._upper[variable] = value

    def add_row(
        self, terms: Iterable[tuple[int, float]], *, least: float = -_INFINITY, most: float = _INFINITY
    ) -> None:
        """Add a row of (variable, coefficient) terms, no variable twice."""
        for variable, coefficient in terms:
            self._columns.append(variable)
            self._coefficients.append(coefficient)
        self._starts.append(len(self._columns))
        self._least.append(least)
        self._most.append(most)

    def solve(
        self,
        *,
        are_whole: bool,
        seed: int = 0,
        threads: int = 1,
        seconds: float | None = None,
        should_stop: Callable[[], bool] | None = None,
        on_solution: Callable[[Floats], None] | None = None,
    ) -> Solved:
        """Solve the program, or its linear relaxation.

        Args:
            are_whole: Whether binary variables are whole.
            seed: Of the solver.
            threads: Of the solver.
            seconds: Wall-clock time, or None.
            should_stop: True ends the solve, or None.
            on_solution: Called with every better whole solution, or None.
        """
        solver = QuietHighs()
        solver.setOptionValue("threads", threads)
        solver.setOptionValue("random_seed", seed % 2**31)
        solver.setOptionValue("mip_rel_gap", 0.0)
        if seconds is not None:
            solver.setOptionValue("time_limit", max(0.0, seconds))
        solver.setCallback(
            _callback(should_stop, on_solution, None if seconds is None else time.monotonic() + seconds), None
        )
        kinds = highspy.cb.HighsCallbackType
        for kind in (kinds.kCallbackMipInterrupt, kinds.kCallbackSimplexInterrupt, kinds.kCallbackIpmInterrupt):
            solver.startCallback(kind)
        solver.startCallback(kinds.kCallbackMipImprovingSolution)
        status = solver.passModel(self._model(are_whole=are_whole))
        assert status != highspy.HighsStatus.kError
        solver.run()
        return _solved(solver, are_whole=are_whole)

    def _add(self, cost: float, lower: float, upper: float, *, is_whole: bool) -> int:
        self._costs.append(cost)
        self._lower.append(lower)
        self._upper.append(upper)
        self._is_whole.append(is_whole)
        return len(self._costs) - 1

    def _model(self, *, are_whole: bool) -> highspy.HighsLp:
        model = highspy.HighsLp()
        model.num_col_ = self.num_variables
        model.num_row_ = len(self._least)
        costs = np.asarray(self._costs, dtype=np.float64)
        model.col_cost_ = costs / max(1.0, costs.max(initial=0.0) / 100.0)  # the solver's tolerances are absolute
        model.col_lower_ = np.asarray(self._lower, dtype=np.float64)
        model.col_upper_ = np.asarray(self._upper, dtype=np.float64)
        model.row_lower_ = np.asarray(self._least, dtype=np.float64)
        model.row_upper_ = np.asarray(self._most, dtype=np.float64)
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = np.asarray(self._starts, dtype=np.int32)
        model.a_matrix_.index_ = np.asarray(self._columns, dtype=np.int32)
        model.a_matrix_.value_ = np.asarray(self._coefficients, dtype=np.float64)
        if are_whole:
            whole, free = highspy.HighsVarType.kInteger, highspy.HighsVarType.kContinuous
            model.integrality_ = [whole if is_whole else free for is_whole in self._is_whole]
        return model


def _callback(
    should_stop: Callable[[], bool] | None, on_solution: Callable[[Floats], None] | None, ends: float | None
) -> Callable[..., None]:
    """What the solver calls: it looks at its own clock too rarely, so the time is looked at here as well."""

    def call(kind: Any, _message: str, told: Any, answer: Any, _data: Any) -> None:
        if kind == highspy.cb.HighsCallbackType.kCallbackMipImprovingSolution:
            if on_solution is not None:
                on_solution(np.array(told.mip_solution, dtype=np.float64))
            return
        is_late = ends is not None and time.monotonic() >= ends
        if is_late or (should_stop is not None and should_stop()):
            answer.user_interrupt = True

    return call


def _solved(solver: highspy.Highs, *, are_whole: bool) -> Solved:
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return Solved(None, is_infeasible=True)
    is_feasible = solver.getInfo().primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    values = np.asarray(solver.getSolution().col_value, dtype=np.float64)
    if not len(values) or (are_whole and not is_feasible):
        return Solved(None)
    return Solved(values, is_optimal=status == highspy.HighsModelStatus.kOptimal)
