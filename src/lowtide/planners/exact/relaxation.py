"""The absence relaxation of ``bounds.absence`` over chosen stages, with a name for every variable of its solution.

    watched stages      t0          t1          t2
    u  ●────────────────×───────────×───────────────●    absent at t0 and t1, so its node runs again between t1 and t2
    p  ●───●            held        -                    dead at t0, but held there for u's recomputation

Any set of stages gives a valid bound, so a few *watched* ones suffice: where the plan that the solution describes does
not fit, the stages in which it overflows are watched, too. A thousand nodes need about ten of them.

Here every row is there from the start, where ``bounds`` adds rows as they are broken: that bounds random layered graphs
higher, but took 2 to 11 times the CPU time to prove the plans of training graphs over the same stages (branch and
bound begins anew there after each addition).

Source: found for this project; rows and proof are those of :mod:`lowtide.planners.bounds.absence`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from lowtide.ir import Interval
from lowtide.planners.bounds.families import Family, Stages, stages_within
from lowtide.planners.exact.program import WholeProgram

__all__ = ["Relaxation", "RelaxedPlan"]


@dataclass(frozen=True, slots=True)
class RelaxedPlan:
    """What a solve found.

    Attributes:
        extra_duration: No plan within the budget takes less beyond the baseline's duration.
        is_infeasible: Whether it is proven that no plan fits.
        is_solved: Whether the solver ended by itself, so that the solution costs ``extra_duration``.
        changed: (family, index of a watched stage) where the solution differs from the plan without recomputation:
            absent though it would be live, or held though it would be dead. None: no solution was found in time.
    """

    extra_duration: int
    is_infeasible: bool
    is_solved: bool
    changed: frozenset[tuple[int, int]] | None


class Relaxation:
    """The relaxation of one graph and budget over some watched stages.

    Args:
        stages: The graph, stage by stage.
        budget_bytes: Most bytes resident at any step.
        watched: Stages, increasing.
    """

    def __init__(self, stages: Stages, budget_bytes: int, watched: Sequence[int]) -> None:
        self.watched = tuple(watched)
        self._stages = stages
        self._program = WholeProgram()
        self._memory: dict[int, list[tuple[int, int]]] = {stage: [] for stage in watched}
        self._first_dead = [self._first_watched_after(family) for family in stages.families]
        self._absent: dict[tuple[int, int], int] = {}
        self._held: dict[tuple[int, int], int] = {}
        self._runs = [self._runs_of(node) for node in range(len(stages.families_by_node))]
        for index, family in enumerate(stages.families):
            self._add_absences(index, family)
        self._add_dead_runs_and_held()
        for stage in watched:
            self._program.add_row(self._memory[stage], least=stages.load_bytes[stage] - budget_bytes)

    @property
    def num_variables(self) -> int:
        """How many variables there are."""
        return self._program.num_variables

    def solve(self, *, time_limit_seconds: float | None, max_search_nodes: int | None) -> RelaxedPlan:
        """Solve with whole variables.

        Args:
            time_limit_seconds: Wall-clock time of the solver, or None.
            max_search_nodes: Nodes of branch and bound, or None. It ends a solve alike on every machine.
        """
        found = self._program.solve(time_limit_seconds=time_limit_seconds, max_search_nodes=max_search_nodes)
        if found.is_chosen is None:
            return RelaxedPlan(found.cost, found.is_infeasible, found.is_solved, None)
        number = {stage: index for index, stage in enumerate(self.watched)}
        changed = frozenset(
            (family, number[stage])
            for variables in (self._absent, self._held)
            for (family, stage), variable in variables.items()
            if found.is_chosen[variable]
        )
        return RelaxedPlan(found.cost, found.is_infeasible, found.is_solved, changed)

    def count_fractional_runs(self, *, time_limit_seconds: float | None, max_iterations: int) -> int | None:
        """How many recomputations the linear relaxation makes in part only; None: not known within the limits."""
        runs = [run for by_span in self._runs for run in by_span.values()]
        return self._program.count_fractional(
            runs, time_limit_seconds=time_limit_seconds, max_iterations=max_iterations
        )

    # ---------------------------------------------------------------- variables and rows
    def _first_watched_after(self, family: Family) -> int | None:
        return next((stage for stage in self.watched if family.is_dead_before(stage)), None)

    def _runs_of(self, node: int) -> dict[Interval, int]:
        """One variable for each span between two consecutive points of a node's families."""
        families = [index for index in self._stages.families_by_node[node] if self._stages.families[index].can_return]
        points = {stage for index in families for stage in self._stages.families[index].uses}
        points |= {stage for index in families if (stage := self._first_dead[index]) is not None}
        if not points:
            return {}
        ordered = [*sorted(points), len(self._stages.load_bytes) + 1]
        cost = self._stages.duration_by_node[node]
        return {Interval(*pair): self._program.add_variable(cost=cost) for pair in pairwise(ordered)}

    def _add_absences(self, index: int, family: Family) -> None:
        if not family.can_return or not family.size_bytes or family.node is None:
            return
        for gap in family.gaps():
            for stage in stages_within(self.watched, gap):
                if not family.is_pinned_at(stage):
                    self._add_absence(index, family.node, gap, stage)

    def _add_absence(self, index: int, node: int, gap: Interval, stage: int) -> None:
        absent = self._absent[index, stage] = self._program.add_variable()
        self._memory[stage].append((absent, self._stages.families[index].size_bytes))
        within = [
            run for span, run in self._runs[node].items() if gap.start - 1 <= span.start and stage < span.end <= gap.end
        ]
        self._program.add_implication(absent, needs_one_of=within)
        for source in self._dead_inputs(node, stage):
            if source != index:
                self._program.add_implication(absent, needs_one_of=self._sources(source, stage))

    def _dead_inputs(self, node: int, stage: int) -> Iterator[int]:
        """Input families of a recomputation that are dead at a stage and cost bytes to keep or time to make again."""
        for index in self._stages.inputs_by_node[node]:
            family = self._stages.families[index]
            if family.size_bytes and family.is_dead_before(stage):
                yield index

    def _sources(self, index: int, stage: int) -> list[int]:
        """Where a dead family can come from after a stage: held there, or made again afterwards."""
        return [self._held_at(index, stage), *self._dead_runs(index, ending_after=stage)]

    def _dead_runs(self, index: int, *, ending_after: int) -> list[int]:
        family, first_dead = self._stages.families[index], self._first_dead[index]
        if family.node is None or not family.can_return or first_dead is None:
            return []
        spans = self._runs[family.node].items()
        return [run for span, run in spans if span.start >= first_dead and span.end > ending_after]

    def _held_at(self, index: int, stage: int) -> int:
        if (index, stage) not in self._held:
            variable = self._held[index, stage] = self._program.add_variable()
            self._memory[stage].append((variable, -self._stages.families[index].size_bytes))
        return self._held[index, stage]

    def _add_dead_runs_and_held(self) -> None:
        """The inputs of recomputations of dead families, and the chains of held variables."""
        done: set[int] = set()
        while pending := {index for index, _ in self._held} - done:
            for index in sorted(pending):
                self._add_inputs_of_dead_runs(index)
            done |= pending
        last_held: dict[int, int] = {}
        for index, stage in self._held:
            last_held[index] = max(stage, last_held.get(index, stage))
        for index, last in last_held.items():
            self._add_held_chain(index, last)

    def _add_inputs_of_dead_runs(self, index: int) -> None:
        family, first_dead = self._stages.families[index], self._first_dead[index]
        if family.node is None or first_dead is None:
            return
        for run in self._dead_runs(index, ending_after=first_dead):
            for source in self._dead_inputs(family.node, first_dead):
                if source != index:
                    self._program.add_implication(run, needs_one_of=self._sources(source, first_dead))

    def _add_held_chain(self, index: int, last: int) -> None:
        family, first_dead = self._stages.families[index], self._first_dead[index]
        assert first_dead is not None
        spans = self._runs[family.node] if family.node is not None and family.can_return else {}
        dead_stages = [stage for stage in self.watched if first_dead <= stage <= last]
        for before, stage in pairwise(dead_stages):
            begun = [run for span, run in spans.items() if first_dead <= span.start < stage]
            needs = [self._held_at(index, before), *begun]
            self._program.add_implication(self._held_at(index, stage), needs_one_of=needs)
