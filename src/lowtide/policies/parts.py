"""What a policy is without one of its parts, for ablations: each part's worth is what is lost without it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from enum import StrEnum

from lowtide.errors import InputError
from lowtide.ir.block import Fit
from lowtide.policies.coop import Coop
from lowtide.policies.protocol import Compaction, Policy, Rules

__all__ = ["Part", "rules_of", "with_rules", "without"]


class Part(StrEnum):
    """A part that can be left out."""

    WINDOW = "window"
    """Evict one block after another instead. Coop's own."""

    SURPLUS = "surplus"
    """Windows are compared by cost alone, whatever they hold beyond the request. Coop's own."""

    PARTITION = "partition"
    """Place everything from the low end."""

    GHOSTS = "ghosts"
    """Copy on write instead of recomputable in-place."""

    TIERS = "tiers"
    """Values made inside backward are evicted as any others."""

    COMPACTION = "compaction"
    """Nothing moves."""

    DROPPING = "dropping"
    """Values that the program has released keep their bytes until those are wanted."""

    HOLDING = "holding"
    """A recomputation that goes in circles may lose what it still awaits."""


def rules_of(policy: Policy) -> Rules:
    """The rules of a policy; lowtide's where it has none.

    Raises:
        InputError: What it has are no rules.
    """
    rules = getattr(policy, "rules", None)
    if rules is None:
        return Rules()
    if not isinstance(rules, Rules):
        raise InputError(f"policy {policy.name!r:.80} has rules of type {type(rules).__name__}: give policies.Rules")
    return rules


def with_rules(policy: Policy, rules: Rules, *, name: str | None = None) -> Policy:
    """The same policy under other rules.

    Raises:
        InputError: The policy has no rules, so that they cannot be others.
    """
    if rules_of(policy) == rules and name in (None, policy.name):
        return policy
    try:
        return replace(policy, rules=rules, name=policy.name if name is None else name)  # type: ignore[type-var]
    except TypeError as error:
        raise InputError(
            f"policy {policy.name!r:.80} has fixed rules: make it a dataclass with name and rules to change them"
        ) from error


def without(policy: Policy, parts: Collection[Part]) -> Policy:
    """A policy without some of its parts; its name tells which.

    Raises:
        InputError: The policy has no such part.
    """
    rules = rules_of(policy)
    left_out = [part for part in Part if part in parts]
    for part in left_out:
        if part in (Part.WINDOW, Part.SURPLUS):
            if not isinstance(policy, Coop):
                raise InputError(f"policy {policy.name!r:.80} evicts no windows: leave out other parts")
            policy = replace(policy, is_windowed=False) if part is Part.WINDOW else replace(policy, surplus=1.0)
        else:
            rules = _without(rules, part)
    if not left_out:
        return policy
    return with_rules(policy, rules, name="-no-".join([policy.name, *left_out]))


def _without(rules: Rules, part: Part) -> Rules:
    match part:
        case Part.PARTITION:
            return replace(rules, is_partitioned=False, cheap_fit=Fit.BEST)
        case Part.GHOSTS:
            return replace(rules, is_copy_on_write=True)
        case Part.TIERS:
            return replace(rules, is_two_tiered=False)
        case Part.COMPACTION:
            return replace(rules, compaction=Compaction.NEVER)
        case Part.DROPPING:
            return replace(rules, keeps_dead=True)
        case Part.HOLDING:
            return replace(rules, holds_awaited=False)
        case Part.WINDOW | Part.SURPLUS:
            return rules
