"""Cells on the cost model: plans, bounds and simulated policies, all by the graph's durations and in its bytes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from lowtide.comparison.options import ComparisonOptions
from lowtide.comparison.rows import Cell, Kind, Outcome, Row
from lowtide.errors import InputError, MissingDependency
from lowtide.importers.trace_graph import trace_of_graph
from lowtide.ir import Scope, Status
from lowtide.ir.plan import increase_percent
from lowtide.ir.sequence import baseline_steps
from lowtide.planners.protocol import Planner
from lowtide.planning.attempt import Attempt
from lowtide.planning.facts import Facts
from lowtide.planning.failures import PlannerFailed
from lowtide.planning.options import build_request, choose_planner, searched_order
from lowtide.planning.search import Search
from lowtide.planning.words import explain_missing_plan
from lowtide.policies.parts import rules_of
from lowtide.simulator.program import CompiledTrace, compile_trace
from lowtide.simulator.run import simulate
from lowtide.units import Bytes, format_bytes

__all__ = ["BOUNDS", "ModelledCells"]

BOUNDS = {"bound, given order": "fixed", "bound, any order": "free"}
"""The methods of bound rows, and the order of the plans that each speaks of."""

_ANY_PLANNER = "greedy"
"""A search has one; where only a bound is wanted, nobody asks it."""


@dataclass(slots=True)
class ModelledCells:
    """Answers cells of one graph.

    Attributes:
        facts: Of the graph.
        options: Who is compared.
        should_stop: Asked now and then; true ends the cell under way with what it has.
    """

    facts: Facts
    options: ComparisonOptions
    should_stop: Callable[[], bool]
    _compiled: CompiledTrace | None = field(default=None, init=False)

    def cells(self, budgets: tuple[str, ...]) -> tuple[Cell, ...]:
        """Budget by budget: the bounds, the planners, the peers, the policies."""
        return tuple(
            Cell(kind=kind, method=method, budget=budget)
            for budget in budgets
            for kind, methods in (
                (Kind.BOUND, BOUNDS),
                (Kind.PLANNER, self.options.planners),
                (Kind.PEER, self.options.modelled_peers),
                (Kind.POLICY, self.options.policies),
            )
            for method in methods
        )

    def plain(self) -> Row:
        """The graph as it is."""
        baseline = self.facts.baseline
        cell = Cell(kind=Kind.PLAIN, method="plain")
        return replace(
            self._row(cell, None, Outcome.COMPLETED, started=None),
            needed_bytes=baseline.peak_bytes,
            peak_bytes=baseline.peak_bytes,
            duration=baseline.duration,
            num_recomputes=0,
        )

    def run(self, cell: Cell, budget_bytes: Bytes) -> Row:
        """Answer one cell."""
        started = time.perf_counter()
        if budget_bytes < self.facts.largest_working_set_bytes and cell.kind is not Kind.POLICY:
            return self._row(cell, budget_bytes, Outcome.INFEASIBLE, started, reason=self._why_infeasible())
        try:
            if cell.kind is Kind.BOUND:
                return self._bound(cell, budget_bytes, started)
            if cell.kind is Kind.PLANNER:
                return self._plan(self.options.planners[cell.method], cell, budget_bytes, started)
            if cell.kind is Kind.PEER:
                return self._plan(self.options.modelled_peers[cell.method], cell, budget_bytes, started)
            return self._simulate(cell, budget_bytes, started)
        except (InputError, MissingDependency, PlannerFailed) as error:
            return self._row(cell, budget_bytes, Outcome.FAILED, started, reason=str(error))

    def _bound(self, cell: Cell, budget_bytes: Bytes, started: float) -> Row:
        scope = Scope(order=BOUNDS[cell.method])
        unplanned = Attempt(
            budget_bytes=budget_bytes,
            status=Status.TIMEOUT,
            scope=scope,
            steps=baseline_steps(self.facts.graph),
            replayed=self.facts.baseline,
        )
        attempt = self._search(choose_planner(_ANY_PLANNER), scope, started, bound=True).with_bound(unplanned)
        if attempt.status is Status.INFEASIBLE:
            return replace(self._row(cell, budget_bytes, Outcome.INFEASIBLE, started), scope=scope)
        is_proven = attempt.lower_bound_duration is not None
        return replace(
            self._row(cell, budget_bytes, Outcome.PROVEN if is_proven else Outcome.TIMEOUT, started),
            lower_bound_duration=attempt.lower_bound_duration,
            scope=scope,
        )

    def _plan(self, planner: Planner, cell: Cell, budget_bytes: Bytes, started: float) -> Row:
        search = self._search(planner, Scope(order=searched_order(planner, keep_order=False)), started, bound=False)
        attempt = search.attempt(budget_bytes)
        result = search.result(attempt)
        plan = result.plan
        if plan is None and cell.kind is Kind.PEER:
            reason = f"its smallest peak is {format_bytes(result.smallest_known_peak_bytes)}"
            return self._row(cell, budget_bytes, Outcome.OVER, started, reason=reason)
        if plan is None:
            is_open = result.status is Status.TIMEOUT
            reason = self._what_was_found(attempt) if is_open else explain_missing_plan(result)
            row = self._row(cell, budget_bytes, Outcome(result.status), started, reason=reason)
            return replace(row, scope=result.scope, lower_bound_duration=result.lower_bound_duration)
        return replace(
            self._row(cell, budget_bytes, Outcome(result.status), started),
            needed_bytes=plan.peak_bytes if plan.footprint_bytes is None else plan.footprint_bytes,
            peak_bytes=plan.peak_bytes,
            duration=plan.duration,
            lower_bound_duration=plan.lower_bound_duration,
            scope=plan.scope,
            num_recomputes=result.num_recomputes,
        )

    def _simulate(self, cell: Cell, budget_bytes: Bytes, started: float) -> Row:
        policy = self.options.policies[cell.method]
        if self._compiled is None:
            self._compiled = compile_trace(trace_of_graph(self.facts.graph))
        result = simulate(
            self._compiled, budget=budget_bytes, policy=policy, seed=self.options.seed, should_stop=self.should_stop
        )
        if not result.completed:
            return self._row(cell, budget_bytes, Outcome.GAVE_UP, started, reason=result.reason)
        return replace(
            self._row(cell, budget_bytes, Outcome.COMPLETED, started),
            needed_bytes=result.peak_bytes if rules_of(policy).is_ideal else result.footprint_bytes,
            peak_bytes=result.peak_bytes,
            duration=round(result.overhead * self.facts.baseline.duration),
            num_recomputes=result.num_recomputes,
        )

    def _search(self, planner: Planner, scope: Scope, started: float, *, bound: bool) -> Search:
        options = self.options
        request = build_request(
            self.facts.graph,
            max_copies=scope.max_copies,
            seed=options.seed,
            threads=options.threads,
            time_limit_seconds=options.time_limit_seconds,
            on_progress=None,
            should_stop=self.should_stop,
            order=scope.order,  # type: ignore[arg-type]  # one of the three words
        )
        layouter = None if bound else options.layouter
        return Search(self.facts, planner, request, keep_order=False, bound=bound, started=started, layouter=layouter)

    def _what_was_found(self, attempt: Attempt) -> str:
        """What came nearest to a budget that it is above, and by how much."""
        if attempt.replayed is self.facts.baseline:
            return "nothing smaller than plain found"
        over_percent = increase_percent(attempt.needed_bytes, attempt.budget_bytes)
        over = "less than 0.1 %" if over_percent < 0.1 else f"{over_percent:.1f} %"
        found = f"{format_bytes(attempt.needed_bytes)} found, {over} over"
        return f"{found}; its live bytes fit" if attempt.replayed.peak_bytes <= attempt.budget_bytes else found

    def _why_infeasible(self) -> str:
        size = format_bytes(self.facts.largest_working_set_bytes)
        node = self.facts.bottleneck_node
        if node is None:
            return f"the graph's inputs need {size} before anything is computed"
        return f"node {node!r} needs {size} for its inputs and outputs together"

    def _row(
        self, cell: Cell, budget_bytes: Bytes | None, outcome: Outcome, started: float | None, *, reason: str = ""
    ) -> Row:
        return Row(
            cell=cell,
            outcome=outcome,
            budget_bytes=budget_bytes,
            baseline_peak_bytes=self.facts.baseline.peak_bytes,
            baseline_duration=self.facts.baseline.duration,
            seconds=0.0 if started is None else time.perf_counter() - started,
            reason=" ".join(reason.split()),
        )
