"""What an eviction policy is: blocks and their facts in, blocks to evict out.

    no hole holds a request ──▶ choose(blocks, size_bytes, facts) ──▶ a run of blocks is evicted ──▶ again, if need be

A policy says which blocks go (:meth:`Policy.choose`, plain Python, for people to read and for tests to compare with),
which part of the native engine does the same (:class:`NativeChoice`), and by which rules the engine works around that
choice (:class:`Rules`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol, runtime_checkable

from lowtide.ir import Block, Interval
from lowtide.ir.block import Fit

__all__ = [
    "BASELINE_RULES",
    "IDEAL_RULES",
    "LOWTIDE_RULES",
    "PAPER_RULES",
    "Compaction",
    "Facts",
    "Method",
    "NativeChoice",
    "Policy",
    "Rules",
    "Score",
]


class Facts(Protocol):
    """What a policy may ask about the value that owns a block, now."""

    def projected_cost(self, owner: str) -> float:
        """What it would cost to recompute the value, with every absent ancestor, each op once."""
        ...

    def neighborhood_cost(self, owner: str) -> float:
        """The same, and what it would cost to recompute every absent descendant (DTR's e*)."""
        ...

    def component_cost(self, owner: str) -> float:
        """The same, as DTR's union-find approximates it; known only while a policy of that score runs."""
        ...

    def own_cost(self, owner: str) -> float:
        """Cost of the op that made the value."""
        ...

    def staleness(self, owner: str) -> float:
        """Modelled time since the value was last used; above 0."""
        ...

    def is_backward(self, owner: str) -> bool:
        """Whether the value was made inside backward."""
        ...

    def chance(self, owner: str) -> float:
        """A random number from 0 to 1, another one after every eviction; the seed of the run decides it."""
        ...


class Method(StrEnum):
    """How much a native choice clears."""

    WINDOW = "window"
    """The cheapest run of adjacent blocks that holds the request."""

    ONE_BY_ONE = "one-by-one"
    """The block of least score, wherever it lies, until a free block holds the request."""


class Score(StrEnum):
    """What a native choice minimizes. C is the projected cost, s the staleness, in bytes all sizes."""

    COOP = "coop"
    """C / s."""

    DTR = "dtr"
    """C / (s · size)."""

    DTE = "dte"
    """C / (s · (size + free bytes beside the block))."""

    LRU = "lru"
    """1 / s."""

    SIZE = "size"
    """1 / size."""

    RANDOM = "random"
    """Chance."""

    DTR_NEIGHBORHOOD = "dtr-neighborhood"
    """Neighborhood cost / (s · size)."""

    DTR_EQ = "dtr-eq"
    """Component cost / (s · size)."""

    LOCAL = "local"
    """Own cost / (s · size)."""

    MSPS = "msps"
    """C / size."""


class Compaction(StrEnum):
    """When blocks are slid together."""

    NEVER = "never"
    LAST_RESORT = "last-resort"
    """Where no choice serves a request, before values made inside backward are evicted."""

    WHEN_CHEAPER = "when-cheaper"
    """Also where evicting what is cheapest per byte and sliding what stays takes less modelled time than recomputing
    what the policy chose."""


@dataclass(frozen=True, slots=True)
class NativeChoice:
    """Which part of the native engine chooses as the policy does.

    Attributes:
        method: How much it clears.
        score: What it minimizes.
        surplus: Of windows: how many requests' worth of bytes count (:func:`~lowtide.policies.window.cheapest_window`).
    """

    method: Method
    score: Score
    surplus: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How the engine works around a policy's choices. The defaults are lowtide's.

    Attributes:
        is_ideal: Count bytes as if addresses did not matter, as the original DTR does: no allocator reaches that.
        is_partitioned: Place cheap values from the high end, expensive ones from the low end.
        cheap_fit: Which hole serves a cheap value.
        is_copy_on_write: An op in place on a recomputable value copies it first, instead of leaving a ghost.
        is_two_tiered: Evict values made inside backward only where nothing else can go; Coop then prices them without
            their staleness, as gradients that wait for the optimizer are stale, and wanted all the same.
        keeps_dead: Let a value that the program has released, and others may be recomputed from, keep its bytes until
            they are wanted, instead of dropping it at once.
        holds_awaited: Where the values of one recomputation push each other out, so that it executes the same ops again
            and again, evict what its ops have yet to read only where nothing else can go, and count it as fresh.
        compaction: When blocks are slid together.
    """

    is_ideal: bool = False
    is_partitioned: bool = True
    cheap_fit: Fit = Fit.FIRST
    is_copy_on_write: bool = False
    is_two_tiered: bool = True
    keeps_dead: bool = False
    holds_awaited: bool = True
    compaction: Compaction = Compaction.WHEN_CHEAPER


LOWTIDE_RULES = Rules()
"""As lowtide works."""

BASELINE_RULES = Rules(
    is_partitioned=False,
    cheap_fit=Fit.BEST,
    is_copy_on_write=True,
    is_two_tiered=False,
    holds_awaited=False,
    compaction=Compaction.NEVER,
)
"""As DTR, DTE and their kin work: one end, copy-on-write, one tier, nothing moves."""

IDEAL_RULES = replace(BASELINE_RULES, is_ideal=True)
"""As the original DTR works: it counts bytes, blind to addresses."""

PAPER_RULES = Rules(cheap_fit=Fit.BEST, is_two_tiered=False, holds_awaited=False, compaction=Compaction.NEVER)
"""As Coop's paper has it: both ends, best fit, ghosts; one tier, nothing moves."""


@runtime_checkable
class Policy(Protocol):
    """Decides what to evict when no free block holds a request."""

    @property
    def name(self) -> str:
        """The name by which users choose it."""
        ...

    def choose(self, blocks: Sequence[Block], *, size_bytes: int, facts: Facts) -> Interval | None:
        """Choose a run of adjacent blocks to clear.

        A policy also may have ``rules`` (:class:`Rules`; lowtide's where it has none) and ``native``
        (:class:`NativeChoice`): the engine then chooses by itself, and this method tells how.

        Args:
            blocks: All blocks in address order; what must not be evicted now is pinned.
            size_bytes: Bytes requested.
            facts: About owners of blocks that are not pinned.

        Returns:
            Positions in ``blocks`` of a run of at least one owned block and no pinned one, or None: nothing can go. A
            run need not hold the request; the policy is asked again then.
        """
        ...
