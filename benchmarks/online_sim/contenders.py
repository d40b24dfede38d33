"""Which policies run, and what is left out of Coop for the ablation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lowtide.policies.parts import Part, rules_of, with_rules, without
from lowtide.policies.protocol import Policy
from lowtide.policies.table import policy_named

__all__ = ["ABLATION_RATIOS", "OPTIMUM_RATIOS", "RATIOS", "ablations", "contenders"]

RATIOS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)
ABLATION_RATIOS = (0.7, 0.5, 0.4, 0.3)
OPTIMUM_RATIOS = (0.7, 0.5, 0.3)
_OUR_PARTS = (Part.TIERS, Part.COMPACTION, Part.PARTITION, Part.GHOSTS, Part.HOLDING, Part.SURPLUS, Part.DROPPING)
_NAMES = ("coop", "coop-paper", "dtr", "dte", "lru", "dtr-ideal")


def contenders() -> Sequence[Policy]:
    """The policies, and DTR and DTE once more with ghosts instead of copy-on-write, as Coop has them."""
    own_ghosts = [
        with_rules(policy, replace(rules_of(policy), is_copy_on_write=False), name=f"{policy.name}+ghosts")
        for policy in map(policy_named, ("dtr", "dte"))
    ]
    return [*map(policy_named, _NAMES), *own_ghosts]


def ablations() -> Sequence[Policy]:
    """Coop without each of its three parts, and lowtide's without each of what it adds."""
    paper, ours = policy_named("coop-paper"), policy_named("coop")
    return [
        *(without(paper, [part]) for part in (Part.WINDOW, Part.PARTITION, Part.GHOSTS)),
        *(without(ours, [part]) for part in _OUR_PARTS),
    ]
