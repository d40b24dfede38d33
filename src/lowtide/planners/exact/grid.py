"""The finer relaxation: what is resident at the watched stages, and what runs again between two of them.

    watched stages        t0          t1          t2
    periods        0      |     1     |     2     |     3
    u, used at b          absent      absent      | b            runs in period 3
    p, an input of u      absent      absent      present        runs in period 2: held from then on for u's sake

Checkmate's mixed-integer program on a coarse grid of stages, with absence instead of residence, so that whatever cannot
pay is left out. Variables, all 0 or 1: absent(u, i), u is live at watched stage i but not resident; held(p, i), p is
dead there but resident; run(v, i), node v runs again in period i, between watched stages i - 1 and i; later(v, i), it
runs again after watched stage i. Rows, next to those of memory:

    absent(u, i)            <=  absent(u, i + 1) + run(u, i + 1)         without the former where a use lies between
    run(v, i)               <=  1 - absent(p, i - 1) + run(p, i)         for inputs p live at i - 1
    run(v, i)               <=  held(p, i - 1) + run(p, i)               for inputs p dead at i - 1
    held(p, i)              <=  held(p, i - 1) + run(p, i)               where dead at i - 1, too
    absent(u, i), later(v, i)  <=  held(p, i) + later(p, i)              for inputs p dead at i
    later(v, i)             <=  run(v, i + 1) + run(v, i + 2) + ...

Every plan gives a solution of no higher cost, whatever is watched. Unlike the coarser one of ``relaxation`` it counts
how often a node runs within one gap, and inputs that are live but absent: a solution costs what its plan takes.

Source: Jain et al., "Checkmate" (MLSys 2020), for rows two to four at a grid of every stage; their R is run, their S
absence and held. The last two rows and the choice of the grid were found for this project.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence

from lowtide.planners.bounds.families import Family, Stages
from lowtide.planners.exact.program import WholeProgram
from lowtide.planners.exact.relaxation import RelaxedPlan

__all__ = ["GridRelaxation"]


class GridRelaxation:
    """The finer relaxation of one graph and budget over some watched stages.

    Args:
        stages: The graph, stage by stage.
        budget_bytes: Most bytes resident at any step.
        watched: Stages, increasing.
    """

    def __init__(self, stages: Stages, budget_bytes: int, watched: Sequence[int]) -> None:
        self.watched = tuple(watched)
        self._stages = stages
        self._program = WholeProgram()
        self._memory: list[list[tuple[int, int]]] = [[] for _ in watched]
        self._absent: dict[tuple[int, int], int] = {}  # by family and index of a watched stage
        self._held: dict[tuple[int, int], int] = {}
        self._run: dict[tuple[int, int], int] = {}  # by node and period
        self._later: dict[tuple[int, int], int] = {}  # by node and index of a watched stage
        self._waiting: list[Callable[[], None]] = []  # rows of variables that came up while others were added
        for index, family in enumerate(stages.families):
            self._add_absences(index, family)
        for index, place in self._absent:
            self._add_return(index, place)
        while self._waiting:
            self._waiting.pop()()
        for place, stage in enumerate(watched):
            self._program.add_row(self._memory[place], least=stages.load_bytes[stage] - budget_bytes)

    @property
    def num_variables(self) -> int:
        """How many variables there are."""
        return self._program.num_variables

    def solve(self, *, time_limit_seconds: float | None, max_search_nodes: int | None) -> RelaxedPlan:
        """Solve with whole variables; arguments as of ``Relaxation.solve``."""
        found = self._program.solve(time_limit_seconds=time_limit_seconds, max_search_nodes=max_search_nodes)
        if found.is_chosen is None:
            return RelaxedPlan(found.cost, found.is_infeasible, found.is_solved, None)
        changed = frozenset(
            place
            for variables in (self._absent, self._held)
            for place, variable in variables.items()
            if found.is_chosen[variable]
        )
        return RelaxedPlan(found.cost, found.is_infeasible, found.is_solved, changed)

    # ---------------------------------------------------------------- absent and back
    def _add_absences(self, index: int, family: Family) -> None:
        if not family.can_return or not family.size_bytes or family.node is None:
            return
        for gap in family.gaps():
            for place in range(bisect_left(self.watched, gap.start), bisect_left(self.watched, gap.end)):
                if not family.is_pinned_at(self.watched[place]):
                    absent = self._absent[index, place] = self._program.add_variable()
                    self._memory[place].append((absent, family.size_bytes))

    def _add_return(self, index: int, place: int) -> None:
        family, absent = self._stages.families[index], self._absent[index, place]
        assert family.node is not None
        needs = [self._run_in(family.node, place + 1)]
        if (index, place + 1) in self._absent and not self._is_used_before_next(family, place):
            needs.append(self._absent[index, place + 1])
        self._program.add_implication(absent, needs_one_of=needs)
        for source in self._dead_inputs(family.node, index, place):
            self._program.add_implication(absent, needs_one_of=self._sources(source, place))

    def _is_used_before_next(self, family: Family, place: int) -> bool:
        """Whether a use lies after a watched stage, and not after the next one."""
        start, end = self.watched[place], self.watched[place + 1]
        return bisect_right(family.uses, start) < bisect_right(family.uses, end)

    def _dead_inputs(self, node: int, own: int, place: int) -> Iterator[int]:
        for index in self._stages.inputs_by_node[node]:
            if index != own and self._is_dead_at(index, place):
                yield index

    def _is_dead_at(self, index: int, place: int) -> bool:
        family = self._stages.families[index]
        return family.size_bytes > 0 and family.is_dead_before(self.watched[place])

    def _sources(self, index: int, place: int) -> list[int]:
        """Where a dead family can come from after a watched stage."""
        return [self._held_at(index, place), *self._later_than(index, place)]

    # ---------------------------------------------------------------- runs
    def _run_in(self, node: int, period: int) -> int:
        if (node, period) not in self._run:
            self._run[node, period] = self._program.add_variable(cost=self._stages.duration_by_node[node])
            self._waiting.append(lambda: self._add_inputs(node, period))
        return self._run[node, period]

    def _runs_in(self, index: int, period: int) -> list[int]:
        family = self._stages.families[index]
        return [self._run_in(family.node, period)] if family.node is not None and family.can_return else []

    def _add_inputs(self, node: int, period: int) -> None:
        run, place = self._run[node, period], period - 1
        for index in self._stages.inputs_by_node[node]:
            if index in self._stages.families_by_node[node]:
                continue
            if (index, place) in self._absent:
                again = [(variable, 1) for variable in self._runs_in(index, period)]
                self._program.add_row([(run, -1), (self._absent[index, place], -1), *again], least=-1)
            elif self._is_dead_at(index, place):
                needs = [self._held_at(index, place), *self._runs_in(index, period)]
                self._program.add_implication(run, needs_one_of=needs)

    def _later_than(self, index: int, place: int) -> list[int]:
        family = self._stages.families[index]
        if family.node is None or not family.can_return:
            return []
        if (family.node, place) not in self._later:
            self._later[family.node, place] = self._program.add_variable()
            self._waiting.append(lambda: self._add_later(index, place))
        return [self._later[family.node, place]]

    def _add_later(self, index: int, place: int) -> None:
        node = self._stages.families[index].node
        assert node is not None
        later = self._later[node, place]
        runs = [self._run_in(node, period) for period in range(place + 1, len(self.watched) + 1)]
        self._program.add_implication(later, needs_one_of=runs)
        for source in self._dead_inputs(node, index, place):
            self._program.add_implication(later, needs_one_of=self._sources(source, place))

    # ---------------------------------------------------------------- held
    def _held_at(self, index: int, place: int) -> int:
        if (index, place) not in self._held:
            held = self._held[index, place] = self._program.add_variable()
            self._memory[place].append((held, -self._stages.families[index].size_bytes))
            if place and self._is_dead_at(index, place - 1):
                self._waiting.append(lambda: self._add_held(index, place))
        return self._held[index, place]

    def _add_held(self, index: int, place: int) -> None:
        needs = [self._held_at(index, place - 1), *self._runs_in(index, place)]
        self._program.add_implication(self._held[index, place], needs_one_of=needs)
