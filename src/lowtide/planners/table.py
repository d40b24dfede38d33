"""Planners by name: lowtide's own, those that other packages declare, and any class as ``pkg.mod:Class``.

Importing this module imports no planner; a planner is imported when it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import cast

from lowtide.errors import InputError, LowtideError
from lowtide.planners.protocol import Planner

__all__ = ["ENTRY_POINT_GROUP", "PLANNERS", "planner_named", "planner_names"]

PLANNERS: Mapping[str, str] = MappingProxyType(
    {
        "checkmate": "lowtide.planners.checkmate:CheckmatePlanner",
        "checkmate-lp": "lowtide.planners.checkmate:CheckmateLpPlanner",
        "cpsat": "lowtide.planners.cpsat:CpsatPlanner",
        "exact": "lowtide.planners.exact:ExactPlanner",
        "greedy": "lowtide.planners.greedy:GreedyPlanner",
        "moccasin": "lowtide.planners.moccasin:MoccasinPlanner",
        "search": "lowtide.planners.search:SearchPlanner",
        "sqrt": "lowtide.planners.sqrt:SqrtPlanner",
    }
)
"""lowtide's own planners: where each name's class is."""

ENTRY_POINT_GROUP = "lowtide.planners"
"""Group in which other packages declare planners."""


def planner_names() -> tuple[str, ...]:
    """Every name that :func:`planner_named` knows, sorted."""
    return tuple(sorted({*PLANNERS, *_declared()}))


def planner_named(name: str) -> Planner:
    """Make the planner of a name.

    Args:
        name: One of lowtide's own, one that an installed package declares, or ``pkg.mod:Class``.

    Returns:
        The planner, made without arguments.

    Raises:
        InputError: There is none of that name, it cannot be imported, or it is no planner.
        MissingDependency: It needs an optional package.
    """
    if name in PLANNERS:
        return _made(name, PLANNERS[name])
    declared = _declared()
    if name in declared:
        return _made(name, declared[name].value)
    if ":" not in name:
        raise InputError(
            f"planner {name!r:.80} is not known: choose one of {', '.join(planner_names())}, "
            "or name a class as pkg.mod:Class"
        )
    return _made(name, name)


def _declared() -> dict[str, EntryPoint]:
    return {entry_point.name: entry_point for entry_point in entry_points(group=ENTRY_POINT_GROUP)}


def _made(name: str, location: str) -> Planner:
    module_name, _, attributes = location.partition(":")
    try:
        made: object = import_module(module_name)
        for attribute in attributes.strip().split("."):
            made = getattr(made, attribute)
        planner = cast("type", made)()
    except LowtideError:
        raise
    except (Exception, SystemExit) as error:  # whatever a stranger's module raises while it is imported
        raise InputError(f"planner {name!r:.80}: {location!r:.80} cannot be made: {error}") from error
    if not isinstance(planner, Planner):
        raise InputError(f"planner {name!r:.80}: {location!r:.80} has no name and propose: it is no planner")
    return planner
