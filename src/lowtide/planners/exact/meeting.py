"""Plans and bounds that approach each other: searches from the solutions of a relaxation, in one order."""

from __future__ import annotations

from lowtide.planners.exact.relaxing import Relaxing
from lowtide.planners.flat import FlatGraph, Recomputation
from lowtide.planners.protocol import Proposal
from lowtide.planners.search_course import Course, Found, better_of, proposal_of

__all__ = ["Meeting"]

_START_SHARE = 0.025  # of the work: a start from a solution is either near the optimum or of no use
_LEAST_START_WORK = 50_000_000


class Meeting:
    """The best plan and the best bound of one graph in its order.

    Args:
        course: Searches plans.
        flat: The graph.

    Attributes:
        best: The best plan so far, or None.
        relaxing: Its bound.
    """

    def __init__(self, course: Course, flat: FlatGraph) -> None:
        self.best: Found | None = None
        self.relaxing = Relaxing(flat, course.request.budget_bytes)
        self._course = course
        self._flat = flat
        self._turn = 0

    @property
    def is_met(self) -> bool:
        """Whether the best plan is as short as the bound."""
        return self.best is not None and self.best.fits and self.best.extra_duration <= self.relaxing.extra_duration

    @property
    def is_settled(self) -> bool:
        """Whether nothing can be gained any more: the plan is optimal, or it is proven that there is none."""
        return self.is_met or self.relaxing.is_infeasible

    @property
    def best_start(self) -> tuple[Recomputation, ...]:
        """The recomputations of the best plan so far; none where there is no plan."""
        return () if self.best is None else self.best.recomputations

    def relax(self, *, seconds: float | None, max_search_nodes: int | None) -> None:
        """Solve one round of the relaxation and search from its solution.

        Args:
            seconds: Wall-clock time for the solver, or None.
            max_search_nodes: Nodes of its branch and bound, or None.
        """
        start = self.relaxing.run(seconds=seconds, max_search_nodes=max_search_nodes)
        if self._course.request.scope.order == "fixed":
            self.tell_bound()
        if start and not self.relaxing.is_infeasible and not self._course.is_over:
            self.search(start, share=_START_SHARE, time_share=1.0, least_work=_LEAST_START_WORK)

    def tell_bound(self) -> None:
        """Let the plans that follow be told with the bound, which is of this order."""
        self._course.recorder.lower_bound_duration = self._flat.graph.baseline_duration + self.relaxing.extra_duration

    def search(
        self,
        *starts: tuple[Recomputation, ...],
        share: float,
        time_share: float | None = None,
        least_work: int = 0,
    ) -> None:
        """Search a plan; arguments as of :meth:`lowtide.planners.search_course.Course.search`."""
        found = self._course.search(
            self._flat, *starts, share=share, time_share=time_share, turn=self._turn, least_work=least_work
        )
        self._turn += 1
        self.take(found)

    def take(self, found: Found) -> None:
        """Take a plan that somebody else found, if it is better."""
        self.best = better_of(self.best, found)

    def proposal(self) -> Proposal:
        """What plan and bound come to."""
        if self.best is None:
            self.search((), share=1.0)
        assert self.best is not None
        return proposal_of(
            self._course.request,
            self._course.recorder,
            self.best,
            least_extra_duration=self.relaxing.extra_duration,
            is_infeasible=self.relaxing.is_infeasible,
        )
