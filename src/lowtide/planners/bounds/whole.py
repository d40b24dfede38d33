"""What the solution of a solved program with whole variables proves, whatever tolerances its solver worked with."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["RELATIVE_TOLERANCE", "bound_of_solved"]

RELATIVE_TOLERANCE = 1e-7
"""Of a solver's dual bound, which is lowered by as much wherever nothing else is known."""


def bound_of_solved(bound: int, chosen_costs: Iterable[int]) -> int:
    """The bound of a program that the solver calls solved: what its solution costs, added up in whole numbers.

    Args:
        bound: By the solver, less its tolerance.
        chosen_costs: Of the variables that are 1 in the solution.

    Returns:
        The cost, where it and the bound differ by no more than the tolerance; else the bound.
    """
    cost = sum(chosen_costs)
    return cost if abs(cost - bound) <= 1 + 2 * RELATIVE_TOLERANCE * cost else bound
