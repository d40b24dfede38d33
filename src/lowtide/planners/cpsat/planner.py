"""The planner ``cpsat``: least durations of small graphs, proven by CP-SAT and an exhaustive search of stages."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lowtide.errors import InputError, MissingDependency
from lowtide.ir import Compute, Graph, Status, Step
from lowtide.planners.answers import baseline_if_it_fits
from lowtide.planners.bounds import largest_working_set
from lowtide.planners.cpsat.problem import Problem, problem_from_graph, problem_within_flat, without_durations
from lowtide.planners.flat import FlatGraph, flatten
from lowtide.planners.protocol import PlanRequest, Proposal
from lowtide.planners.search import SearchPlanner

if TYPE_CHECKING:
    from lowtide.planners.cpsat.course import Course

__all__ = ["MAX_RUNS", "CpsatPlanner"]

logger = logging.getLogger("lowtide")

MAX_RUNS = 100_000
"""Most pairs (stage, node to run again); a chain of layers has about n^2/2 for n nodes."""

_MOST_SUM = 2**62  # CP-SAT refuses models in which a sum could leave 64 bits
_SEARCH_WORK_PER_NODE = 1_000_000
_SEARCH_SHARE = 0.2  # of the time limit, for the first plan


class CpsatPlanner:
    """Plans small graphs to proven optimality.

    Claims (optimal, infeasible, the bound) hold for every plan in the given order with at most ``scope.max_copies``
    executions of a node, in whatever order recomputations run between two first executions, and however often. Asked
    for a free order it plans in the given one and claims only what holds there, too. It uses one thread.

    Graphs about a hundred nodes long close in seconds to minutes; longer ones mostly end with a plan and a bound.
    """

    @property
    def name(self) -> str:
        """``"cpsat"``."""
        return "cpsat"

    def propose(self, request: PlanRequest) -> Proposal:
        """Search for the plan of least duration.

        Raises:
            InputError: The graph is too large for the model, or ``max_copies`` is below 1.
            MissingDependency: OR-Tools is not installed.
        """
        try:
            from lowtide.planners.cpsat.course import Course
        except ImportError as error:
            raise MissingDependency("ortools", extra="exact", needed_for="planner cpsat") from error
        started = time.monotonic()
        _check_copies(request.scope.max_copies)
        flat = flatten(request.graph)
        if proposal := baseline_if_it_fits(flat, request, started):
            return proposal
        if largest_working_set(request.graph).size_bytes > request.budget_bytes:
            return Proposal(Status.INFEASIBLE, None, request.graph.baseline_duration)
        problem = _problem(request)
        course = Course(request, started)
        first = _first_plan(request)
        if first.status.has_plan and first.steps is not None:
            course.found(first.steps, _duration(request.graph, first.steps))
        _solve(request, flat, problem, course)
        return _proposal(request, course, fallback=first)


def _check_copies(max_copies: int | None) -> None:
    if max_copies is not None and max_copies < 1:
        raise InputError(f"max_copies {max_copies} must be at least 1: every node is executed once")


def _problem(request: PlanRequest) -> Problem:
    problem = problem_from_graph(request.graph, budget_bytes=request.budget_bytes, max_copies=request.scope.max_copies)
    if problem.num_runs > MAX_RUNS:
        raise InputError(
            f"planner cpsat: graph {request.graph.name!r} with {len(request.graph.nodes)} nodes has {problem.num_runs} "
            f"pairs of a stage and a node to run again, more than {MAX_RUNS}: use planner 'search'"
        )
    if problem.most_added_duration > _MOST_SUM:
        raise InputError(
            f"planner cpsat: durations of graph {request.graph.name!r}, added up over all that can run again, are more "
            "than 2^62: give durations in a larger unit, or use planner 'search'"
        )
    return problem


def _first_plan(request: PlanRequest) -> Proposal:
    """A good plan in the given order, or the one of the smallest peak."""
    limit = request.time_limit_seconds
    return SearchPlanner(max_work=_SEARCH_WORK_PER_NODE * len(request.graph.nodes)).propose(
        replace(
            request,
            scope=replace(request.scope, order="fixed"),
            threads=1,
            time_limit_seconds=None if limit is None else _SEARCH_SHARE * limit,
            on_progress=None,
        )
    )


def _duration(graph: Graph, steps: Sequence[Step]) -> int:
    return sum(graph.node_by_name[step.node].duration for step in steps if isinstance(step, Compute))


def _solve(request: PlanRequest, flat: FlatGraph, problem: Problem, course: Course) -> None:
    """Close the gap; where plans of the graph exist that a flat graph cannot express, in two parts."""
    from lowtide.planners.cpsat.loop import Loop

    within_flat = problem_within_flat(problem, flat)
    is_executable = without_durations(problem) == without_durations(within_flat)
    if problem != within_flat:
        best_executable = Loop(flat, within_flat, course, seed=request.seed, is_bounding=False, is_executable=True).run(
            seconds_share=0.5
        )
        logger.debug("cpsat: plans of the flat graph: %s", best_executable.value)
    if not course.is_closed:
        ending = Loop(flat, problem, course, seed=request.seed, is_bounding=True, is_executable=is_executable).run()
        logger.debug("cpsat: all plans: %s", ending.value)


def _proposal(request: PlanRequest, course: Course, *, fallback: Proposal) -> Proposal:
    """Claims for the scope that was asked for: what holds in the given order holds for a free one only in part."""
    baseline_duration = request.graph.baseline_duration
    is_own_scope = request.scope.order == "fixed"
    bound = course.lower_bound_duration if is_own_scope else baseline_duration
    incumbents = tuple(course.incumbents) if is_own_scope else ()
    if course.steps is None:
        status = Status.INFEASIBLE if course.is_infeasible and is_own_scope else Status.TIMEOUT
        return Proposal(status, fallback.steps, bound, incumbents)
    status = Status.OPTIMAL if course.duration == bound else Status.FEASIBLE
    return Proposal(status, course.steps, bound, incumbents)
