"""The planners ``checkmate`` (the mixed-integer program) and ``checkmate-lp`` (its relaxation, rounded)."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from lowtide.errors import InputError
from lowtide.ir import Incumbent, Status, Step
from lowtide.planners.answers import Recorder, baseline_if_it_fits, steps_of
from lowtide.planners.bounds import largest_working_set
from lowtide.planners.checkmate.instance import Instance, instance_from_flat, num_nonzeros
from lowtide.planners.checkmate.model import build_program
from lowtide.planners.checkmate.program import Floats, Program
from lowtide.planners.checkmate.rounding import complete_runs, kept_shares, rounded_at_half, rounded_by_chance
from lowtide.planners.checkmate.variables import Variables
from lowtide.planners.flat import FlatGraph, Recomputation, flatten
from lowtide.planners.protocol import PlanRequest, Proposal

__all__ = ["MAX_NONZEROS", "CheckmateLpPlanner", "CheckmatePlanner"]

logger = logging.getLogger("lowtide")

MAX_NONZEROS = 4_000_000
"""Largest program that is built: about 0.2 GB as it stands, and about 2 GB in the solver."""

_ALLOWANCES = (0.1, 0.0, 0.2, 0.3)
"""Shares of the budget that the relaxation is not given, one after another: rounding needs room (paper: 0.1)."""

_NUM_DRAWS = 20  # roundings by chance for each allowance


class CheckmatePlanner:
    """Checkmate's mixed-integer program on HiGHS (Jain et al.: Checkmate, MLSys 2020).

    It plans in the given order, also where the scope leaves the order free, and sees staged plans only: what it proves
    (a DEBUG line says so) holds for these. Of all plans in the order it claims no optimum and no bound.
    """

    name = "checkmate"

    def propose(self, request: PlanRequest) -> Proposal:
        """Search for the staged plan of least duration.

        Raises:
            InputError: The program would be too large, or ``max_copies`` is below 1.
        """
        flat = flatten(request.graph)
        answer = _Answer(request, flat)
        if proposal := answer.at_once():
            return proposal
        instance = _instance(self.name, request, flat, request.budget_bytes)
        program, variables = build_program(instance)
        solved = program.solve(
            are_whole=True,
            seed=request.seed,
            threads=request.threads,
            seconds=answer.seconds_left(),
            should_stop=request.should_stop,
            on_solution=lambda values: answer.take(_runs(variables, values)),
        )
        if solved.values is not None:
            answer.take(_runs(variables, solved.values))
        _log(self.name, program, is_optimal=solved.is_optimal, is_infeasible=solved.is_infeasible)
        return answer.proposal()


class CheckmateLpPlanner:
    """Checkmate's linear relaxation and two-phase rounding (Jain et al. 2020, section 5).

    S* is rounded at one half and by chance; the cheapest plan that fits is the answer. It claims no optimum and no
    bound.
    """

    name = "checkmate-lp"

    def propose(self, request: PlanRequest) -> Proposal:
        """Solve the relaxation for a little less than the budget and round it.

        Raises:
            InputError: The program would be too large, or ``max_copies`` is below 1.
        """
        flat = flatten(request.graph)
        answer = _Answer(request, flat)
        if proposal := answer.at_once():
            return proposal
        for allowance in _ALLOWANCES:
            if answer.is_over():
                break
            budget_bytes = int((1.0 - allowance) * request.budget_bytes)
            instance = _instance(self.name, request, flat, budget_bytes)
            program, variables = build_program(instance)
            solved = program.solve(
                are_whole=False,
                seed=request.seed,
                threads=request.threads,
                seconds=answer.seconds_left(),
                should_stop=request.should_stop,
            )
            _log(self.name, program, is_optimal=solved.is_optimal, is_infeasible=solved.is_infeasible)
            if solved.values is not None:
                for runs in _rounded(instance, variables, solved.values, seed=request.seed):
                    answer.take(runs)
                    if answer.is_over():
                        break
        return answer.proposal()


def _instance(name: str, request: PlanRequest, flat: FlatGraph, budget_bytes: int) -> Instance:
    max_copies = request.scope.max_copies
    if max_copies is not None and max_copies < 1:
        raise InputError(f"max_copies {max_copies} must be at least 1: every node is executed once")
    instance = instance_from_flat(flat, budget_bytes=budget_bytes, max_copies=max_copies)
    needed = num_nonzeros(instance)
    if needed > MAX_NONZEROS:
        raise InputError(
            f"planner {name}: graph {request.graph.name!r} with {len(request.graph.nodes)} nodes needs a program of "
            f"about {needed} nonzeros, more than {MAX_NONZEROS}: use planner 'search'"
        )
    return instance


def _runs(variables: Variables, values: Floats) -> Iterator[tuple[int, int]]:
    """R without first executions."""
    return ((stage, node) for (stage, node), run in variables.runs.items() if node < stage and values[run] > 0.5)


def _rounded(
    instance: Instance, variables: Variables, values: Floats, *, seed: int
) -> Iterator[frozenset[tuple[int, int]]]:
    """R of the rounding at one half, then of those by chance."""
    shares = kept_shares(instance, variables, values)
    drawn = islice(rounded_by_chance(shares, seed=seed % 2**64), _NUM_DRAWS)
    for kept in chain([rounded_at_half(shares)], drawn):
        runs = complete_runs(instance, kept)
        if runs is not None:
            yield runs


def _log(name: str, program: Program, *, is_optimal: bool, is_infeasible: bool) -> None:
    ending = "optimal" if is_optimal else "infeasible" if is_infeasible else "stopped"
    logger.debug(
        "%s: %d variables, %d nonzeros, %s among staged plans",
        name,
        program.num_variables,
        program.num_nonzeros,
        ending,
    )


class _Answer:
    """The best plan so far: every R is measured anew on the flat graph, the solver's tolerances are not trusted."""

    def __init__(self, request: PlanRequest, flat: FlatGraph) -> None:
        from lowtide.planners.core import native_problem

        self._request = request
        self._flat = flat
        self._started = time.monotonic()
        self._recorder = Recorder(flat, request.on_progress, self._started)
        self._native = native_problem(flat)
        self._best: tuple[int, tuple[Recomputation, ...]] | None = None
        self._smallest: tuple[int, tuple[Recomputation, ...]] | None = None

    def at_once(self) -> Proposal | None:
        """The answer where nothing needs to be searched, or None."""
        if proposal := baseline_if_it_fits(self._flat, self._request, self._started):
            return proposal
        if largest_working_set(self._request.graph).size_bytes > self._request.budget_bytes:
            return Proposal(Status.INFEASIBLE, None, self._request.graph.baseline_duration)
        return None

    def seconds_left(self) -> float | None:
        """Until the time limit, or None without one."""
        limit = self._request.time_limit_seconds
        return None if limit is None else max(0.0, self._started + limit - time.monotonic())

    def is_over(self) -> bool:
        """Whether time is up or somebody asked to stop."""
        if self.seconds_left() == 0.0:
            return True
        return self._request.should_stop is not None and self._request.should_stop()

    def take(self, runs: Iterable[tuple[int, int]]) -> None:
        """Take down a plan: the best that fits, and the one of the smallest peak."""
        from lowtide.planners.core import load_bytes_by_stage

        chosen = tuple(sorted(Recomputation(stage, node) for stage, node in runs))
        if not self._has_few_copies(chosen):
            return
        peak_bytes = max(load_bytes_by_stage(self._native, chosen), default=0)
        duration = sum(self._flat.recompute_duration[recomputation.node] for recomputation in chosen)
        if self._smallest is None or peak_bytes < self._smallest[0]:
            self._smallest = (peak_bytes, chosen)
        if peak_bytes <= self._request.budget_bytes and (self._best is None or duration < self._best[0]):
            self._best = (duration, chosen)
            self._recorder.note([r.stage for r in chosen], [r.node for r in chosen])

    def proposal(self) -> Proposal:
        """What was found."""
        baseline_duration = self._request.graph.baseline_duration
        incumbents: tuple[Incumbent, ...] = tuple(self._recorder.incumbents)
        if self._best is None:
            return Proposal(Status.TIMEOUT, self._steps(self._smallest), baseline_duration, incumbents)
        is_free = self._best[0] == 0
        status = Status.OPTIMAL if is_free else Status.FEASIBLE
        return Proposal(status, self._steps(self._best), baseline_duration, incumbents)

    def _steps(self, chosen: tuple[int, tuple[Recomputation, ...]] | None) -> tuple[Step, ...] | None:
        return None if chosen is None else steps_of(self._flat, chosen[1])

    def _has_few_copies(self, chosen: tuple[Recomputation, ...]) -> bool:
        most = self._request.scope.max_copies
        count_by_node: dict[int, int] = {}
        for recomputation in chosen:
            count_by_node[recomputation.node] = count_by_node.get(recomputation.node, 1) + 1
        return most is None or max(count_by_node.values(), default=1) <= most
