"""Facts written down by hand, to try a policy without an engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["GivenFacts", "ValueFacts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueFacts:
    """What is known about one value; see :class:`~lowtide.policies.protocol.Facts`."""

    projected_cost: float
    staleness: float = 1.0
    neighborhood_cost: float = 0.0
    component_cost: float = 0.0
    own_cost: float = 0.0
    chance: float = 0.5
    is_backward: bool = False


@dataclass(frozen=True, slots=True)
class GivenFacts:
    """Facts about owners as given.

    Attributes:
        by_owner: Of each owner.
    """

    by_owner: Mapping[str, ValueFacts]

    def projected_cost(self, owner: str) -> float:
        """Own cost and that of absent ancestors."""
        return self.by_owner[owner].projected_cost

    def neighborhood_cost(self, owner: str) -> float:
        """That, and the cost of absent descendants."""
        return self.by_owner[owner].neighborhood_cost

    def component_cost(self, owner: str) -> float:
        """Own cost and that of the evicted components around."""
        return self.by_owner[owner].component_cost

    def own_cost(self, owner: str) -> float:
        """Cost of the op that made it."""
        return self.by_owner[owner].own_cost

    def staleness(self, owner: str) -> float:
        """Modelled time since the last use."""
        return self.by_owner[owner].staleness

    def is_backward(self, owner: str) -> bool:
        """Whether it was made inside backward."""
        return self.by_owner[owner].is_backward

    def chance(self, owner: str) -> float:
        """A number from 0 to 1."""
        return self.by_owner[owner].chance
