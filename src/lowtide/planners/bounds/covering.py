"""A linear program with variables in [0, 1], built row by row and bounded from below by HiGHS.

Only the dual side is used: for an LP the bound is computed anew from the row duals (Lagrange: it holds for any duals,
so no tolerance of the solver can make it too high, rounding errors of floating point apart); for a MIP it is the
solver's dual bound less a tolerance. Each solve takes a fresh HiGHS object: version 1.16 returned a wrong "optimal"
when one object was run again after its integrality had changed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import highspy
import numpy as np
import numpy.typing as npt

__all__ = ["CoverBound", "CoverProgram"]

_RELATIVE_TOLERANCE = 1e-7
_IS_SHOWN = {"output_flag": False}
_Floats = npt.NDArray[np.float64]


class _QuietHighs(highspy.Highs):
    """HiGHS without a word on the terminal.

    Its own constructor registers callbacks, which prints a banner before any option can be set; the bounds need none.
    """

    def __init__(self) -> None:
        super(highspy.Highs, self).__init__()
        for option, value in _IS_SHOWN.items():
            self.setOptionValue(option, value)


@dataclass(frozen=True, slots=True)
class CoverBound:
    """What a solve proved.

    Attributes:
        cost: No solution costs less; a whole number, rounded up.
        is_infeasible: Whether there is no solution.
        is_solved: Whether the solver ended by itself (False: time was up and ``cost`` is what it had by then).
    """

    cost: int
    is_infeasible: bool
    is_solved: bool


@dataclass
class CoverProgram:
    """Minimise the cost of 0/1 variables subject to rows ``sum of coefficient x variable >= least``."""

    _costs: list[int] = field(default_factory=list)
    _starts: list[int] = field(default_factory=lambda: [0])
    _columns: list[int] = field(default_factory=list)
    _coefficients: list[float] = field(default_factory=list)
    _least: list[float] = field(default_factory=list)

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return len(self._least)

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
        for variable, coefficient in merged.items():
            self._columns.append(variable)
            self._coefficients.append(coefficient / scale)
        self._starts.append(len(self._columns))
        self._least.append(least / scale)

    def add_implication(self, variable: int, *, needs_one_of: Sequence[int]) -> None:
        """Require that the variable is 0 unless one of the others is 1."""
        self.add_row([(variable, -1), *((other, 1) for other in needs_one_of)], least=0)

    def solve_lp(self, *, time_limit_seconds: float | None) -> CoverBound:
        """Bound the linear relaxation from below."""
        solver = self._run(time_limit_seconds=time_limit_seconds, are_whole=False)
        status = solver.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            return CoverBound(0, is_infeasible=True, is_solved=True)
        duals = np.asarray(solver.getSolution().row_dual, dtype=np.float64)
        is_solved = status == highspy.HighsModelStatus.kOptimal
        if len(duals) != self.num_rows:
            return CoverBound(0, is_infeasible=False, is_solved=is_solved)
        return CoverBound(self._rounded_up(self._lagrange(duals)), is_infeasible=False, is_solved=is_solved)

    def solve_mip(self, *, time_limit_seconds: float | None) -> CoverBound:
        """Bound the program with whole variables from below."""
        solver = self._run(time_limit_seconds=time_limit_seconds, are_whole=True)
        status = solver.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            return CoverBound(0, is_infeasible=True, is_solved=True)
        bound = solver.getInfo().mip_dual_bound
        is_solved = status == highspy.HighsModelStatus.kOptimal
        return CoverBound(self._rounded_up(bound), is_infeasible=False, is_solved=is_solved)

    def _run(self, *, time_limit_seconds: float | None, are_whole: bool) -> highspy.Highs:
        solver = _QuietHighs()
        solver.setOptionValue("threads", 1)
        if time_limit_seconds is not None:
            solver.setOptionValue("time_limit", max(0.0, time_limit_seconds))
        if are_whole:
            solver.setOptionValue("mip_rel_gap", 0.0)
            solver.setOptionValue("mip_abs_gap", 0.5 / self._cost_scale())
        status = solver.passModel(self._model(are_whole=are_whole))
        assert status != highspy.HighsStatus.kError
        solver.run()
        return solver

    def _model(self, *, are_whole: bool) -> highspy.HighsLp:
        model = highspy.HighsLp()
        model.num_col_ = self.num_variables
        model.num_row_ = self.num_rows
        model.col_cost_ = self._scaled_costs()
        model.col_lower_ = np.zeros(self.num_variables)
        model.col_upper_ = np.ones(self.num_variables)
        model.row_lower_ = np.asarray(self._least)
        model.row_upper_ = np.full(self.num_rows, highspy.kHighsInf)
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = np.asarray(self._starts, dtype=np.int32)
        model.a_matrix_.index_ = np.asarray(self._columns, dtype=np.int32)
        model.a_matrix_.value_ = np.asarray(self._coefficients)
        if are_whole:
            model.integrality_ = [highspy.HighsVarType.kInteger] * self.num_variables
        return model

    def _cost_scale(self) -> float:
        """The solver's tolerances are absolute: costs are brought to at most 100."""
        return max(1.0, max(self._costs, default=1) / 100.0)

    def _scaled_costs(self) -> _Floats:
        return np.asarray(self._costs, dtype=np.float64) / self._cost_scale()

    def _lagrange(self, duals: _Floats) -> float:
        """The least of cost - duals x (rows - least) over the box, for duals at least 0."""
        duals = np.maximum(duals, 0.0)
        rows = np.repeat(np.arange(self.num_rows), np.diff(self._starts))
        reduced = self._scaled_costs()
        np.subtract.at(reduced, np.asarray(self._columns, dtype=np.int64), duals[rows] * np.asarray(self._coefficients))
        return float(duals @ np.asarray(self._least) + np.minimum(reduced, 0.0).sum())

    def _rounded_up(self, scaled_bound: float) -> int:
        if not math.isfinite(scaled_bound) or scaled_bound <= 0:
            return 0
        bound = scaled_bound * self._cost_scale()
        return max(0, math.ceil(bound - max(1e-5, _RELATIVE_TOLERANCE * bound)))
