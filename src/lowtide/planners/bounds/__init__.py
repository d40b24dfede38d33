"""Lower bounds on the duration of any plan: pure functions from a graph and a budget to a :class:`Bound`.

All hold for any number of copies, and all but :func:`order_free_bound` for the given order of first executions. A bound
is a promise: it never exceeds the duration of any plan within its scope that the referee accepts within the budget.
"""

from lowtide.planners.bounds.absence import absence_bound, absence_solution
from lowtide.planners.bounds.best import best_bound
from lowtide.planners.bounds.bound import Bound
from lowtide.planners.bounds.gap_cover import gap_cover_bound
from lowtide.planners.bounds.order_free import order_free_bound
from lowtide.planners.bounds.solution import AbsenceOptions, AbsenceSolution
from lowtide.planners.bounds.working_set import WorkingSet, largest_working_set

__all__ = [
    "AbsenceOptions",
    "AbsenceSolution",
    "Bound",
    "WorkingSet",
    "absence_bound",
    "absence_solution",
    "best_bound",
    "gap_cover_bound",
    "largest_working_set",
    "order_free_bound",
]
