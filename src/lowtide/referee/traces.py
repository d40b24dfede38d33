"""Checks a trace: what was placed where, and whether its events could have happened in that order.

Ids are those of values; a block has the id of the value whose execution allocated it. Whether a call's blocks are
taken before or after its event is left to the writer: what counts is that a value has its bytes when it is read.
Values that are never allocated in the trace (parameters, tensors of 0 bytes) lie outside the arena.
A value that took over another's block may be moved, too: the block goes by its id from then on.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from dataclasses import dataclass

from lowtide.errors import TraceRejected
from lowtide.ir import BlockKind, Call, Mark, MarkKind, Memory, MemoryKind, Trace

__all__ = ["TraceFigures", "check_trace"]


@dataclass(frozen=True, slots=True)
class TraceFigures:
    """The figures of a legal trace, recomputed from scratch.

    Attributes:
        peak_bytes: Most bytes of all blocks at any event.
        footprint_bytes: Highest address used.
        duration: Sum of the costs of all calls.
        num_calls: Executions.
        num_recomputes: Executions beyond the first.
        num_evictions: Evict events.
    """

    peak_bytes: int
    footprint_bytes: int
    duration: int
    num_calls: int
    num_recomputes: int
    num_evictions: int


def check_trace(trace: Trace) -> TraceFigures:
    """Check a trace: placements disjoint, aligned, inside capacity; frees match; events in a legal order.

    Args:
        trace: What happened. Where it has no allocations, placements and the residency of inputs cannot be checked.

    Returns:
        Its figures.

    Raises:
        TraceRejected: The first rule that is broken; its step is the position of the event, 0-based.
    """
    if trace.alignment < 1:
        raise TraceRejected("alignment", f"alignment {trace.alignment} must be at least 1 byte")
    arena = _Arena(trace)
    values = _Values(trace, arena)
    for position, event in enumerate(trace.events):
        arena.position = position
        if isinstance(event, Memory):
            values.move_memory(event)
        elif isinstance(event, Call):
            values.call(event)
        else:
            values.mark(event)
    values.check_end()
    calls = [event for event in trace.events if isinstance(event, Call)]
    return TraceFigures(
        peak_bytes=arena.peak_bytes,
        footprint_bytes=arena.footprint_bytes,
        duration=sum(call.cost for call in calls),
        num_calls=len(calls),
        num_recomputes=sum(call.recompute for call in calls),
        num_evictions=sum(isinstance(event, Mark) and event.event is MarkKind.EVICT for event in trace.events),
    )


class _Arena:
    """The blocks of the moment."""

    def __init__(self, trace: Trace) -> None:
        self.position = 0
        self.peak_bytes = 0
        self.footprint_bytes = 0
        self.block_by_id: dict[str, Memory] = {}
        self._trace = trace
        self._taken: list[tuple[int, int, str]] = []  # offset, end, id; without blocks of 0 bytes
        self._taken_bytes = 0

    def broken(self, rule: str, message: str) -> TraceRejected:
        return TraceRejected(rule, message, step=self.position)

    def take(self, block: Memory) -> None:
        end = block.offset + block.size_bytes
        capacity_bytes = self._trace.capacity_bytes
        if block.id in self.block_by_id:
            raise self.broken("alloc-once", f"{_name(block)} already has a block: free it first")
        if block.offset < 0 or block.size_bytes < 0 or block.offset % self._trace.alignment:
            raise self.broken("aligned", f"{_name(block)} is no aligned block (alignment {self._trace.alignment})")
        if capacity_bytes is None:
            raise self.broken("capacity", f"{_name(block)} is allocated, but the trace has no capacity_bytes")
        if end > capacity_bytes:
            raise self.broken("capacity", f"{_name(block)} ends above the capacity {capacity_bytes}")
        self.block_by_id[block.id] = block
        self.footprint_bytes = max(self.footprint_bytes, end)
        if block.size_bytes:
            self._insert((block.offset, end, block.id))

    def _insert(self, entry: tuple[int, int, str]) -> None:
        position = bisect_left(self._taken, entry)
        for neighbour in self._taken[max(position - 1, 0) : position + 1]:
            if max(neighbour[0], entry[0]) < min(neighbour[1], entry[1]):
                block, other = self.block_by_id[entry[2]], self.block_by_id[neighbour[2]]
                raise self.broken("disjoint", f"{_name(block)} and {_name(other)} share bytes")
        insort(self._taken, entry)
        self._taken_bytes += entry[1] - entry[0]
        self.peak_bytes = max(self.peak_bytes, self._taken_bytes)

    def give_back(self, block: Memory) -> None:
        taken = self.block_by_id.pop(block.id, None)
        if taken is None:
            raise self.broken("free-matches", f"{_name(block)} is freed, but has no block")
        if (taken.offset, taken.size_bytes, taken.block) != (block.offset, block.size_bytes, block.block):
            raise self.broken("free-matches", f"{_name(block)} is freed, but {_name(taken)} is what was allocated")
        if taken.size_bytes:
            entry = (taken.offset, taken.offset + taken.size_bytes, taken.id)
            del self._taken[bisect_left(self._taken, entry)]
            self._taken_bytes -= taken.size_bytes


class _Values:
    """Which values exist, on whose bytes, and what may be done to them."""

    def __init__(self, trace: Trace, arena: _Arena) -> None:
        self._arena = arena
        self._placed = {
            event.id for event in trace.events if isinstance(event, Memory) and event.event is MemoryKind.ALLOC
        }
        self._storage_by_id: dict[str, str] = {}
        self._values_by_storage: dict[str, set[str]] = {}
        self._gone: set[str] = set()  # evicted, freed or overwritten since they were last computed
        self._released: set[str] = set()
        self._produced: set[str] = set()
        self._known: set[str] = set()
        self._num_pins: Counter[str] = Counter()
        self._moving: dict[str, MemoryKind] = {}  # what a moved id must do next
        self._new_id: dict[str, str] = {}  # by the id of a block that is being moved: the one it gets
        self._overwriting: set[str] = set()

    def move_memory(self, event: Memory) -> None:
        expected = self._moving.get(event.id)
        if expected is not None and event.event is not expected:
            raise self._arena.broken("move", f"{_name(event)} is moved: its {expected} comes next, not {event.event}")
        if event.event is MemoryKind.ALLOC:
            self._known.add(event.id)
            self._arena.take(event)
            if self._moving.pop(event.id, None) is not None:
                self._rename(event.id)
            return
        pinned = [name for name in self._values_on(event.id) if self._num_pins[name]]
        if pinned and event.block is not BlockKind.SCRATCH:
            raise self._arena.broken("pinned", f"{_name(event)} is freed while value {min(pinned)!r} is pinned")
        self._arena.give_back(event)
        if expected is not None:
            del self._moving[event.id]
            self._moving[self._new_id[event.id]] = MemoryKind.ALLOC
        else:
            self._gone.update(self._values_on(event.id))

    def call(self, call: Call) -> None:
        self._check_links(call)
        for name in call.inputs:
            if self._placed and not self._is_resident(name):
                raise self._arena.broken("inputs-resident", f"input {name!r} of {call.op!r} is not resident")
            if name in self._released and not call.recompute:
                raise self._arena.broken("released", f"input {name!r} of {call.op!r} was released before")
        for name in call.outputs:
            if call.recompute != (name in self._produced):
                was = "was never computed before" if call.recompute else "was computed before"
                raise self._arena.broken(
                    "recompute", f"output {name!r} of {call.op!r} {was}: recompute is {call.recompute}"
                )
        self._bind(call)

    def mark(self, mark: Mark) -> None:
        name = mark.id
        if name not in self._known:
            raise self._arena.broken(
                "known", f"value {name!r} has {mark.event}, but was neither computed nor allocated"
            )
        if mark.event is MarkKind.RELEASE:
            if name in self._released:
                raise self._arena.broken("released", f"value {name!r} is released twice")
            self._released.add(name)
            return
        if mark.event is MarkKind.UNPIN:
            if not self._num_pins[name]:
                raise self._arena.broken("pin-matches", f"value {name!r} is unpinned, but not pinned")
            self._num_pins[name] -= 1
            return
        if not self._is_resident(name):
            raise self._arena.broken(f"{mark.event}-resident", f"value {name!r} has {mark.event}, but is not resident")
        if mark.event is MarkKind.PIN:
            self._num_pins[name] += 1
        elif self._num_pins[name]:
            raise self._arena.broken("pinned", f"value {name!r} has {mark.event} while it is pinned")
        elif mark.event is MarkKind.EVICT:
            self._gone.add(name)
        else:
            self._start_move(name)

    def check_end(self) -> None:
        for name in sorted(self._moving):
            raise TraceRejected("move", f"value {name!r} is moved, but the trace ends before its free and alloc")

    def _start_move(self, name: str) -> None:
        storage = self._storage_by_id.get(name, name)
        if storage not in self._arena.block_by_id or (storage != name and name not in self._overwriting):
            raise self._arena.broken("move", f"value {name!r} is moved, but has no block of its own")
        self._moving[storage] = MemoryKind.FREE
        self._new_id[storage] = name

    def _rename(self, name: str) -> None:
        """A block has been moved, and from now on goes by the id of the value that overwrote its first one."""
        storage = next(old for old, new in self._new_id.items() if new == name)
        del self._new_id[storage]
        if storage != name:
            for value in sorted(self._values_on(storage) - self._gone):
                self._refer(value, name)

    def _is_resident(self, name: str) -> bool:
        storage = self._storage_by_id.get(name, name)
        has_bytes = storage not in self._placed or storage in self._arena.block_by_id
        return name not in self._gone and has_bytes

    def _values_on(self, storage: str) -> set[str]:
        return self._values_by_storage.get(storage, {storage})

    def _check_links(self, call: Call) -> None:
        outputs, sources = set(call.outputs), {*call.inputs, *call.outputs}
        if len(outputs) != len(call.outputs):
            raise self._arena.broken("outputs", f"{call.op!r} names an output twice")
        for output, source in call.alias_by_output.items():
            if output not in outputs or source not in sources or output == source:
                raise self._arena.broken("alias", f"{call.op!r}: {output!r} cannot be an alias of {source!r} here")
        for output, source in call.overwrites_by_output.items():
            if output not in outputs or source not in call.inputs or output in call.alias_by_output:
                raise self._arena.broken("overwrites", f"{call.op!r}: {output!r} cannot overwrite {source!r} here")

    def _bind(self, call: Call) -> None:
        self._known.update(call.inputs, call.outputs)
        self._overwriting.update(call.overwrites_by_output)
        for source in call.overwrites_by_output.values():
            self._gone.update(self._values_on(self._storage_by_id.get(source, source)) | {source})
        for output in call.outputs:
            self._refer(output, self._storage_of_output(call, output))
            self._gone.discard(output)
            self._produced.add(output)

    def _storage_of_output(self, call: Call, output: str) -> str:
        name = output
        for _ in call.outputs:  # a chain of aliases is no longer than the outputs
            if name not in call.alias_by_output:
                break
            name = call.alias_by_output[name]
        if name in call.alias_by_output:
            raise self._arena.broken("alias", f"{call.op!r}: {output!r} is an alias of itself")
        source = call.overwrites_by_output.get(name, name)
        return source if source in call.outputs else self._storage_by_id.get(source, source)

    def _refer(self, name: str, storage: str) -> None:
        before = self._storage_by_id.get(name)
        if before is not None:
            self._values_by_storage[before].discard(name)
        self._storage_by_id[name] = storage
        self._values_by_storage.setdefault(storage, {storage}).add(name)


def _name(block: Memory) -> str:
    kind = "" if block.block is BlockKind.VALUE else f"{block.block} "
    return f"{kind}block {block.id!r:.200} at [{block.offset}, {block.offset + block.size_bytes})"
