"""From what a solver says in floating point to a whole number that no solution costs less than."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["cost_scale", "rounded_up"]

_LARGEST_SCALED_COST = 100.0
_RELATIVE_TOLERANCE = 1e-7
_SCALED_TOLERANCE = 1e-5  # ten times the solver's own: it tells no costs apart that differ by less than that
_LEAST_TOLERANCE = 1e-5


def cost_scale(costs: Sequence[int]) -> float:
    """What costs are divided by for the solver, whose tolerances are absolute."""
    return max(1.0, max(costs, default=1) / _LARGEST_SCALED_COST)


def rounded_up(bound: float, costs: Sequence[int]) -> int:
    """The bound of a program less the solver's tolerances, then up to the next sum that its costs can have.

    Where the largest cost is more than some 10^6 times what divides all of them, the tolerance is larger than that
    divisor, and the bound stays below the optimum.

    Args:
        bound: The solver's dual bound, in the unit of the costs.
        costs: Of all variables.
    """
    if not math.isfinite(bound) or bound <= 0:
        return 0
    divisor = math.gcd(*costs) or 1
    tolerance = max(_LEAST_TOLERANCE, _RELATIVE_TOLERANCE * bound, _SCALED_TOLERANCE * cost_scale(costs))
    return max(0, divisor * math.ceil((bound - tolerance) / divisor))
