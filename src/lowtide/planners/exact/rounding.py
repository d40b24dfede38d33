"""From a solution of the relaxation to a set of recomputations.

    watched stages        t0           t1           t2
    period        ...t0 ] (t0 ... t1 ] (t1 ... t2 ] (t2 ...
    u, used at b          absent       absent        |   b        absent at t1: runs again after t1, before b
    p, input of u         -            held                       resident at t1: its copy waits for u

The solution says what is resident at the watched stages; between two of them (a *period*) a value that is needed and
was not resident at the period's start runs again, where it is first needed, its inputs with it. Periods are gone
through backwards, so that nothing is made again, or held, that no later use needs: every copy lives until its last use.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from lowtide.planners.bounds.families import Family, Stages
from lowtide.planners.flat import Recomputation

__all__ = ["recomputations_of"]


def recomputations_of(
    stages: Stages, watched: Sequence[int], changed: frozenset[tuple[int, int]]
) -> tuple[Recomputation, ...]:
    """The recomputations that a solution describes; they need not fit between the watched stages.

    Args:
        stages: The graph, stage by stage.
        watched: The stages over which the relaxation was solved, increasing.
        changed: (family, index of a watched stage) where residence differs from the plan without recomputation.
    """
    num_stages = len(stages.load_bytes)
    ends = [*watched, num_stages]
    found: list[Recomputation] = []
    required: set[int] = set()  # families that a later period needs resident at this one's end
    for index in reversed(range(len(ends))):
        start = ends[index - 1] if index else -1
        was_resident = _resident_at(stages, ends[index - 1], index - 1, changed) if index else _is_input(stages)
        period = _Period(stages, start, ends[index], was_resident)
        for family in sorted(required):
            period.need(family, min(ends[index], num_stages - 1))
        for family, item in enumerate(stages.families):
            stage = period.first_use_of(item)
            if stage is not None:
                period.need(family, min(stage, num_stages - 1))
        period.close()
        found += period.recomputations()
        required = period.required
    return tuple(sorted(set(found)))


def _resident_at(stages: Stages, stage: int, index: int, changed: frozenset[tuple[int, int]]) -> Callable[[int], bool]:
    return lambda family: stages.families[family].is_live_at(stage) != ((family, index) in changed)


def _is_input(stages: Stages) -> Callable[[int], bool]:
    return lambda family: stages.families[family].uses[0] < 0


class _Period:
    """What runs again after one watched stage, up to and before the node of the next."""

    def __init__(self, stages: Stages, start: int, end: int, was_resident: Callable[[int], bool]) -> None:
        self.required: set[int] = set()
        self._stages = stages
        self._start, self._end = start, end
        self._was_resident = was_resident
        self._stage_by_family: dict[int, int] = {}
        self._waiting: list[int] = []

    def first_use_of(self, family: Family) -> int | None:
        """The first stage of the period that needs a family which was produced before it."""
        if family.node is not None and family.node > self._start:
            return None
        place = bisect_left(family.uses, self._start + 1)
        if place == len(family.uses) or family.uses[place] > self._end:
            return None
        return family.uses[place]

    def need(self, family: int, stage: int) -> None:
        """Have a family resident when a stage of the period begins."""
        item = self._stages.families[family]
        if item.node is not None and item.node > self._start:
            return  # its first execution lies in the period
        if self._was_resident(family):
            if self._start >= 0:
                self.required.add(family)
            return
        if not item.can_return or item.node is None or self._stage_by_family.get(family, stage + 1) <= stage:
            return
        self._stage_by_family[family] = stage
        self._waiting.append(family)

    def close(self) -> None:
        """Need the inputs of what runs again, too."""
        while self._waiting:
            family = self._waiting.pop()
            node = self._stages.families[family].node
            assert node is not None
            for source in self._stages.inputs_by_node[node]:
                if source != family:
                    self.need(source, self._stage_by_family[family])

    def recomputations(self) -> list[Recomputation]:
        """What runs again, where."""
        return [
            Recomputation(stage, node)
            for family, stage in self._stage_by_family.items()
            if (node := self._stages.families[family].node) is not None and node < stage
        ]
