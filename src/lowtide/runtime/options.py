"""What a session may be told, checked before anything is touched."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from lowtide.errors import UnitError
from lowtide.policies.parts import rules_of
from lowtide.policies.protocol import NativeChoice, Policy
from lowtide.policies.table import policy_named
from lowtide.units import format_bytes, parse_budget

__all__ = ["MIN_BUDGET_BYTES", "POLICIES", "SessionOptions", "read_budget"]

MIN_BUDGET_BYTES = 1 << 20
"""Smallest budget: below it not even the small values of a toy model fit."""

_PAGE_BYTES = 4096

POLICIES = ("coop", "coop-paper", "dte", "dtr", "lru", "random", "size")
"""Policies of the live runtime: those of :mod:`lowtide.policies` that work with addresses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """How a session evicts, and when it gives up.

    Attributes:
        policy: One of :data:`POLICIES`.
        seed: For policies that draw.
        max_recompute_percent: Recomputation, in percent of the modelled duration of all other ops so far, from which
            the session gives up with an error instead of thrashing on.
        decompose_rnn: Whether ``torch.nn.LSTM`` runs as ordinary ops, which can be evicted and recomputed, instead of
            oneDNN's kernel, which cannot. Its results differ from that kernel's in the last bits.
        records_trace: Whether to keep all that happens, for `Session.trace`; some hundred bytes per op.
    """

    policy: str = "coop"
    seed: int = 0
    max_recompute_percent: float = 900.0
    decompose_rnn: bool = False
    records_trace: bool = False

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise UnitError(f"policy {self.policy!r:.40} is not known: choose one of {', '.join(POLICIES)}")
        if not self.max_recompute_percent > 0:
            raise UnitError(f"max_recompute_percent {self.max_recompute_percent} must be above 0")

    def for_shim(self, budget_bytes: int) -> dict[str, Any]:
        """The engine's configuration."""
        return {
            "capacity": budget_bytes // _PAGE_BYTES * _PAGE_BYTES,
            "seed": self.seed,
            "thrash_limit": self.max_recompute_percent / 100.0,
            "has_events": self.records_trace,
            **_engine_options(policy_named(self.policy)),
        }


def _engine_options(policy: Policy) -> dict[str, Any]:
    """What the simulator sets for the same policy, so that both decide alike."""
    rules, native = rules_of(policy), getattr(policy, "native", None)
    assert isinstance(native, NativeChoice)
    return {
        "method": _as_option(native.method),
        "score": _as_option(native.score),
        "surplus": native.surplus,
        "is_copy_on_write": rules.is_copy_on_write,
        "is_two_tiered": rules.is_two_tiered,
        "keeps_dead": rules.keeps_dead,
        "holds_awaited": rules.holds_awaited,
        "compaction": _as_option(rules.compaction),
        "cheap_end": "high" if rules.is_partitioned else "low",
        "cheap_fit": _as_option(rules.cheap_fit),
    }


def _as_option(choice: StrEnum) -> str:
    return choice.value.replace("-", "_")


def read_budget(budget: int | str) -> int:
    """Bytes of a budget.

    Raises:
        UnitError: It is no number of bytes, a percentage, or too small to be meant.
    """
    if isinstance(budget, str) and budget.strip().endswith("%"):
        raise UnitError(f"budget {budget!r:.40}: name bytes, e.g. '1GiB'; what eager code needs is not known ahead")
    budget_bytes = parse_budget(budget, baseline_peak_bytes=0, smallest_bytes=0)
    if budget_bytes < MIN_BUDGET_BYTES:
        raise UnitError(
            f"budget {budget!r:.40} is {budget_bytes} bytes; the smallest is {format_bytes(MIN_BUDGET_BYTES)}: "
            "did you forget the unit?"
        )
    return budget_bytes
