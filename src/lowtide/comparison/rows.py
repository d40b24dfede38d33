"""What is compared, and what came of it: a cell, and its row."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from lowtide.ir import Scope
from lowtide.ir.plan import increase_percent
from lowtide.units import Bytes

__all__ = ["EAGER", "Cell", "CellKey", "Kind", "Outcome", "Row"]

CellKey: TypeAlias = tuple[str, str, str]
"""Kind, method and budget as it was written: what a row is found by."""

EAGER = "eager"
"""The method of the measured row to which all other measured rows are compared."""


class Kind(StrEnum):
    """What a row's figures are."""

    PLAIN = "plain"
    """The graph in its order, nothing recomputed."""
    BOUND = "bound"
    """What no plan can beat."""
    PLANNER = "planner"
    """A plan, checked by the referee."""
    PEER = "peer"
    """What PyTorch itself would recompute, as a plan of the same graph, checked by the referee."""
    POLICY = "policy"
    """An online policy, simulated."""
    MEASURED = "measured"
    """A training that was really run."""

    @property
    def is_measured(self) -> bool:
        """Whether its figures come from a run rather than from the cost model."""
        return self is Kind.MEASURED


class Outcome(StrEnum):
    """How a cell ended. The first four are a planner's, as in ``lowtide.ir.Status``."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    """Proven: no plan within the budget."""
    TIMEOUT = "timeout"
    """No plan (or bound) was found, which proves nothing."""
    PROVEN = "proven"
    """A bound."""
    COMPLETED = "completed"
    """A run, in the simulator or really, that kept its budget or has none."""
    OVER = "over budget"
    """A real run that needed more than its budget."""
    GAVE_UP = "gave up"
    """An online policy that did not get to the end."""
    FAILED = "failed"
    """It could not be tried; the reason says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One method within one budget.

    Attributes:
        kind: What it is.
        method: Its name.
        budget: As the user wrote it; empty where the method takes none.
    """

    kind: Kind
    method: str
    budget: str = ""

    @property
    def key(self) -> CellKey:
        """What finds its row again."""
        return (str(self.kind), self.method, self.budget)

    def __str__(self) -> str:
        return f"{self.method} within {self.budget}" if self.budget else self.method


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What came of a cell. Durations are in the graph's unit; of measured rows CPU time in ns.

    Attributes:
        cell: What was tried.
        outcome: How it ended.
        budget_bytes: The budget, or None where the method takes none.
        baseline_peak_bytes: Of the plain graph; of measured rows the peak of eager.
        baseline_duration: Likewise.
        needed_bytes: What a budget must allow for this: the footprint where there are addresses, else the peak; None
            where nothing was found.
        peak_bytes: Most bytes resident, or None.
        duration: Recomputations included, or None.
        lower_bound_duration: Proven for ``scope``, or None.
        scope: The plans of which a bound or proof speaks; None where it speaks of none.
        num_recomputes: Executions beyond the first, or None.
        seconds: What finding this out took, on the clock.
        bits: Digest of all that the training computed, or None.
        reason: Why there is nothing more; empty where all is well.
    """

    cell: Cell
    outcome: Outcome
    budget_bytes: Bytes | None
    baseline_peak_bytes: Bytes
    baseline_duration: int
    needed_bytes: Bytes | None = None
    peak_bytes: Bytes | None = None
    duration: int | None = None
    lower_bound_duration: int | None = None
    scope: Scope | None = None
    num_recomputes: int | None = None
    seconds: float = 0.0
    bits: str | None = None
    reason: str = ""

    @property
    def is_found(self) -> bool:
        """Whether there is a way to run within some memory in some time: a point of the picture."""
        return self.needed_bytes is not None and self.duration is not None

    @property
    def memory_percent(self) -> float | None:
        """Needed bytes in percent of the plain peak."""
        if self.needed_bytes is None or not self.baseline_peak_bytes:
            return None
        return 100.0 * self.needed_bytes / self.baseline_peak_bytes

    @property
    def increase_percent(self) -> float | None:
        """Time beyond plain in percent: TDI of modelled rows, overhead of measured ones."""
        return None if self.duration is None else increase_percent(self.duration, self.baseline_duration)
