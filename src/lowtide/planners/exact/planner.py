"""Proven optimal plans: a relaxation's solution made into a plan, and more rows until plan and bound meet.

    relaxation over a few stages ──▶ bound, and what is resident at those stages
            ▲                                        │ rounding: what is missing runs again where it is first needed
            │ stages where that overflows            ▼
            └─────────────────────────────── recomputations ──▶ native search from there ──▶ plan

Status is optimal where the best plan is as short as the best bound, else what was reached when time, or what can be
watched, ran out. The bound holds for the given order of first executions and any number of copies.

Source: found for this project. The relaxation is that of :mod:`lowtide.planners.bounds.absence`; the search is the
planner ``search``.
"""

from __future__ import annotations

import time

from lowtide.planners.answers import Recorder, baseline_if_it_fits
from lowtide.planners.flat import flatten
from lowtide.planners.protocol import PlanRequest, Proposal
from lowtide.planners.search_course import Course, default_work

__all__ = ["ExactPlanner"]

_CLEAR_NODES = 100
_MOST_NODES = 20_000
_FIRST_SHARE = 0.2  # of work and time for a search from nothing, where the relaxation is far from whole
_SOLVER_SHARE = 0.7  # of the time that is left, for each round from then on


class ExactPlanner:
    """Plans until the plan is proven optimal.

    Its plans keep the given order, also where the scope leaves the order free. Seconds for training graphs of a
    thousand nodes and more; random layered graphs are proven at mild budgets only, and take what time they get.

    Args:
        max_work: Of the searches (see ``search``), by each thread; None for the default.
        max_search_nodes: Nodes of branch and bound in each round; they bound it where there is no time limit.
    """

    name = "exact"

    def __init__(self, *, max_work: int | None = None, max_search_nodes: int = _MOST_NODES) -> None:
        self._max_work = max_work
        self._max_search_nodes = max_search_nodes

    def propose(self, request: PlanRequest) -> Proposal:
        """Propose a plan of the least duration, or the best one found with the bound that was proven."""
        from lowtide.planners.exact.meeting import Meeting

        started = time.monotonic()
        flat = flatten(request.graph)
        if proposal := baseline_if_it_fits(flat, request, started):
            return proposal
        recorder = Recorder(flat, request.on_progress, started)
        work = default_work(flat) if self._max_work is None else self._max_work
        course = Course(request, recorder, started, work)
        meeting = Meeting(course, flat)
        if meeting.relaxing.is_clear(seconds=course.seconds_left(0.2)):
            meeting.relax(seconds=course.seconds_left(0.3), max_search_nodes=min(_CLEAR_NODES, self._max_search_nodes))
        if not meeting.is_settled:
            meeting.search(meeting.best_start, share=_FIRST_SHARE)
        while not (meeting.is_settled or meeting.relaxing.is_exhausted or course.is_over):
            meeting.relax(seconds=course.seconds_left(_SOLVER_SHARE), max_search_nodes=self._max_search_nodes)
        if not (meeting.is_settled or course.is_over):
            meeting.search(meeting.best_start, share=1.0 - _FIRST_SHARE)
        return meeting.proposal()
