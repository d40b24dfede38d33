"""What TensorFlow Lite Micro's allocator makes of a .tflite file: which tensors live when, and where it puts them.

    scope 0   inputs and outputs come into being        1 + i   operator i; its outputs begin here, scratch lives here
    end       the last operator's scope; outputs live until then

Buffers go in by falling size, each into the lowest gap among those that live at the same time; offsets that the file
prescribes (metadata ``OfflineMemoryAllocation``) are taken as they are and first. That is the runtime's
``GreedyMemoryPlanner`` (Apache-2.0, tensorflow/tflite-micro, micro_allocation_info.cc and greedy_memory_planner.cc),
described here by what it does: of two buffers of one size, the one added later goes first. Results of operators that
unpack weights (see ``folded_operators``) count as persistent: the runtime has no kernels for these operators anyway.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lowtide.importers.tflite_file import TfliteFile, text_of
from lowtide.importers.tflite_ops import folded_operators, present, scratch_bytes
from lowtide.importers.tflite_tensors import aligned, holds_data, tensor_bytes
from lowtide.ir import Interval

__all__ = ["OFFLINE_METADATA", "MicroArena", "arena_lives", "micro_arena", "offline_offsets"]

OFFLINE_METADATA = "OfflineMemoryAllocation"
"""Name of the metadata that prescribes offsets."""

_ONLINE = -1
_NUM_HEADER_WORDS = 3


@dataclass(frozen=True, slots=True)
class MicroArena:
    """The non-persistent part of the arena, before the first inference.

    Attributes:
        head_bytes: Its size: tensors and scratch.
        tensors_bytes: The highest address that a tensor uses.
        live_bytes: Most bytes that live at one operator; ``head_bytes`` is never below.
        offsets: Of every tensor, or None for those that lie in flash or in the persistent part.
        is_prescribed: Whether the file prescribes offsets.
    """

    head_bytes: int
    tensors_bytes: int
    live_bytes: int
    offsets: tuple[int | None, ...]
    is_prescribed: bool


@dataclass(frozen=True, slots=True)
class _Buffer:
    """What needs an address: bytes, the first and the last scope of its life, and the prescribed offset or -1."""

    size_bytes: int
    first: int
    last: int
    offline: int


def offline_offsets(file: TfliteFile) -> tuple[int, ...] | None:
    """The offsets that a file prescribes, one per tensor (-1: none for it), or None without that metadata."""
    found = None
    num_tensors = len(file.subgraph.tensors)
    for metadata in file.model.metadata or []:
        if text_of(metadata.name) != OFFLINE_METADATA:
            continue
        data = file.model.buffers[metadata.buffer].data
        raw = b"" if data is None else bytes(data)
        words = np.frombuffer(raw[: 4 * (len(raw) // 4)], dtype="<i4")[_NUM_HEADER_WORDS:]
        if len(words) >= num_tensors:
            found = tuple(int(word) for word in words[:num_tensors])
    return found


def micro_arena(file: TfliteFile) -> MicroArena:
    """Place a file's tensors as TensorFlow Lite Micro does.

    Raises:
        FormatError: A tensor has no size.
    """
    prescribed = offline_offsets(file)
    owners, buffers = _buffers(file, prescribed)
    placed = _place(buffers)
    offsets: list[int | None] = [None] * len(file.subgraph.tensors)
    for owner, offset in zip(owners, placed, strict=False):  # scratch buffers follow and belong to no tensor
        offsets[owner] = offset
    tops = [offset + buffer.size_bytes for buffer, offset in zip(buffers, placed, strict=True)]
    return MicroArena(
        head_bytes=max(tops, default=0),
        tensors_bytes=max(tops[: len(owners)], default=0),
        live_bytes=_live_bytes(buffers),
        offsets=tuple(offsets),
        is_prescribed=prescribed is not None,
    )


def arena_lives(file: TfliteFile) -> dict[int, Interval]:
    """The scopes in which each tensor of the arena lives, in the file's order; those that nothing touches: [-1, 0)."""
    operators = [] if file.subgraph.operators is None else file.subgraph.operators
    first: dict[int, int] = dict.fromkeys((*present(file.subgraph.inputs), *present(file.subgraph.outputs)), 0)
    last = dict(first)
    for scope, operator in enumerate(operators, start=1):
        for index in present(operator.outputs):
            first[index] = scope
        for index in (*present(operator.inputs), *present(operator.outputs)):
            last[index] = scope
    last.update(dict.fromkeys(present(file.subgraph.outputs), len(operators)))
    persistent = {index for position in folded_operators(file)[0] for index in present(operators[position].outputs)}
    return {
        index: Interval(first.get(index, -1), last.get(index, -1) + 1)
        for index, tensor in enumerate(file.subgraph.tensors)
        if index not in persistent
        and not holds_data(file, index)
        and not tensor.isVariable
        and tensor_bytes(file, index)
    }


def _buffers(file: TfliteFile, prescribed: Sequence[int] | None) -> tuple[list[int], list[_Buffer]]:
    """Tensors in the arena, then scratch."""
    lives = arena_lives(file)
    buffers = [
        _Buffer(
            size_bytes=aligned(tensor_bytes(file, index)),
            first=life.start,
            last=life.end - 1,
            offline=_ONLINE if prescribed is None else prescribed[index],
        )
        for index, life in lives.items()
    ]
    for scope, operator in enumerate(file.subgraph.operators or (), start=1):
        buffers += [_Buffer(size, scope, scope, _ONLINE) for size in scratch_bytes(file, operator)]
    return list(lives), buffers


def _place(buffers: Sequence[_Buffer]) -> list[int]:
    """Offset of every buffer."""
    prescribed = [index for index, buffer in enumerate(buffers) if buffer.offline != _ONLINE]
    free = [index for index, buffer in enumerate(buffers) if buffer.offline == _ONLINE]
    free.sort(key=lambda index: (-buffers[index].size_bytes, -index))
    offsets = [0] * len(buffers)
    by_offset: list[tuple[int, int, int]] = []  # offset, when it was placed, which: sorted as they lie
    for rank, index in enumerate([*prescribed, *free]):
        buffer = buffers[index]
        offset = buffer.offline if buffer.offline != _ONLINE else _lowest_gap(buffer, buffers, by_offset)
        offsets[index] = offset
        insort(by_offset, (offset, rank, index))
    return offsets


def _lowest_gap(wanted: _Buffer, buffers: Sequence[_Buffer], by_offset: Sequence[tuple[int, int, int]]) -> int:
    candidate = 0
    for offset, _, index in by_offset:
        other = buffers[index]
        if other.first > wanted.last or wanted.first > other.last:
            continue
        if offset - candidate >= wanted.size_bytes:
            break
        candidate = max(candidate, offset + other.size_bytes)
    return candidate


def _live_bytes(buffers: Sequence[_Buffer]) -> int:
    """Largest sum of sizes at one scope."""
    changes = sorted(
        change
        for buffer in buffers
        for change in ((buffer.first, buffer.size_bytes), (buffer.last + 1, -buffer.size_bytes))
    )
    live = most = 0
    for position, (scope, size) in enumerate(changes):
        live += size
        if position + 1 == len(changes) or changes[position + 1][0] != scope:
            most = max(most, live)
    return most
