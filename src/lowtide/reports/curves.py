"""Memory over time as a curve: most bytes held in each of equally long pieces of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lowtide.ir import Compute, Graph, Step
from lowtide.referee import Replay
from lowtide.units import Bytes

__all__ = ["Curve", "curve_of"]


@dataclass(frozen=True, slots=True)
class Curve:
    """Most bytes held in each of equally long pieces of time.

    Attributes:
        peak_bytes: One entry per piece, from the start on.
    """

    peak_bytes: tuple[Bytes, ...]


def curve_of(graph: Graph, steps: Sequence[Step], replayed: Replay, *, duration: int, num_pieces: int) -> Curve:
    """Cut the execution of a plan into pieces of equal duration.

    Args:
        graph: What is executed.
        steps: The plan.
        replayed: The same, replayed.
        duration: Of all pieces together, in the graph's unit; plans to be compared share it.
        num_pieces: How many.
    """
    peaks = [0] * num_pieces
    elapsed = 0
    for step, memory_bytes in zip(steps, replayed.memory_bytes, strict=True):
        ends = elapsed + (graph.node_by_name[step.node].duration if isinstance(step, Compute) else 0)
        first = min(num_pieces - 1, elapsed * num_pieces // max(1, duration))
        last = min(num_pieces - 1, max(elapsed, ends - 1) * num_pieces // max(1, duration))
        for piece in range(first, last + 1):
            peaks[piece] = max(peaks[piece], memory_bytes)
        elapsed = ends
    return Curve(tuple(peaks))
