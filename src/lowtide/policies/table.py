"""Policies by name, in one table; others by entry point, or as ``pkg.mod:Class``.

A policy's module is imported when it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import cast

from lowtide.errors import InputError, LowtideError
from lowtide.policies.protocol import Policy

__all__ = ["ENTRY_POINT_GROUP", "POLICIES", "policy_named", "policy_names"]

POLICIES: Mapping[str, str] = MappingProxyType(
    {
        "coop": "lowtide.policies.coop:Coop",
        "coop-paper": "lowtide.policies.coop:CoopPaper",
        "dte": "lowtide.policies.dte:Dte",
        "dtr": "lowtide.policies.dtr:Dtr",
        "dtr-eq": "lowtide.policies.dtr_eq:DtrEq",
        "dtr-ideal": "lowtide.policies.dtr_ideal:DtrIdeal",
        "dtr-local": "lowtide.policies.dtr_local:DtrLocal",
        "lru": "lowtide.policies.lru:Lru",
        "msps": "lowtide.policies.msps:Msps",
        "random": "lowtide.policies.chance:Chance",
        "size": "lowtide.policies.size:Size",
    }
)
"""lowtide's own policies: where each name's class is."""

ENTRY_POINT_GROUP = "lowtide.policies"
"""Group in which other packages declare policies."""


def policy_names() -> tuple[str, ...]:
    """Every name that :func:`policy_named` knows, sorted."""
    return tuple(sorted({*POLICIES, *_declared()}))


def policy_named(name: str) -> Policy:
    """Make the policy of a name.

    Args:
        name: One of lowtide's own, one that an installed package declares, or ``pkg.mod:Class``.

    Returns:
        The policy, made without arguments.

    Raises:
        InputError: There is none of that name, it cannot be imported, or it is no policy.
    """
    if name in POLICIES:
        return _made(name, POLICIES[name])
    declared = _declared()
    if name in declared:
        return _made(name, declared[name].value)
    if ":" not in name:
        raise InputError(
            f"policy {name!r:.80} is not known: choose one of {', '.join(policy_names())}, "
            "or name a class as pkg.mod:Class"
        )
    return _made(name, name)


def _declared() -> dict[str, EntryPoint]:
    return {entry_point.name: entry_point for entry_point in entry_points(group=ENTRY_POINT_GROUP)}


def _made(name: str, location: str) -> Policy:
    module_name, _, attributes = location.partition(":")
    try:
        made: object = import_module(module_name)
        for attribute in attributes.strip().split("."):
            made = getattr(made, attribute)
        policy = cast("type", made)()
    except LowtideError:
        raise
    except (Exception, SystemExit) as error:  # whatever a stranger's module raises while it is imported
        raise InputError(f"policy {name!r:.80}: {location!r:.80} cannot be made: {error}") from error
    if not isinstance(policy, Policy):
        raise InputError(f"policy {name!r:.80}: {location!r:.80} has no name and choose: it is no policy")
    return policy
