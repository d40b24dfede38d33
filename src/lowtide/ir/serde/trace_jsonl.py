"""Traces as ``lowtide.trace`` JSON lines (version 1): a header, then one event a line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from lowtide.errors import FormatError
from lowtide.ir.serde.fields import Fields, as_id, read_items
from lowtide.ir.serde.files import compact_json, parse_json
from lowtide.ir.serde.graph_json import check_header
from lowtide.ir.trace import BlockKind, Call, Event, Mark, MarkKind, Memory, MemoryKind, Trace

__all__ = ["TRACE_VERSION", "trace_from_lines", "trace_to_lines"]

TRACE_VERSION = 1
_FORMAT = "lowtide.trace"


def trace_to_lines(trace: Trace) -> Iterator[str]:
    """The lines of a trace, each with its line feed."""
    header = {
        "format": _FORMAT,
        "version": TRACE_VERSION,
        "capacity_bytes": trace.capacity_bytes,
        "alignment": trace.alignment,
        "policy": trace.policy,
        "seed": trace.seed,
        "cost_model": trace.cost_model,
        **({"meta": dict(trace.meta)} if trace.meta else {}),
    }
    yield compact_json(header) + "\n"
    for event in trace.events:
        yield compact_json(_event_to_document(event)) + "\n"


def trace_from_lines(lines: Iterable[str], where: str) -> Trace:
    """Read a trace from its lines; empty lines are passed over.

    Raises:
        FormatError: A line breaks the format; the message has its number.
    """
    numbered = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
    first = next(numbered, None)
    if first is None:
        raise FormatError(f"{where}: empty, a trace begins with its header")
    header_where = f"{where}: line {first[0]}"
    with Fields(parse_json(first[1], header_where), header_where) as fields:
        check_header(fields, expected_format=_FORMAT, newest_version=TRACE_VERSION)
        header = {
            "capacity_bytes": fields.optional_whole("capacity_bytes"),
            "alignment": fields.whole("alignment", 1),
            "policy": fields.optional_text("policy"),
            "seed": fields.whole("seed", 0),
            "cost_model": fields.text("cost_model", ""),
            "meta": fields.meta(),
        }
    events = tuple(
        _read_event(parse_json(line, f"{where}: line {number}"), f"{where}: line {number}") for number, line in numbered
    )
    return Trace(events=events, **header)  # type: ignore[arg-type]  # one dict of the header's fields, typed above


def _event_to_document(event: Event) -> dict[str, Any]:
    if isinstance(event, Mark):
        return {"t": str(event.event), "id": event.id}
    if isinstance(event, Memory):
        return {
            "t": str(event.event),
            "id": event.id,
            "offset": event.offset,
            "size": event.size_bytes,
            "kind": str(event.block),
        }
    return {
        "t": "call",
        "op": event.op,
        "in": list(event.inputs),
        "out": list(event.outputs),
        "alias": dict(event.alias_by_output),
        "overwrites": dict(event.overwrites_by_output),
        "cost": event.cost,
        "rng": event.rng,
        "backward": event.backward,
        "recompute": event.recompute,
        **({"meta": dict(event.meta)} if event.meta else {}),
    }


def _read_event(document: Any, where: str) -> Event:
    with Fields(document, where) as fields:
        kind = fields.text("t")
        if kind == "call":
            return _read_call(fields, where)
        if kind in set(MemoryKind):
            block = fields.text("kind", "value")
            if block not in set(BlockKind):
                raise FormatError(f"{where}: kind {block[:40]!r} must be one of {', '.join(BlockKind)}")
            return Memory(
                event=MemoryKind(kind),
                id=as_id(fields.raw("id"), where),
                offset=fields.whole("offset"),
                size_bytes=fields.whole("size"),
                block=BlockKind(block),
            )
        if kind in set(MarkKind):
            return Mark(event=MarkKind(kind), id=as_id(fields.raw("id"), where))
        known = ", ".join(["call", *MemoryKind, *MarkKind])
        raise FormatError(f"{where}: event {kind[:40]!r} must be one of {known}")


def _read_call(fields: Fields, where: str) -> Call:
    return Call(
        op=fields.text("op"),
        inputs=read_items(fields.raw("in"), f"{where}: in", as_id),
        outputs=read_items(fields.raw("out"), f"{where}: out", as_id),
        alias_by_output=fields.text_by_text("alias"),
        overwrites_by_output=fields.text_by_text("overwrites"),
        cost=fields.whole("cost", 0),
        rng=fields.flag("rng", default=False),
        backward=fields.flag("backward", default=False),
        recompute=fields.flag("recompute", default=False),
        meta=fields.meta(),
    )
