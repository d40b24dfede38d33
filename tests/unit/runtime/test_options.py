"""Options of a session: refused where they make no sense, and those of the simulator for the same policy."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from lowtide.errors import UnitError
from lowtide.ir import Trace
from lowtide.policies.parts import rules_of
from lowtide.policies.table import POLICIES as ALL_POLICIES
from lowtide.policies.table import policy_named
from lowtide.runtime.options import MIN_BUDGET_BYTES, POLICIES, SessionOptions, read_budget
from lowtide.simulator.program import compile_trace
from lowtide.simulator.run import native_config


@pytest.mark.parametrize(
    ("budget", "expected"), [("1MiB", 2**20), ("2MB", 2_000_000), (2**20, 2**20), ("1.5GiB", 3 * 2**29)]
)
def test_budgets_are_bytes(budget: int | str, expected: int) -> None:
    assert read_budget(budget) == expected


@pytest.mark.parametrize(
    ("budget", "told"),
    [
        ("60%", "name bytes, e.g. '1GiB'"),
        (MIN_BUDGET_BYTES - 1, "the smallest is 1.00 MiB: did you forget the unit"),
        ("8", "did you forget the unit"),
        ("many", "many"),
        (-1, "-1"),
    ],
)
def test_what_cannot_be_meant_is_refused(budget: int | str, told: str) -> None:
    with pytest.raises(UnitError, match=told):
        read_budget(budget)


@pytest.mark.parametrize("options", [{"policy": "best"}, {"max_recompute_percent": 0.0}, {"policy": "dtr-ideal"}])
def test_options_that_make_no_sense_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(UnitError):
        SessionOptions(**options)  # type: ignore[arg-type]


def test_every_policy_that_works_with_addresses_is_there() -> None:
    assert set(POLICIES) == {name for name in ALL_POLICIES if not rules_of(policy_named(name)).is_ideal}


@pytest.mark.parametrize("policy", POLICIES)
def test_the_simulator_has_the_same_options(policy: str) -> None:
    empty = Trace(capacity_bytes=None, alignment=64, policy=None, seed=0, cost_model="unit", events=())
    config = native_config(compile_trace(empty), policy_named(policy), capacity_bytes=2**20)
    options = SessionOptions(policy=policy).for_shim(2**20)
    assert options["capacity"] == config.capacity
    assert options["method"] == config.method.name.lower()
    assert options["score"] == config.score.name.lower()
    assert options["compaction"] == config.compaction.name.lower()
    for name in ("is_copy_on_write", "is_two_tiered", "keeps_dead", "holds_awaited", "surplus"):
        assert options[name] == getattr(config, name)


def test_the_capacity_is_whole_pages_within_the_budget() -> None:
    assert SessionOptions().for_shim(2**20 + 4095)["capacity"] == 2**20
