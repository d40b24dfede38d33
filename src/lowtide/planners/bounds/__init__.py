"""Lower bounds on the duration of any plan: pure functions from a graph and a budget to a :class:`Bound`.

All hold for the given order of first executions and any number of copies. A bound is a promise: it never exceeds the
duration of any plan that the referee accepts within the budget.
"""

from lowtide.planners.bounds.absence import absence_bound
from lowtide.planners.bounds.best import best_bound
from lowtide.planners.bounds.bound import Bound
from lowtide.planners.bounds.gap_cover import gap_cover_bound
from lowtide.planners.bounds.working_set import WorkingSet, largest_working_set

__all__ = ["Bound", "WorkingSet", "absence_bound", "best_bound", "gap_cover_bound", "largest_working_set"]
