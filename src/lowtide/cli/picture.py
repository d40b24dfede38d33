"""A drawing of memory over time, in text: what a step holds plainly, and what it holds as planned.

68.0 MiB |       ░░░░
         |     ░░░░░░░░
40.8 MiB |   ██████████████   <- budget
         |  ███████████████
         +--------------------
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lowtide.ir import Compute, Graph, Step
from lowtide.referee import Replay
from lowtide.units import Bytes, format_bytes

__all__ = ["Curve", "curve_of", "draw_curves"]

_PLAIN, _PLANNED = "░", "█"


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


def draw_curves(plain: Curve, planned: Curve, *, budget_bytes: Bytes, height: int = 9) -> list[str]:
    """Draw the planned curve in front of the plain one.

    Args:
        plain: Without recomputation.
        planned: As planned, of as many pieces.
        budget_bytes: Where the planned curve may not go beyond; its row is marked.
        height: Rows.

    Returns:
        Lines of text, 13 characters wider than the curves have pieces, and the mark.
    """
    top = max(1, *plain.peak_bytes, *planned.peak_bytes)
    budget_row = min(height, -(-budget_bytes * height // top))
    lines = []
    for row in range(height, 0, -1):
        threshold = top * (row - 1)  # a cell is filled where its bytes exceed the bottom of its row
        cells = "".join(
            _PLANNED if held * height > threshold else _PLAIN if plainly * height > threshold else " "
            for plainly, held in zip(plain.peak_bytes, planned.peak_bytes, strict=True)
        )
        label = format_bytes(top) if row == height else format_bytes(budget_bytes) if row == budget_row else ""
        mark = " <- budget" if row == budget_row else ""
        lines.append(f"{label:>10} |{cells}{mark}".rstrip())
    lines.append(f"{'':>10} +{'-' * len(plain.peak_bytes)}")
    return lines
