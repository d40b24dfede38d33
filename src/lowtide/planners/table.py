"""Planners by name. Importing this module imports no planner: :class:`~lowtide.registry.Registry` does when asked."""

from __future__ import annotations

from lowtide.planners.protocol import Planner
from lowtide.registry import Registry

__all__ = ["PLANNERS", "planner_named", "planner_names"]

_REGISTRY: Registry[Planner] = Registry(
    noun="planner",
    method="propose",
    protocol=Planner,  # type: ignore[type-abstract]  # it is only asked what is an instance
    own={
        "checkmate": "lowtide.planners.checkmate:CheckmatePlanner",
        "checkmate-lp": "lowtide.planners.checkmate:CheckmateLpPlanner",
        "cpsat": "lowtide.planners.cpsat:CpsatPlanner",
        "exact": "lowtide.planners.exact:ExactPlanner",
        "greedy": "lowtide.planners.greedy:GreedyPlanner",
        "moccasin": "lowtide.planners.moccasin:MoccasinPlanner",
        "search": "lowtide.planners.search:SearchPlanner",
        "sqrt": "lowtide.planners.sqrt:SqrtPlanner",
    },
    group="lowtide.planners",
)

PLANNERS = _REGISTRY.own
"""lowtide's own planners: where each name's class is."""

planner_named = _REGISTRY.make
"""Make the planner of a name: see :meth:`lowtide.registry.Registry.make`."""

planner_names = _REGISTRY.names
"""Every name that :func:`planner_named` knows, sorted."""
