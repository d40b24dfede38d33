"""Policies by name, with parts left out, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from lowtide.errors import InputError
from lowtide.ir import Block, Interval
from lowtide.ir.block import Fit
from lowtide.policies.coop import Coop
from lowtide.policies.parts import Part, rules_of, with_rules, without
from lowtide.policies.protocol import BASELINE_RULES, LOWTIDE_RULES, PAPER_RULES, Compaction, Facts, Rules
from lowtide.policies.table import POLICIES, policy_named, policy_names


class Plain:
    name = "plain"

    def choose(self, blocks: Sequence[Block], *, size_bytes: int, facts: Facts) -> Interval | None:
        return None


@dataclass(frozen=True)
class WrongRules(Plain):
    rules: str = "none"


def test_all_of_the_table_are_known_by_their_names() -> None:
    assert set(POLICIES) <= set(policy_names())
    assert [policy_named(name).name for name in POLICIES] == list(POLICIES)


def test_a_class_elsewhere_is_found() -> None:
    assert policy_named("lowtide.policies.coop:Coop") == Coop()


def test_what_is_no_policy_is_refused() -> None:
    with pytest.raises(InputError, match="policy 'coup' is not known: choose one of coop, coop-paper, dte, dtr"):
        policy_named("coup")
    with pytest.raises(InputError, match=r"^policy 'no\.such:Thing' cannot be made: No module named 'no'"):
        policy_named("no.such:Thing")
    with pytest.raises(InputError, match="it is no policy"):
        policy_named("builtins:dict")


def test_ours_and_the_papers_differ_in_tiers_compaction_holding_and_the_fit_of_cheap_values() -> None:
    assert rules_of(policy_named("coop")) == LOWTIDE_RULES
    assert without(policy_named("coop"), [Part.TIERS, Part.COMPACTION]).name == "coop-no-tiers-no-compaction"
    ours = rules_of(without(policy_named("coop"), [Part.COMPACTION, Part.TIERS, Part.HOLDING]))
    assert replace(ours, cheap_fit=Fit.BEST) == PAPER_RULES
    assert rules_of(policy_named("coop-paper")) == PAPER_RULES


@pytest.mark.parametrize("name", ["dtr", "dte", "lru", "size", "random"])
def test_baselines_work_by_the_same_rules(name: str) -> None:
    assert rules_of(policy_named(name)) == BASELINE_RULES
    assert (
        Rules(
            is_partitioned=False,
            cheap_fit=Fit.BEST,
            is_copy_on_write=True,
            is_two_tiered=False,
            holds_awaited=False,
            compaction=Compaction.NEVER,
        )
        == BASELINE_RULES
    )


@pytest.mark.parametrize(
    ("part", "rules"),
    [
        (Part.PARTITION, Rules(is_partitioned=False, cheap_fit=Fit.BEST)),
        (Part.GHOSTS, Rules(is_copy_on_write=True)),
        (Part.TIERS, Rules(is_two_tiered=False)),
        (Part.COMPACTION, Rules(compaction=Compaction.NEVER)),
        (Part.DROPPING, Rules(keeps_dead=True)),
        (Part.HOLDING, Rules(holds_awaited=False)),
    ],
)
def test_a_part_left_out_is_one_rule_changed(part: Part, rules: Rules) -> None:
    assert rules_of(without(Coop(), [part])) == rules


def test_parts_that_are_not_there_cannot_be_left_out() -> None:
    for part in (Part.WINDOW, Part.SURPLUS):
        with pytest.raises(InputError, match="policy 'dtr' evicts no windows"):
            without(policy_named("dtr"), [part])
    with pytest.raises(InputError, match="policy 'plain' has fixed rules"):
        with_rules(Plain(), BASELINE_RULES)
    with pytest.raises(InputError, match="policy 'plain' has rules of type str"):
        rules_of(WrongRules())
    assert without(Coop(), []) == Coop()
    assert rules_of(Plain()) == LOWTIDE_RULES
