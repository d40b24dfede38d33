"""A drawing of memory over time, in text: what a step holds plainly, and what it holds as planned.

68.0 MiB |       ░░░░
         |     ░░░░░░░░
40.8 MiB |   ██████████████   <- budget
         |  ███████████████
         +--------------------
"""

from __future__ import annotations

from lowtide.reports.curves import Curve
from lowtide.units import Bytes, format_bytes

__all__ = ["draw_curves"]

_PLAIN, _PLANNED = "░", "█"


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
