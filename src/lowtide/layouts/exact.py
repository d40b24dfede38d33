"""Layouter ``exact``: MiniMalloc's search for a layout within a capacity, or for the smallest one.

Source: Moffitt, *MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated Machine Learning* (ASPLOS 2023);
its capacity is ``capacity_bytes``. The native core (``layout_pack.hpp``) says what is taken over and what differs.
The paper asks whether a capacity suffices. Departure: without one, the smallest footprint is found by bisection.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from lowtide import _layout
from lowtide.layouts.core import PackingProblem, packing_problem
from lowtide.layouts.protocol import LayoutProposal, LayoutRequest

__all__ = ["ExactLayouter"]

_MOST_NODES = 50_000_000
"""Nodes of the search tree, all capacities together: some minutes, where no time limit comes first."""

_FIT_SHARE = 0.1
_MOST_FIT_WORK = 50_000_000
_MOST_FIT_WORK_PER_SPAN = 50_000


class ExactLayouter:
    """Complete: given enough time it finds a layout within the capacity, or proves that there is none."""

    name = "exact"

    def place(self, request: LayoutRequest) -> LayoutProposal:
        """Give every lifespan an offset so that no two share bytes at a step.

        Args:
            request: What to place. Where the time ends first, the best layout met is the answer.

        Raises:
            InputError: A size is no multiple of the alignment.
        """
        problem = packing_problem(request)
        search = _Search(problem, started=time.perf_counter())
        search.start()
        enough = problem.capacity_units
        if enough is None:
            search.bisect()
        else:
            search.attempt(max(enough, problem.least_units))
        return problem.proposal(search.offset_units, bound_units=search.bound_units)


@dataclass(slots=True)
class _Search:
    """The best offsets so far, and what is proven."""

    problem: PackingProblem
    started: float
    offset_units: Sequence[int] = ()
    footprint_units: int = 0
    bound_units: int = field(init=False)
    nodes_left: int = _MOST_NODES

    def __post_init__(self) -> None:
        self.bound_units = self.problem.spans.peak

    def start(self) -> None:
        """Begin with lowest fit."""
        request, enough = self.problem.request, self.problem.capacity_units
        seconds = self._seconds_left()
        outcome = _layout.fit(
            self.problem.spans,
            enough=self.bound_units if enough is None else enough,
            max_work=min(_MOST_FIT_WORK, _MOST_FIT_WORK_PER_SPAN * len(self.problem.placed)),
            seed=request.seed,
            seconds=None if seconds is None else seconds * _FIT_SHARE,
            should_stop=request.should_stop,
        )
        self.offset_units, self.footprint_units = outcome.offsets, outcome.footprint

    def attempt(self, capacity_units: int, *, share: float = 1.0) -> bool:
        """Look for a layout within a capacity; true where there is one now.

        Args:
            capacity_units: The capacity.
            share: Of the time and the nodes left.
        """
        if self.footprint_units <= capacity_units:
            return True
        request, seconds = self.problem.request, self._seconds_left()
        outcome = _layout.pack(
            self.problem.spans,
            capacity=capacity_units,
            max_nodes=int(self.nodes_left * share),
            seed=request.seed,
            seconds=None if seconds is None else seconds * share,
            should_stop=request.should_stop,
        )
        self.nodes_left -= outcome.num_nodes
        if outcome.is_packed:
            self.offset_units, self.footprint_units = outcome.offsets, outcome.footprint
        elif outcome.is_impossible:
            self.bound_units = max(self.bound_units, capacity_units + 1)
        return outcome.is_packed

    def bisect(self) -> None:
        """Look for the smallest footprint: first the least conceivable, which most often suffices, then halfway."""
        low_units = capacity_units = self.bound_units
        while low_units < self.footprint_units:
            if not self.attempt(capacity_units, share=0.5):  # impossible, or not found: then nothing is proven
                low_units = capacity_units + 1
            capacity_units = (low_units + self.footprint_units) // 2

    def _seconds_left(self) -> float | None:
        limit = self.problem.request.time_limit_seconds
        return None if limit is None else max(0.0, limit - (time.perf_counter() - self.started))
