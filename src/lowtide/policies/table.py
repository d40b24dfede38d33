"""Policies by name. Importing this module imports no policy: :class:`~lowtide.registry.Registry` does when asked."""

from __future__ import annotations

from lowtide.policies.protocol import Policy
from lowtide.registry import Registry

__all__ = ["POLICIES", "policy_named", "policy_names"]

_REGISTRY: Registry[Policy] = Registry(
    noun="policy",
    method="choose",
    protocol=Policy,  # type: ignore[type-abstract]  # it is only asked what is an instance
    own={
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
    },
    group="lowtide.policies",
)

POLICIES = _REGISTRY.own
"""lowtide's own policies: where each name's class is."""

policy_named = _REGISTRY.make
"""Make the policy of a name: see :meth:`lowtide.registry.Registry.make`."""

policy_names = _REGISTRY.names
"""Every name that :func:`policy_named` knows, sorted."""
