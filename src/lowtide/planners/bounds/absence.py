"""Absence relaxation: what is absent at an overloaded stage must come back, and so must its inputs that are dead.

    stage        a           t                b
    u            ●───────────×────────────────●        absent at t: its node runs again between t and b
    p, an input  ●──● last use                         dead at t: held beyond its last use (memory), or its node runs
                                                       again, too (cost), and so on for the inputs of p

Variables, all 0 or 1: absent(u, t); held(p, t), p kept resident at t after its last use; runs(v, s), node v runs again
between two consecutive *points* of v: the uses of its families and the first overloaded stage after each last use.
Every plan gives a solution of no higher cost, so the least cost is a bound. Rows, t over overloaded stages:

    absent(u, t)  <=  runs of u's node that can end after t and lie in the gap
    absent(u, t)  <=  held(p, t) + runs of p's node after p's death that can end after t       for inputs p dead at t
    held(p, t)    <=  held(p, t') + runs of p's node after p's death, begun before t            t' the one before t
    runs(v, s)    <=  held(q, t0) + runs of q's node after q's death that can end after t0       s after p's death, for
                      inputs q of v dead before t0, the first overloaded stage after p's last use
    load(t) - budget  <=  bytes absent at t - bytes held at t

Source: found for this project. Any subset of the overloaded stages gives a valid, weaker bound. Several outputs: cost
per node and span, not per value. Aliases and overwrites: families (see ``families``). Left out, which only lowers the
bound: memory between stages, workspace and inputs of recomputations at the moment they run, durations of recomputed
aliases.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from lowtide.ir import Graph, Interval, Scope
from lowtide.planners.bounds.bound import Bound
from lowtide.planners.bounds.covering import CoverProgram
from lowtide.planners.bounds.families import Family, Stages, fullest_stages, stages_from_graph, stages_within

__all__ = ["absence_bound", "mean_absences"]


def absence_bound(
    graph: Graph,
    budget_bytes: int,
    *,
    are_whole: bool = True,
    max_stages: int | None = None,
    time_limit_seconds: float | None = None,
) -> Bound:
    """Bound the duration of any plan of a graph in its given order.

    Args:
        graph: What is planned.
        budget_bytes: Most bytes resident at any step.
        are_whole: Whether to solve with whole variables (MIP, tighter) or without (LP, faster).
        max_stages: Use only so many overloaded stages, spread out and the fullest of their neighbourhoods; None: all
            (tightest).
        time_limit_seconds: Wall-clock time of the solver, or None; the bound reached by then holds.
    """
    stages = stages_from_graph(graph)
    overloaded = fullest_stages(stages, stages.overloaded(budget_bytes), max_stages=max_stages)
    program = _Absences(stages, budget_bytes, overloaded).program
    solve = program.solve_mip if are_whole else program.solve_lp
    proven = solve(time_limit_seconds=time_limit_seconds)
    method = "absence-mip" if are_whole else "absence-lp"
    return Bound(stages.baseline_duration + proven.cost, Scope(), method, is_infeasible=proven.is_infeasible)


def mean_absences(stages: Stages, overloaded: Sequence[int]) -> float:
    """How many absence variables one overloaded stage brings on average: a measure of the program's size."""
    total = sum(
        len(stages_within(overloaded, gap))
        for family in stages.families
        if family.can_return and family.size_bytes
        for gap in family.gaps()
    )
    return total / max(1, len(overloaded))


class _Absences:
    """Builds the program."""

    def __init__(self, stages: Stages, budget_bytes: int, overloaded: Sequence[int]) -> None:
        self.program = CoverProgram()
        self._stages = stages
        self._overloaded = overloaded
        self._memory: dict[int, list[tuple[int, int]]] = {stage: [] for stage in overloaded}
        self._first_dead = [self._first_overloaded_after(family) for family in stages.families]
        self._held: dict[tuple[int, int], int] = {}
        self._needs_chain: set[int] = set()
        self._runs = [self._runs_of(node) for node in range(len(stages.families_by_node))]
        for index, family in enumerate(stages.families):
            self._add_absences(index, family)
        self._add_dead_runs_and_held()
        for stage in overloaded:
            self.program.add_row(self._memory[stage], least=stages.load_bytes[stage] - budget_bytes)

    def _first_overloaded_after(self, family: Family) -> int | None:
        return next((stage for stage in self._overloaded if family.is_dead_before(stage)), None)

    def _runs_of(self, node: int) -> dict[Interval, int]:
        """One variable for each span between two consecutive points of a node's families."""
        families = [index for index in self._stages.families_by_node[node] if self._stages.families[index].can_return]
        points = {stage for index in families for stage in self._stages.families[index].uses}
        points |= {stage for index in families if (stage := self._first_dead[index]) is not None}
        if not points:
            return {}
        ordered = [*sorted(points), len(self._stages.load_bytes) + 1]
        cost = self._stages.duration_by_node[node]
        return {Interval(*pair): self.program.add_variable(cost=cost) for pair in pairwise(ordered)}

    def _add_absences(self, index: int, family: Family) -> None:
        if not family.can_return or not family.size_bytes or family.node is None:
            return
        for gap in family.gaps():
            for stage in stages_within(self._overloaded, gap):
                if family.is_pinned_at(stage):
                    continue
                absent = self.program.add_variable()
                self._memory[stage].append((absent, family.size_bytes))
                within = [
                    run
                    for span, run in self._runs[family.node].items()
                    if gap.start - 1 <= span.start and stage < span.end <= gap.end
                ]
                self.program.add_implication(absent, needs_one_of=within)
                for source in self._dead_inputs(family.node, stage):
                    if source != index:
                        self.program.add_implication(absent, needs_one_of=self._sources(source, stage))

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
            variable = self.program.add_variable()
            self._held[index, stage] = variable
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
                    self.program.add_implication(run, needs_one_of=self._sources(source, first_dead))

    def _add_held_chain(self, index: int, last: int) -> None:
        family, first_dead = self._stages.families[index], self._first_dead[index]
        assert first_dead is not None
        spans = self._runs[family.node] if family.node is not None and family.can_return else {}
        dead_stages = [stage for stage in self._overloaded if first_dead <= stage <= last]
        for before, stage in pairwise(dead_stages):
            begun = [run for span, run in spans.items() if first_dead <= span.start < stage]
            needs = [self._held_at(index, before), *begun]
            self.program.add_implication(self._held_at(index, stage), needs_one_of=needs)
