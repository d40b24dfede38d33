"""What a planner can get wrong."""

from __future__ import annotations

from lowtide.errors import LowtideError
from lowtide.planners.protocol import Planner

__all__ = ["PlannerFailed"]


class PlannerFailed(LowtideError):
    """A planner raised, or proposed what breaks the rules; the message names it.

    Attributes:
        planner: Its name.
        is_builtin: Whether it is one of lowtide's own, so that the fault is ours.
    """

    def __init__(self, planner: Planner, message: str) -> None:
        advice = "choose another planner, or mend it"
        super().__init__(f"planner {planner.name!r} {message}: {advice}")
        self.planner = planner.name
        self.is_builtin = type(planner).__module__.split(".")[0] == "lowtide"
