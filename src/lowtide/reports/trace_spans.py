"""Who held which bytes for which executed ops, read from a trace.

    events   alloc v2   call a(v1) -> v2   call b(v2) -> v3   free v2   call c(v3) -> v4
    op                  0                  1                            2
    v2                  ■──────────────────■                            gone before op 2

Calls that bring leaves are no ops. A trace with blocks says what lay where; of a trace without blocks the storages are
followed from the calls that make them to the evictions and releases that end them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from lowtide.ir import BlockKind, Call, Interval, Mark, MarkKind, Memory, MemoryKind, Trace
from lowtide.ir.trace_sizes import LEAF_OP, leaf_kind, size_by_value, workspace_bytes
from lowtide.reports.report import Span, SpanKind
from lowtide.units import Bytes

__all__ = ["spans_of_trace"]


def spans_of_trace(trace: Trace) -> tuple[Span, ...]:
    """What was held for which ops, by the op at which it begins; with offsets where the trace has blocks.

    Args:
        trace: One that the referee accepts.

    Raises:
        FormatError: A trace without blocks that lacks the size of a value.
    """
    has_blocks = any(isinstance(event, Memory) for event in trace.events)
    spans = _Blocks(trace).spans() if has_blocks else _Storages(trace).spans()
    return tuple(sorted(spans, key=lambda span: span.interval.start))


@dataclass(frozen=True, slots=True)
class _Open:
    """A span whose end is not known yet."""

    name: str
    occurrence: int
    start: int
    size_bytes: Bytes
    offset: Bytes | None = None
    is_scratch: bool = False


class _Spans:
    """Collects spans, and knows who made each value."""

    def __init__(self, trace: Trace) -> None:
        self.events = trace.events
        self.op = 0
        self._maker_by_value: dict[str, tuple[SpanKind, str, str]] = {}
        self._spans: list[Span] = []
        for event in trace.events:
            if isinstance(event, Call) and not event.recompute:
                self._note_maker(event)

    def _note_maker(self, call: Call) -> None:
        is_leaf = call.op == LEAF_OP
        module = call.meta.get("module")
        maker = f"{leaf_kind(call)} input" if is_leaf else call.op
        kind = SpanKind.INPUT if is_leaf else SpanKind.FIRST
        for name in call.outputs:
            self._maker_by_value.setdefault(name, (kind, maker, module if isinstance(module, str) else ""))

    def close(self, held: _Open) -> None:
        """Add a span that ends before the op of now."""
        if held.start >= self.op or not held.size_bytes:
            return
        kind, maker, module = self._maker_by_value.get(held.name, (SpanKind.INPUT, "held before the trace", ""))
        if held.is_scratch:
            kind, maker = SpanKind.WORKSPACE, "scratch" if maker == "held before the trace" else maker
        elif held.occurrence and kind is SpanKind.FIRST:
            kind = SpanKind.RECOMPUTED
        self._spans.append(
            Span(
                name=held.name,
                occurrence=held.occurrence,
                interval=Interval(held.start, self.op),
                size_bytes=held.size_bytes,
                kind=kind,
                maker=maker,
                module=module,
                offset=held.offset,
            )
        )


class _Blocks(_Spans):
    """Spans of a trace with blocks: from each alloc to its free."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace)
        self._held_by_id: dict[str, _Open] = {}
        self._num_allocs: Counter[str] = Counter()
        self._moved: _Open | None = None
        self._is_moving = False

    def spans(self) -> list[Span]:
        """Go through the events."""
        made_last: frozenset[str] = frozenset()  # outputs of the op just executed: their blocks may come after it
        for event in self.events:
            if isinstance(event, Call):
                made_last = frozenset(event.outputs)
                self.op += event.op != LEAF_OP
            elif isinstance(event, Memory):
                if event.event is MemoryKind.ALLOC:
                    self._take(event, self.op - 1 if self.op and event.id in made_last else self.op)
                else:
                    self._give_back(event)
            elif event.event is MarkKind.MOVE:
                self._is_moving = True
        for held in self._held_by_id.values():
            self.close(held)
        return self._spans

    def _take(self, block: Memory, start: int) -> None:
        occurrence = self._num_allocs[block.id]
        if self._moved is None:
            self._num_allocs[block.id] += 1
        else:
            start, occurrence = self.op, self._moved.occurrence
        is_scratch = block.block is BlockKind.SCRATCH
        self._held_by_id[block.id] = _Open(block.id, occurrence, start, block.size_bytes, block.offset, is_scratch)
        self._moved, self._is_moving = None, False

    def _give_back(self, block: Memory) -> None:
        held = self._held_by_id.pop(block.id)
        self.close(held)
        self._moved = held if self._is_moving else None


class _Storages(_Spans):
    """Spans of a trace without blocks: from the call that makes a storage to the end of its last value."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace)
        self._sizes: Mapping[str, Bytes] = size_by_value(trace)
        self._storage_by_value: dict[str, str] = {}
        self._values_by_storage: dict[str, set[str]] = {}
        self._held_by_storage: dict[str, _Open] = {}
        self._num_made: Counter[str] = Counter()

    def spans(self) -> list[Span]:
        """Go through the events."""
        for event in self.events:
            if isinstance(event, Call):
                self._call(event)
            elif isinstance(event, Mark) and event.event in (MarkKind.EVICT, MarkKind.RELEASE):
                self._end_value(event.id)
        for held in self._held_by_storage.values():
            self.close(held)
        return self._spans

    def _call(self, call: Call) -> None:
        for name in call.outputs:
            storage = self._source_of(call, name)
            if name in self._storage_by_value and storage == name and name in self._held_by_storage:
                continue  # still held: the fresh copy is dropped at once
            if storage == name:
                start = self.op
                self._held_by_storage[name] = _Open(name, self._num_made[name], start, self._sizes.get(name, 0))
                self._num_made[name] += 1
            self._storage_by_value[name] = storage
            self._values_by_storage.setdefault(storage, set()).add(name)
        scratch_bytes = workspace_bytes(call)
        self.op += call.op != LEAF_OP
        if scratch_bytes and call.outputs:
            self.close(_Open(call.outputs[0], 0, self.op - 1, scratch_bytes, is_scratch=True))
        for name in call.overwrites_by_output.values():
            self._values_by_storage.get(self._storage_by_value.get(name, name), set()).discard(name)

    def _source_of(self, call: Call, name: str) -> str:
        source = name
        for _ in call.outputs:  # a chain of aliases is no longer than the outputs
            source = call.alias_by_output.get(source, source)
        source = call.overwrites_by_output.get(source, source)
        return source if source in call.outputs else self._storage_by_value.get(source, source)

    def _end_value(self, name: str) -> None:
        storage = self._storage_by_value.get(name, name)
        values = self._values_by_storage.get(storage, set())
        values.discard(name)
        if not values and storage in self._held_by_storage:
            self.close(self._held_by_storage.pop(storage))
