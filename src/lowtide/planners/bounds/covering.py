"""A linear program with variables in [0, 1], built row by row and bounded from below by HiGHS.

For an LP the bound is computed anew from the row duals (Lagrange: it holds for any duals, so no tolerance of the solver
can make it too high, rounding errors of floating point apart); for a MIP it is the solver's dual bound. Both become
whole numbers (:mod:`lowtide.planners.bounds.whole`). Costs of solutions are computed anew, too. Each solve takes a
fresh HiGHS object: version 1.16 returned a wrong "optimal" when one object was run again after its integrality had
changed. For rows that come one after another to the same LP there is
:class:`~lowtide.planners.bounds.linear.LinearSession`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

import highspy
import numpy as np
import numpy.typing as npt

from lowtide.planners.bounds.whole import cost_scale, rounded_up
from lowtide.planners.highs import QuietHighs

__all__ = ["CoverBound", "CoverProgram", "Floats", "Row"]

_LEAST_CONTRADICTION = 1e-7
_MAY_RESTART = False
"""At the root: HiGHS 1.16 has gone round for ever there, where it looks at no time limit."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class CoverBound:
    """What a solve proved.

    Attributes:
        cost: No solution costs less; a whole number, rounded up.
        is_infeasible: Whether there is no solution.
        is_solved: Whether the solver ended by itself (False: time was up and ``cost`` is what it had by then).
        values: Of the variables in the best solution met, or None where none was met.
    """

    cost: int
    is_infeasible: bool
    is_solved: bool
    values: Floats | None = field(default=None, compare=False)


@dataclass(slots=True, eq=False)
class Row:
    """``sum of coefficient x variable >= least``, divided by ``scale``.

    Attributes:
        terms: Coefficient by variable.
        least: The right-hand side.
        scale: What both were divided by: the largest coefficient at first.
        num_idle: Solves in a row to which it made no difference.
        is_kept: Whether it stays, however idle.
    """

    terms: dict[int, float]
    least: float
    scale: float
    num_idle: int = 0
    is_kept: bool = False


@dataclass
class CoverProgram:
    """Minimise the cost of 0/1 variables subject to rows ``sum of coefficient x variable >= least``."""

    rows: list[Row] = field(default_factory=list)
    changes: list[tuple[Row, int]] = field(default_factory=list)
    _costs: list[int] = field(default_factory=list)

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return len(self.rows)

    @property
    def num_variables(self) -> int:
        """How many variables there are."""
        return len(self._costs)

    def add_variable(self, *, cost: int = 0) -> int:
        """Add a variable; returns its index."""
        self._costs.append(cost)
        return len(self._costs) - 1

    def add_row(self, terms: Sequence[tuple[int, int]], *, least: int, is_kept: bool = False) -> Row:
        """Require that the (variable, coefficient) terms add up to ``least`` or more."""
        merged: dict[int, float] = {}  # HiGHS takes no row that names a variable twice
        for variable, coefficient in terms:
            merged[variable] = merged.get(variable, 0) + coefficient
        scale = float(max(map(abs, merged.values()), default=1)) or 1.0
        for variable in merged:
            merged[variable] /= scale
        self.rows.append(Row(merged, least / scale, scale, is_kept=is_kept))
        return self.rows[-1]

    def add_implication(self, variable: int, *, needs_one_of: Sequence[int]) -> Row:
        """Require that the variable is 0 unless one of the others is 1."""
        return self.add_row([(variable, -1), *((other, 1) for other in needs_one_of)], least=0)

    def change_row(self, row: Row, variable: int, *, by: int) -> None:
        """Add to the coefficient of one variable in a row."""
        row.terms[variable] = row.terms.get(variable, 0.0) + by / row.scale
        self.changes.append((row, variable))

    def cost_of(self, values: Floats) -> float:
        """The cost of a solution, by its values alone."""
        return float(values @ np.asarray(self._costs[: len(values)], dtype=np.float64))

    def solve_lp(self, *, time_limit_seconds: float | None) -> CoverBound:
        """Bound the linear relaxation from below."""
        solver = self._run(time_limit_seconds=time_limit_seconds, are_whole=False)
        return self.lp_answer(solver, scale=self._cost_scale())

    def solve_mip(self, *, time_limit_seconds: float | None, max_search_nodes: int | None = None) -> CoverBound:
        """Bound the program with whole variables from below."""
        solver = self._run(time_limit_seconds=time_limit_seconds, are_whole=True, max_search_nodes=max_search_nodes)
        status = solver.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            return CoverBound(0, is_infeasible=True, is_solved=True)
        bound = solver.getInfo().mip_dual_bound
        is_solved = status == highspy.HighsModelStatus.kOptimal
        is_met = solver.getInfo().primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        values = np.asarray(solver.getSolution().col_value, dtype=np.float64) if is_met else None
        return CoverBound(self._rounded_up(bound), is_infeasible=False, is_solved=is_solved, values=values)

    def lp_answer(self, solver: highspy.Highs, *, scale: float) -> CoverBound:
        """What the duals of a solver that holds this program prove, with costs divided by a scale."""
        status = solver.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            return CoverBound(0, is_infeasible=self._is_proven_infeasible(solver), is_solved=True)
        solution = solver.getSolution()
        duals = np.asarray(solution.row_dual, dtype=np.float64)
        is_solved = status == highspy.HighsModelStatus.kOptimal
        if len(duals) != self.num_rows:
            return CoverBound(0, is_infeasible=False, is_solved=is_solved)
        values = np.asarray(solution.col_value, dtype=np.float64)
        cost = self._rounded_up(self._lagrange(duals, scale), scale)
        return CoverBound(cost, is_infeasible=False, is_solved=is_solved, values=values)

    def _is_proven_infeasible(self, solver: highspy.Highs) -> bool:
        """Whether a combination of rows says 0 >= something above 0, whatever the solver's tolerances."""
        _, has_ray, ray = solver.getDualRay()  # type: ignore[attr-defined]  # its stubs leave it out
        if not has_ray:  # presolve saw it
            return True
        most = float(np.abs(ray).max(initial=0.0)) or 1.0
        return max(self._lagrange(sign * ray / most, math.inf) for sign in (1.0, -1.0)) > _LEAST_CONTRADICTION

    def matrix(self, rows: Sequence[Row]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], Floats]:
        """Where each row starts, the variables and the coefficients of all of them, one after another."""
        starts = np.zeros(len(rows) + 1, dtype=np.int32)
        np.cumsum([len(row.terms) for row in rows], out=starts[1:])
        size = int(starts[-1])
        columns = np.fromiter(chain.from_iterable(row.terms for row in rows), dtype=np.int32, count=size)
        coefficients = chain.from_iterable(row.terms.values() for row in rows)
        return starts, columns, np.fromiter(coefficients, dtype=np.float64, count=size)

    def _run(
        self, *, time_limit_seconds: float | None, are_whole: bool, max_search_nodes: int | None = None
    ) -> highspy.Highs:
        solver = QuietHighs()
        if time_limit_seconds is not None:
            solver.setOptionValue("time_limit", max(0.0, time_limit_seconds))
        if are_whole:
            solver.setOptionValue("mip_rel_gap", 0.0)
            solver.setOptionValue("mip_heuristic_effort", 0.0)  # only the bound counts
            solver.setOptionValue("mip_allow_restart", _MAY_RESTART)
            if max_search_nodes is not None:
                solver.setOptionValue("mip_max_nodes", max_search_nodes)
            solver.setOptionValue("mip_abs_gap", 0.5 / self._cost_scale())
        status = solver.passModel(self._model(are_whole=are_whole))
        assert status != highspy.HighsStatus.kError
        solver.run()
        return solver

    def _model(self, *, are_whole: bool) -> highspy.HighsLp:
        starts, columns, coefficients = self.matrix(self.rows)
        model = highspy.HighsLp()
        model.num_col_ = self.num_variables
        model.num_row_ = self.num_rows
        model.col_cost_ = self.scaled_costs(self._cost_scale())
        model.col_lower_ = np.zeros(self.num_variables)
        model.col_upper_ = np.ones(self.num_variables)
        model.row_lower_ = np.asarray([row.least for row in self.rows], dtype=np.float64)
        model.row_upper_ = np.full(self.num_rows, highspy.kHighsInf)
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = starts
        model.a_matrix_.index_ = columns
        model.a_matrix_.value_ = coefficients
        if are_whole:
            model.integrality_ = [highspy.HighsVarType.kInteger] * self.num_variables
        return model

    def _cost_scale(self) -> float:
        return cost_scale(self._costs)

    def scaled_costs(self, scale: float) -> Floats:
        """The costs divided by a scale."""
        return np.asarray(self._costs, dtype=np.float64) / scale

    def _lagrange(self, duals: Floats, scale: float) -> float:
        """The least of cost - duals x (rows - least) over the box, for duals at least 0."""
        duals = np.maximum(duals, 0.0)
        starts, columns, coefficients = self.matrix(self.rows)
        weights = np.repeat(duals, np.diff(starts)) * coefficients
        reduced = self.scaled_costs(scale) - np.bincount(columns, weights=weights, minlength=self.num_variables)
        return float(duals @ np.asarray([row.least for row in self.rows]) + np.minimum(reduced, 0.0).sum())

    def _rounded_up(self, scaled_bound: float, scale: float | None = None) -> int:
        return rounded_up(scaled_bound * (self._cost_scale() if scale is None else scale), self._costs)
