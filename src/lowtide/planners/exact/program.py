"""A covering program solved to whole numbers by HiGHS, with the solution itself and not only its bound.

Each solve takes a fresh HiGHS object: version 1.16 returned a wrong "optimal" when one object was run again after its
integrality had changed. The bound is the solver's dual bound less a tolerance (:mod:`lowtide.planners.bounds.whole`),
also where the solver calls its solution optimal: of costs that differ by a hundred-millionth it does not see which is
less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import highspy
import numpy as np
import numpy.typing as npt

from lowtide.planners.bounds.whole import cost_scale, rounded_up
from lowtide.planners.highs import QuietHighs

__all__ = ["WholeProgram", "WholeSolution"]

_NEAR = 1e-6  # 0 or 1
_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class WholeSolution:
    """What a solve found.

    Attributes:
        cost: No solution costs less; a whole number, rounded up.
        is_infeasible: Whether there is no solution.
        is_solved: Whether the solver ended by itself.
        is_chosen: By variable, whether it is 1 in the best solution met; None where none was met.
    """

    cost: int
    is_infeasible: bool
    is_solved: bool
    is_chosen: list[bool] | None


@dataclass
class WholeProgram:
    """Minimise the cost of 0/1 variables subject to rows ``sum of coefficient x variable >= least``."""

    _costs: list[int] = field(default_factory=list)
    _starts: list[int] = field(default_factory=lambda: [0])
    _columns: list[int] = field(default_factory=list)
    _coefficients: list[float] = field(default_factory=list)
    _least: list[float] = field(default_factory=list)

    @property
    def num_variables(self) -> int:
        """How many variables there are."""
        return len(self._costs)

    def add_variable(self, *, cost: int = 0) -> int:
        """Add a variable; returns its index."""
        self._costs.append(cost)
        return len(self._costs) - 1

    def add_row(self, terms: Sequence[tuple[int, int]], *, least: int) -> None:
        """Require that the (variable, coefficient) terms add up to ``least`` or more."""
        merged: dict[int, int] = {}  # HiGHS takes no row that names a variable twice
        for variable, coefficient in terms:
            merged[variable] = merged.get(variable, 0) + coefficient
        scale = float(max(map(abs, merged.values()), default=1)) or 1.0
        self._columns += merged
        self._coefficients += [coefficient / scale for coefficient in merged.values()]
        self._starts.append(len(self._columns))
        self._least.append(least / scale)

    def add_implication(self, variable: int, *, needs_one_of: Sequence[int]) -> None:
        """Require that the variable is 0 unless one of the others is 1."""
        self.add_row([(variable, -1), *((other, 1) for other in needs_one_of)], least=0)

    def solve(self, *, time_limit_seconds: float | None, max_search_nodes: int | None) -> WholeSolution:
        """Solve with whole variables.

        Args:
            time_limit_seconds: Wall-clock time of the solver, or None.
            max_search_nodes: Nodes of branch and bound, or None.
        """
        solver = self._solver(time_limit_seconds, are_whole=True)
        solver.setOptionValue("mip_rel_gap", 0.0)
        solver.setOptionValue("mip_abs_gap", 0.5 / self._cost_scale)
        if max_search_nodes is not None:
            solver.setOptionValue("mip_max_nodes", max_search_nodes)
        solver.run()
        if solver.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
            return WholeSolution(0, is_infeasible=True, is_solved=True, is_chosen=None)
        is_solved = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
        bound = rounded_up(solver.getInfo().mip_dual_bound * self._cost_scale, self._costs)
        is_chosen = _chosen(solver)
        return WholeSolution(bound, is_infeasible=False, is_solved=is_solved, is_chosen=is_chosen)

    def count_fractional(
        self, variables: Sequence[int], *, time_limit_seconds: float | None, max_iterations: int
    ) -> int | None:
        """How many of some variables are neither 0 nor 1 in a solution of the linear relaxation.

        Args:
            variables: Those to look at.
            time_limit_seconds: Wall-clock time of the solver, or None.
            max_iterations: Of the simplex method.

        Returns:
            The number, or None where the solver did not end within its limits.
        """
        solver = self._solver(time_limit_seconds, are_whole=False)
        solver.setOptionValue("simplex_iteration_limit", max_iterations)
        solver.run()
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        values = np.asarray(solver.getSolution().col_value, dtype=np.float64)[np.asarray(variables, dtype=np.int64)]
        return int(np.count_nonzero((values > _NEAR) & (values < 1 - _NEAR)))

    def _solver(self, time_limit_seconds: float | None, *, are_whole: bool) -> highspy.Highs:
        solver = QuietHighs()
        if time_limit_seconds is not None:
            solver.setOptionValue("time_limit", max(0.0, time_limit_seconds))
        status = solver.passModel(self._model(are_whole=are_whole))
        assert status != highspy.HighsStatus.kError
        return solver

    def _model(self, *, are_whole: bool) -> highspy.HighsLp:
        model = highspy.HighsLp()
        model.num_col_ = self.num_variables
        model.num_row_ = len(self._least)
        model.col_cost_ = np.asarray(self._costs, dtype=np.float64) / self._cost_scale
        model.col_lower_ = np.zeros(self.num_variables)
        model.col_upper_ = np.ones(self.num_variables)
        model.row_lower_ = np.asarray(self._least, dtype=np.float64)
        model.row_upper_ = np.full(len(self._least), highspy.kHighsInf)
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = np.asarray(self._starts, dtype=np.int32)
        model.a_matrix_.index_ = np.asarray(self._columns, dtype=np.int32)
        model.a_matrix_.value_ = np.asarray(self._coefficients, dtype=np.float64)
        if are_whole:
            model.integrality_ = [highspy.HighsVarType.kInteger] * self.num_variables
        return model

    @property
    def _cost_scale(self) -> float:
        return cost_scale(self._costs)


def _chosen(solver: highspy.Highs) -> list[bool] | None:
    """The solution where there is a feasible one: HiGHS answers with something in any case."""
    if solver.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return None
    values: _Floats = np.asarray(solver.getSolution().col_value, dtype=np.float64)
    return [bool(value > 0.5) for value in values]
