"""What a bound is."""

from __future__ import annotations

from dataclasses import dataclass

from lowtide.ir import Scope

__all__ = ["Bound"]


@dataclass(frozen=True, slots=True)
class Bound:
    """A proven least duration of any plan within a budget.

    Attributes:
        duration: No plan within the scope and budget takes less, in the graph's ``duration_unit``.
        scope: The plans it speaks of.
        method: How it was found, e.g. ``"absence-mip"``.
        is_infeasible: Whether it is proven that no plan within the scope fits at all; ``duration`` then still holds.
    """

    duration: int
    scope: Scope
    method: str
    is_infeasible: bool = False
