"""Checkpoints at segment borders of the forward: Chen et al., "Training deep nets with sublinear memory cost" (2016).

    forward    [a b c] [d e f] [g h]   boundary   backward
    kept             c       f                    values read across a border, and the whole last segment
    backward   uses of g, h ▸ recompute d e f before the first use of any of them ▸ recompute a b c before ...

Their n layers are the forward nodes; their sqrt(n) segments are one of the numbers tried. Departures: the forward is a
graph, not a chain, so everything that is read across a border is kept; of a segment only what the backward needs is
recomputed; segments of equal bytes are tried beside those of equal length (their Algorithm 3 searches such a size);
and of all plans tried the shortest that fits is taken.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from math import isqrt

from lowtide.ir import Incumbent, Status
from lowtide.ir.sequence import steps_from_sequence
from lowtide.planners.flat import FlatGraph, Recomputation, flatten, sequence_of
from lowtide.planners.protocol import PlanRequest, Proposal

__all__ = ["SqrtPlanner", "recomputations_of_segments", "segment_borders"]

_NUM_SIZES = 24


class SqrtPlanner:
    """Tries several numbers of segments and takes the shortest plan that fits.

    A graph without a boundary has no backward that could recompute anything: the answer is then its baseline.
    """

    name = "sqrt"

    def propose(self, request: PlanRequest) -> Proposal:
        """Propose the shortest plan of segments that fits the budget, or else the one of the smallest peak."""
        from lowtide.planners.core import load_bytes_by_stage, native_problem

        started = time.monotonic()
        flat = flatten(request.graph)
        problem = native_problem(flat)
        incumbents: list[Incumbent] = []
        best: tuple[tuple[int, int], list[str]] | None = None
        for recomputations in _plans(flat, request.scope.max_copies):
            peak_bytes = max(load_bytes_by_stage(problem, recomputations), default=0)
            sequence = sequence_of(flat, recomputations)
            duration = sum(request.graph.node_by_name[name].duration for name in sequence)
            # Over the budget the peak decides, within it the duration.
            excess_bytes = max(0, peak_bytes - request.budget_bytes)
            if best is None or (excess_bytes, duration) < best[0]:
                best = (excess_bytes, duration), sequence
                if excess_bytes == 0:
                    incumbents.append(Incumbent(time.monotonic() - started, duration, None))
                    _report(request, incumbents[-1])
            if (excess_bytes == 0 and not recomputations) or _is_over(request, started):
                break
        assert best is not None  # the baseline is always tried
        (excess_bytes, duration), sequence = best
        is_baseline = excess_bytes == 0 and duration == request.graph.baseline_duration
        fits = Status.OPTIMAL if is_baseline else Status.FEASIBLE
        return Proposal(
            status=Status.TIMEOUT if excess_bytes else fits,
            steps=steps_from_sequence(request.graph, sequence),
            lower_bound_duration=duration if is_baseline else None,
            incumbents=tuple(incumbents),
        )


def _report(request: PlanRequest, incumbent: Incumbent) -> None:
    if request.on_progress is not None:
        request.on_progress(incumbent)


def _is_over(request: PlanRequest, started: float) -> bool:
    if request.should_stop is not None and request.should_stop():
        return True
    return request.time_limit_seconds is not None and time.monotonic() - started > request.time_limit_seconds


def _plans(flat: FlatGraph, max_copies: int | None) -> Iterator[list[Recomputation]]:
    """The baseline, then a plan for each number of segments and way to cut."""
    yield []
    boundary = next((position for position, node in enumerate(flat.nodes) if node.is_boundary), 0)
    if boundary < 2 or (max_copies is not None and max_copies < 2):
        return
    num_segments = {isqrt(boundary), *(round(boundary ** (step / _NUM_SIZES)) for step in range(1, _NUM_SIZES + 1))}
    seen: set[tuple[int, ...]] = set()
    for weights in ([1] * boundary, _bytes_by_node(flat, boundary)):
        for number in sorted(num_segments):
            borders = segment_borders(weights, number)
            if tuple(borders) not in seen:
                seen.add(tuple(borders))
                yield recomputations_of_segments(flat, borders)


def _bytes_by_node(flat: FlatGraph, boundary: int) -> list[int]:
    weights = [0] * boundary
    for producer, size_bytes in zip(flat.producer, flat.size_bytes, strict=True):
        if 0 <= producer < boundary:
            weights[producer] += size_bytes
    return weights


def segment_borders(weights: list[int], num_segments: int) -> list[int]:
    """Cut a row of weights into parts of about equal weight.

    Args:
        weights: One per forward node, at least 0.
        num_segments: How many parts are wanted; fewer come out where one weight fills several.

    Returns:
        The end of each part, ascending; the last is the number of weights.
    """
    sums = list(accumulate(weights))
    ends = {bisect_right(sums, part * sums[-1] // num_segments) for part in range(1, num_segments)}
    return [*sorted(ends - {0, len(weights)}), len(weights)]


def recomputations_of_segments(flat: FlatGraph, borders: list[int]) -> list[Recomputation]:
    """Recompute each segment but the last before the first backward use of a value it did not keep.

    Args:
        flat: A graph with a boundary.
        borders: End of each segment: positions of forward nodes, the last one the boundary's.

    Returns:
        The recomputations.
    """
    boundary = borders[-1]
    uses = _uses_by_storage(flat)
    segment_of = [bisect_right(borders, position) for position in range(boundary)]
    dropped: list[dict[int, int]] = [{} for _ in borders]  # per segment: storage -> first backward use
    for storage, producer in enumerate(flat.producer):
        if not 0 <= producer < boundary or not flat.is_recreated[storage] or flat.size_bytes[storage] == 0:
            continue
        forward = [use for use in uses[storage] if use < boundary]
        backward = [use for use in uses[storage] if use > boundary]
        is_dropped = all(segment_of[use] == segment_of[producer] for use in forward) and boundary not in uses[storage]
        if is_dropped and backward and flat.last_stage[producer] >= backward[0]:
            dropped[segment_of[producer]][storage] = backward[0]
    chosen: list[Recomputation] = []
    for segment in dropped[:-1]:
        if segment:
            stage = min(segment.values())
            chosen += [Recomputation(stage, node) for node in _needed(flat, segment, uses, boundary, stage)]
    return chosen


def _uses_by_storage(flat: FlatGraph) -> list[list[int]]:
    uses: list[list[int]] = [[] for _ in flat.roots]
    for position, reads in enumerate(flat.reads):
        for storage in reads:
            uses[storage].append(position)
    return uses


def _needed(
    flat: FlatGraph, segment: dict[int, int], uses: list[list[int]], boundary: int, stage: int
) -> Iterator[int]:
    """The nodes that make a segment's dropped storages, and what they read that the segment does not keep."""
    start = min(flat.producer[storage] for storage in segment)
    nodes: set[int] = set()
    waiting = list(segment)
    while waiting:
        node = flat.producer[waiting.pop()]
        if node < start or node in nodes or flat.last_stage[node] < stage:
            continue
        nodes.add(node)
        waiting += [read for read in flat.reads[node] if uses[read][-1] < boundary and flat.is_recreated[read]]
    return iter(sorted(nodes))
