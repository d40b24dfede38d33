"""How far outputs of two programs are apart where a runtime may round."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["MOST_ROUNDING", "relative_difference"]

MOST_ROUNDING = 1e-4
"""Of the largest element: what a change of the order of summation is taken for, and no more."""


def relative_difference(before: npt.NDArray[Any], after: npt.NDArray[Any] | None) -> float:
    """The largest difference, by the largest element; infinite where they are no finite floats of one shape."""
    if after is None or before.dtype != after.dtype or before.shape != after.shape:
        return math.inf
    if before.tobytes() == after.tobytes() or not before.size:
        return 0.0
    if before.dtype.kind != "f" or not (np.isfinite(before).all() and np.isfinite(after).all()):
        return math.inf
    largest = float(np.abs(before).max())
    return float(np.abs(before - after).max()) / largest if largest else math.inf
