"""What the planners on the native core answer: steps, and the course of a search."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from lowtide.ir import Incumbent, Status, Step
from lowtide.ir.sequence import steps_from_sequence
from lowtide.planners.flat import FlatGraph, Recomputation, sequence_of
from lowtide.planners.protocol import PlanRequest, Proposal

__all__ = ["Recorder", "baseline_if_it_fits", "duration_of", "steps_of"]


def steps_of(flat: FlatGraph, recomputations: Sequence[Recomputation]) -> tuple[Step, ...]:
    """The steps of a set of recomputations."""
    return steps_from_sequence(flat.graph, sequence_of(flat, recomputations))


def duration_of(flat: FlatGraph, recomputations: Sequence[Recomputation]) -> int:
    """What a set of recomputations and every node's first execution take, with the views that they make necessary."""
    node_by_name = flat.graph.node_by_name
    return sum(node_by_name[name].duration for name in sequence_of(flat, recomputations))


def baseline_if_it_fits(flat: FlatGraph, request: PlanRequest, started: float) -> Proposal | None:
    """The order without recomputation, proven optimal, where it fits; else None.

    Args:
        flat: The graph of the request.
        request: What to plan.
        started: ``time.monotonic()`` at the start.
    """
    from lowtide.planners.core import load_bytes_by_stage, native_problem

    peak_bytes = max(load_bytes_by_stage(native_problem(flat), ()), default=0)
    if peak_bytes > request.budget_bytes:
        return None
    duration = request.graph.baseline_duration
    incumbent = Incumbent(time.monotonic() - started, duration, duration)
    if request.on_progress is not None:
        request.on_progress(incumbent)
    return Proposal(Status.OPTIMAL, steps_of(flat, ()), lower_bound_duration=duration, incumbents=(incumbent,))


class Recorder:
    """Turns the core's better plans into incumbents with their true duration, views included.

    Attributes:
        incumbents: Those so far.
        lower_bound_duration: What is known by now of the least duration, or None; the next incumbents tell it.
    """

    def __init__(self, flat: FlatGraph, on_progress: Callable[[Incumbent], None] | None, started: float) -> None:
        self.incumbents: list[Incumbent] = []
        self.lower_bound_duration: int | None = None
        self._flat = flat
        self._on_progress = on_progress
        self._started = started

    def note(self, stages: list[int], nodes: list[int]) -> None:
        """Take down a plan if it is better: node ``nodes[i]`` is recomputed in stage ``stages[i]``."""
        self.note_in(self._flat, stages, nodes)

    def note_in(self, flat: FlatGraph, stages: Sequence[int], nodes: Sequence[int]) -> None:
        """The same, for a plan in the order of another flat graph."""
        duration = duration_of(flat, [Recomputation(*again) for again in zip(stages, nodes, strict=True)])
        best = self.incumbents[-1].duration if self.incumbents else None
        if best is not None and duration >= best:
            return
        incumbent = Incumbent(time.monotonic() - self._started, duration, self.lower_bound_duration)
        self.incumbents.append(incumbent)
        if self._on_progress is not None:
            self._on_progress(incumbent)
