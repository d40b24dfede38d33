"""Addresses: where in the arena each storage instance lies, and for which steps.

offset
  ▲   ┌───────────────┐
8 │   │ conv1.out #0  │┌──────────┐
4 │   └───────────────┘│ relu #1  │
  │ ┌───────┐          └──────────┘
0 │ │ x #0  │
  └─┴───────┴──────────────────────▶ step
"""

from __future__ import annotations

from dataclasses import dataclass

from lowtide.ir.interval import Interval

__all__ = ["Layout", "Lifespan", "Placement"]


@dataclass(frozen=True, slots=True)
class Placement:
    """Address of one storage instance, or of the workspace of one execution.

    Attributes:
        name: The value that owns the instance; for a workspace, the node.
        occurrence: How many times that value's node had been computed before (0 for graph inputs).
        offset: Distance from the arena's start, in bytes.
        size_bytes: Bytes of the instance.
        is_workspace: Whether ``name`` is a node and the bytes are its scratch.
    """

    name: str
    occurrence: int
    offset: int
    size_bytes: int
    is_workspace: bool = False


@dataclass(frozen=True, slots=True)
class Lifespan:
    """For which steps one storage instance, or the workspace of one execution, needs an address.

    Attributes:
        name: The value that owns the instance; for a workspace, the node.
        occurrence: How many times that value's node had been computed before (0 for graph inputs).
        interval: From its compute step to the step before the one that evicts its last value.
        size_bytes: Bytes of the instance.
        is_workspace: Whether ``name`` is a node and the bytes are its scratch.
    """

    name: str
    occurrence: int
    interval: Interval
    size_bytes: int
    is_workspace: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """One placement per allocated instance, in any order."""

    placements: tuple[Placement, ...]

    @property
    def footprint_bytes(self) -> int:
        """Highest address used."""
        return max((placement.offset + placement.size_bytes for placement in self.placements), default=0)
