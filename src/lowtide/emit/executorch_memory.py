"""Addresses of a plan in ExecuTorch's planned buffer.

┌──────────┐ planned: at its offset          the rest, if ExecuTorch should add tensors of its own:
│ conv     │ ┌────────┐                      the lowest gap among those that live at the same time
└──────────┘ └────────┘ ░░ added
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lowtide.errors import LayoutRejected

__all__ = ["AddressBook"]

_BUFFER = 1
"""Number of the planned buffer; buffer 0 is for constants."""


class AddressBook:
    """Prescribed offsets, as an algorithm for ExecuTorch's ``MemoryPlanningPass``.

    Attributes:
        padding_bytes: What ExecuTorch wanted behind the last tensor.
    """

    def __init__(self, offsets: Iterable[tuple[Any, int]]) -> None:
        self._placed = list(offsets)  # holds the specs, so that their ids stay theirs
        self.padding_bytes = 0
        self._offset_by_spec = {id(spec): offset for spec, offset in self._placed}

    def place(
        self, alignment: int, specs: Iterable[Any], graph_module: Any, graph_signature: Any, extra_padding: int
    ) -> list[int]:
        """Give every tensor its address; ExecuTorch has told each for which of its nodes it lives.

        Args:
            alignment: Of offsets, in bytes.
            specs: The tensors.
            graph_module: Not needed.
            graph_signature: Not needed.
            extra_padding: Bytes that some delegates want behind the last tensor.

        Returns:
            Bytes of the constants' buffer, which is none, and of the planned buffer.

        Raises:
            LayoutRejected: Two tensors that live at the same time share an address: lowtide's mistake.
        """
        del graph_module, graph_signature
        self.padding_bytes = extra_padding
        all_specs = list(specs)
        for spec in all_specs:
            spec.realign(alignment)
        prescribed = [spec for spec in all_specs if id(spec) in self._offset_by_spec]
        placed: list[Any] = []
        for spec in [*prescribed, *(spec for spec in all_specs if id(spec) not in self._offset_by_spec)]:
            spec.mem_id = _BUFFER
            beside = [other for other in placed if _lives_beside(other, spec)]
            spec.mem_offset = self._offset_by_spec.get(id(spec), None)
            if spec.mem_offset is None:
                spec.mem_offset = _lowest_gap(spec, beside)
            _check_disjoint(spec, beside)
            placed.append(spec)
        return [0, max((_end(spec) for spec in placed), default=0) + extra_padding]


def _lives_beside(first: Any, second: Any) -> bool:
    return bool(first.lifetime[0] <= second.lifetime[1] and second.lifetime[0] <= first.lifetime[1])


def _lowest_gap(wanted: Any, beside: list[Any]) -> int:
    offset = 0
    for other in sorted(beside, key=lambda spec: spec.mem_offset):
        if other.mem_offset - offset >= wanted.allocated_memory:
            break
        offset = max(offset, _end(other))
    return offset


def _check_disjoint(spec: Any, beside: list[Any]) -> None:
    for other in beside:
        if spec.mem_offset < _end(other) and other.mem_offset < _end(spec):
            raise LayoutRejected(
                "disjoint", f"ExecuTorch has {spec} and {other} alive at once, both at offset {spec.mem_offset}"
            )


def _end(spec: Any) -> int:
    return int(spec.mem_offset + spec.allocated_memory)
