"""Sizes in a trace: how many bytes each value owns, and how many are alive when.

A recording made without a budget has no blocks, so its calls carry the sizes in their ``meta`` (see
docs/decisions/trace-recording.md):

    {"size_bytes": {value: bytes}}      outputs that own storage, rounded up to the trace's alignment
    {"workspace_bytes": bytes}          scratch bytes of the call, where they are known

Values that no op produced come from a pseudo call of op :data:`LEAF_OP`, whose meta also says their ``kind``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from lowtide.errors import FormatError
from lowtide.ir.graph import InputKind
from lowtide.ir.trace import Call, Mark, MarkKind, Memory, MemoryKind, Trace
from lowtide.units import MAX_BYTES

__all__ = [
    "LEAF_OP",
    "TraceMemory",
    "leaf_kind",
    "memory_of_trace",
    "size_by_output",
    "size_by_value",
    "workspace_bytes",
]

LEAF_OP = "lowtide.leaf"
"""Op of the pseudo call that brings values which no op produced: parameters, buffers, inputs, constants, state."""


@dataclass(frozen=True, slots=True)
class TraceMemory:
    """Bytes alive in a trace if nothing is evicted: what the program itself holds.

    Attributes:
        memory_bytes: After each event: bytes of all storages that are not released, leaves and the workspace of the
            call itself included.
        peak_bytes: The largest of them; 0 without events.
        end_bytes: Bytes of what is never released, e.g. weights, gradients and optimizer state of a training step.
    """

    memory_bytes: tuple[int, ...]
    peak_bytes: int
    end_bytes: int


def size_by_output(call: Call) -> Mapping[str, int]:
    """Bytes of the storages that a call's outputs own, as its meta says; empty where it says nothing.

    Raises:
        FormatError: The meta holds something else than sizes of the call's outputs.
    """
    sizes = call.meta.get("size_bytes", {})
    if not isinstance(sizes, Mapping):
        raise FormatError(f"call {call.op!r}: meta.size_bytes must be an object of bytes by value")
    outputs = set(call.outputs)
    for name, size_bytes in sizes.items():
        if name not in outputs:
            raise FormatError(f"call {call.op!r}: meta.size_bytes names {name!r}, which is none of its outputs")
        _check_size(f"call {call.op!r}: meta.size_bytes of {name!r}", size_bytes)
    return sizes


def workspace_bytes(call: Call) -> int:
    """Scratch bytes of a call, as its meta says; 0 where it says nothing.

    Raises:
        FormatError: The meta holds something else than a size.
    """
    size_bytes = call.meta.get("workspace_bytes", 0)
    _check_size(f"call {call.op!r}: meta.workspace_bytes", size_bytes)
    return int(size_bytes)


def leaf_kind(call: Call) -> InputKind:
    """What a leaf call brings; ``user`` where its meta does not say.

    Raises:
        FormatError: The meta names no kind of input.
    """
    kind = call.meta.get("kind", InputKind.USER)
    if kind not in set(InputKind):
        raise FormatError(f"call {call.op!r}: meta.kind {str(kind)[:40]!r} must be one of {', '.join(InputKind)}")
    return InputKind(kind)


def size_by_value(trace: Trace) -> dict[str, int]:
    """Bytes that each value owns: from the calls' meta, or else from its first block; 0 for aliases.

    Raises:
        FormatError: A value that owns storage has no size.
    """
    sizes: dict[str, int] = {}
    for event in trace.events:
        if isinstance(event, Memory) and event.event is MemoryKind.ALLOC:
            sizes.setdefault(event.id, event.size_bytes)
    calls = [event for event in trace.events if isinstance(event, Call)]
    for call in calls:
        sizes.update(size_by_output(call))
    for call in calls:
        for name in call.outputs:
            is_owner = name not in call.alias_by_output and name not in call.overwrites_by_output
            if is_owner and name not in sizes:
                raise FormatError(
                    f"value {name!r} of call {call.op!r} has neither meta.size_bytes nor a block: record it again"
                )
            sizes.setdefault(name, 0)
    return sizes


def memory_of_trace(trace: Trace) -> TraceMemory:
    """Count the bytes that the program holds at each event, evictions and recomputations left out.

    A storage is alive from the call that allocates it until every value on it is released.

    Raises:
        FormatError: A value that owns storage has no size, or a call shares or overwrites an unknown value.
    """
    sizes = size_by_value(trace)
    storage_by_value: dict[str, str] = {}
    num_values: Counter[str] = Counter()
    memory: list[int] = []
    resident_bytes = 0
    for event in trace.events:
        scratch_bytes = 0
        if isinstance(event, Call) and not event.recompute:
            scratch_bytes = workspace_bytes(event)
            for name in event.outputs:
                storage_by_value[name] = storage = _storage_of(event, name, storage_by_value)
                num_values[storage] += 1
                resident_bytes += sizes[name] if storage == name else 0
        elif isinstance(event, Mark) and event.event is MarkKind.RELEASE:
            storage = storage_by_value.get(event.id, event.id)
            num_values[storage] -= 1
            resident_bytes -= sizes.get(storage, 0) if num_values[storage] == 0 else 0
        memory.append(resident_bytes + scratch_bytes)
    return TraceMemory(tuple(memory), peak_bytes=max(memory, default=0), end_bytes=resident_bytes)


def _storage_of(call: Call, name: str, storage_by_value: Mapping[str, str]) -> str:
    source = name
    for _ in call.outputs:  # a chain of aliases is no longer than the outputs
        source = call.alias_by_output.get(source, source)
    source = call.overwrites_by_output.get(source, source)
    if source in call.outputs:
        return source
    if source not in storage_by_value:
        raise FormatError(f"call {call.op!r}: {name!r} shares the storage of {source!r}, which nothing made before")
    return storage_by_value[source]


def _check_size(where: str, size_bytes: object) -> None:
    if isinstance(size_bytes, bool) or not isinstance(size_bytes, int) or not 0 <= size_bytes <= MAX_BYTES:
        raise FormatError(f"{where} {str(size_bytes)[:40]!r} must be a whole number of bytes from 0 to 2^53-1")
