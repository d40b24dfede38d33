"""One linear program solved again and again while rows and variables are added: the dual simplex goes on from before.

Rows that make no difference for some solves are dropped, so that the program stays small; they may come back. The best
bound of all solves counts, so dropping never loses one.
"""

from __future__ import annotations

import time

import highspy
import numpy as np

from lowtide.planners.bounds.covering import CoverBound, CoverProgram, Row
from lowtide.planners.highs import QuietHighs

__all__ = ["LinearSession"]

_MOST_IDLE = 4
"""Solves that a row may make no difference to before it is dropped."""

_LEAST_PROGRESS = 1e-3
"""Relative growth of the cost between two droppings."""


class LinearSession:
    """Holds HiGHS beside a growing program.

    Args:
        program: What is solved; rows and variables may be added between solves, and rows changed.
    """

    def __init__(self, program: CoverProgram) -> None:
        self._program = program
        self._solver = QuietHighs()
        self._solver.setOptionValue("solver", "simplex")
        self._solver.setOptionValue("presolve", "off")  # small at first, later it goes on from a basis
        self._scale = 0.0
        self._num_variables = 0
        self._position: dict[Row, int] = {}
        self._cost_when_dropped = 0.0

    def solve(self, *, ends: float | None) -> CoverBound:
        """Solve what the program is by now.

        Args:
            ends: When to stop, on the monotonic clock, or None.
        """
        self._push()
        if ends is not None:
            seconds = max(0.0, ends - time.monotonic())
            self._solver.setOptionValue("time_limit", self._solver.getRunTime() + seconds)
        self._solver.run()
        answer = self._program.lp_answer(self._solver, scale=self._scale)
        if answer.is_solved and answer.values is not None:
            self._note_idle_rows()
            self._drop_idle_rows()
        return answer

    def _drop_idle_rows(self) -> None:
        cost = self._solver.getInfo().objective_function_value
        if cost <= self._cost_when_dropped * (1.0 + _LEAST_PROGRESS):
            return  # rows that come back after they were dropped would go round in a circle
        rows = self._program.rows
        dropped = [index for index, row in enumerate(rows) if row.num_idle >= _MOST_IDLE and not row.is_kept]
        if 5 * len(dropped) < len(rows):
            return
        self._cost_when_dropped = cost
        self._solver.deleteRows(len(dropped), np.asarray(dropped, dtype=np.int32))
        gone = set(dropped)
        rows[:] = [row for index, row in enumerate(rows) if index not in gone]
        self._position = {row: index for index, row in enumerate(rows)}

    def _note_idle_rows(self) -> None:
        duals = self._solver.getSolution().row_dual
        for row, dual in zip(self._program.rows, duals, strict=True):
            row.num_idle = 0 if dual > 0.0 else row.num_idle + 1

    def _push(self) -> None:
        program, solver = self._program, self._solver
        if not self._scale:
            self._scale = program._cost_scale()
        num_new = program.num_variables - self._num_variables
        if num_new:
            solver.addVars(num_new, np.zeros(num_new), np.ones(num_new))
            fresh = np.arange(self._num_variables, program.num_variables, dtype=np.int32)
            solver.changeColsCost(num_new, fresh, program.scaled_costs(self._scale)[fresh])
            self._num_variables = program.num_variables
        for row, variable in program.changes:
            if row in self._position:
                solver.changeCoeff(self._position[row], variable, row.terms[variable])
        program.changes.clear()
        rows = program.rows[len(self._position) :]
        if not rows:
            return
        starts, columns, coefficients = program.matrix(rows)
        least = np.asarray([row.least for row in rows], dtype=np.float64)
        most = np.full(len(rows), highspy.kHighsInf)
        solver.addRows(len(rows), least, most, len(columns), starts[:-1], columns, coefficients)
        for row in rows:
            self._position[row] = len(self._position)
