"""From a trace to the graph that the planner can plan, and from a graph and its order to a trace.

    trace     leaf x   call a   call b   release a   call c          a recomputation, evictions, blocks: left out
    graph     input x  node a   node b               node c          outputs: what is never released

A trace says when the program let go of a value; a graph only says who reads it, and that what is left at the end are
its outputs. So a plan may drop a value earlier than the program did, right after its last use. :func:`trace_of_graph`
writes releases there: going to a graph and back moves them, and a second round changes nothing.

What a graph has beyond a trace stands in the ``meta`` of calls, under the names of the graph format (``node``,
``recomputable``, ``after``, ``recompute_inputs``, ``first_only``, ``unevictable``, ``evictable``), so that nothing is
lost. Where a trace says nothing of ``after``, draws of random numbers are chained, and a call that overwrites a value
comes after all calls that read it before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lowtide.errors import FormatError, InputError
from lowtide.ir import BOUNDARY_OP, Call, Compute, Event, Graph, Input, InputKind, Mark, MarkKind, Node, Trace, Value
from lowtide.ir.sequence import steps_from_sequence
from lowtide.ir.trace_sizes import LEAF_OP, leaf_kind, size_by_value, workspace_bytes
from lowtide.units import align_up

__all__ = ["graph_of_trace", "trace_of_graph"]


def graph_of_trace(trace: Trace, *, name: str | None = None) -> Graph:
    """The computation that a trace shows, each call once.

    Args:
        trace: A recording, with or without a budget; recomputations in it are left out.
        name: Name of the graph; by default the one in the trace's meta, or ``"trace"``.

    Returns:
        A graph in the order of the calls. Leaves are its inputs, with their kinds; its outputs are the values that are
        neither released nor overwritten. A leaf of kind ``user`` is evictable if the program released it. Calls are
        named ``op0``, ``op1``, ... unless their meta names the node.

    Raises:
        FormatError: A value has no size, or an annotation is of the wrong type.
        InputError: A call reads a value that nothing made.
        GraphError: The trace contradicts itself, e.g. it makes a value twice.
    """
    reader = _TraceReader(trace)
    for event in trace.events:
        if isinstance(event, Call) and not event.recompute:
            reader.read(event)
    given_name = trace.meta.get("name")
    unit = trace.meta.get("duration_unit", "ns")
    return Graph(
        name=name if name is not None else given_name if isinstance(given_name, str) else "trace",
        inputs=tuple(reader.inputs),
        nodes=tuple(reader.nodes),
        outputs=reader.outputs(),
        order=tuple(node.name for node in reader.nodes),
        duration_unit=unit if isinstance(unit, str) else "ns",
        alignment=trace.alignment,
        meta={"source": "trace", "cost_model": trace.cost_model},
    )


def trace_of_graph(graph: Graph, *, order: Sequence[str] | None = None, seed: int = 0) -> Trace:
    """The trace of carrying out a graph without recomputation.

    Args:
        graph: What is executed.
        order: Names of all nodes, each once; the graph's own by default.
        seed: For the trace's header.

    Returns:
        Leaf calls for all inputs, then the nodes in order. A value is released right after its last use, or when it is
        overwritten; graph outputs and unevictable values never.

    Raises:
        InputError: The order does not hold every node once.
    """
    sequence = graph.order if order is None else tuple(order)
    if sorted(sequence) != sorted(graph.order):
        raise InputError(f"the order has {len(sequence)} names, it must hold each of the {len(graph.order)} nodes once")
    return Trace(
        capacity_bytes=None,
        alignment=graph.alignment,
        policy=None,
        seed=seed,
        cost_model=f"graph durations ({graph.duration_unit})",
        events=tuple(_events_of_graph(graph, sequence)),
        meta={"source": "graph", "name": graph.name, "duration_unit": graph.duration_unit},
    )


# ---------------------------------------------------------------- trace to graph


class _TraceReader:
    """Turns calls into inputs and nodes, in the order in which they come."""

    def __init__(self, trace: Trace) -> None:
        self.inputs: list[Input] = []
        self.nodes: list[Node] = []
        self._alignment = trace.alignment
        self._sizes = size_by_value(trace)
        self._released = _marked(trace, MarkKind.RELEASE)
        self._pinned = _pinned_at_end(trace)
        self._storage_by_value: dict[str, str] = {}
        self._readers_by_storage: dict[str, dict[str, None]] = {}
        self._values_by_storage: dict[str, list[str]] = {}
        self._overwritten: set[str] = set()
        self._last_rng: str | None = None

    def read(self, call: Call) -> None:
        """Add what a call stands for."""
        if call.op == LEAF_OP:
            for name in call.outputs:
                self._add_input(name, leaf_kind(call), call.meta)
            return
        for name in call.inputs:
            self._know(name, call)
        node_name = _text(call, "node") or f"op{len(self.nodes)}"
        after = self._after(call, node_name)
        self._bind(call, node_name)
        unevictable, first_only = set(_texts(call, "unevictable")), set(_texts(call, "first_only"))
        outputs = [
            Value(
                name=name,
                size_bytes=self._own_bytes(call, name),
                alias_of=call.alias_by_output.get(name),
                overwrites=call.overwrites_by_output.get(name),
                first_only=name in first_only,
                evictable=name not in unevictable and name not in self._pinned,
            )
            for name in call.outputs
        ]
        self.nodes.append(
            Node(
                name=node_name,
                op=call.op,
                duration=call.cost,
                inputs=tuple(dict.fromkeys(call.inputs)),
                outputs=tuple(outputs),
                workspace_bytes=align_up(workspace_bytes(call), self._alignment),
                recomputable=_flag(call, "recomputable", default=call.op != BOUNDARY_OP),
                after=after,
                recompute_inputs=_texts(call, "recompute_inputs"),
                meta={key: True for key in ("backward", "rng") if getattr(call, key)},
            )
        )

    def outputs(self) -> tuple[str, ...]:
        """Values that are neither released nor overwritten; leaves only where the trace says that they are outputs."""
        made = [value.name for node in self.nodes for value in node.outputs]
        kept = [graph_input.name for graph_input in self.inputs if graph_input.evictable]
        gone = self._released | self._overwritten
        return tuple(name for name in [*kept, *made] if name not in gone)

    def _add_input(self, name: str, kind: InputKind, meta: Mapping[str, Any]) -> None:
        evictable = meta.get("evictable", kind is InputKind.USER and name in self._released)
        if not isinstance(evictable, bool):
            raise FormatError(f"leaf {name!r}: meta.evictable must be true or false, not {str(evictable)[:40]!r}")
        size_bytes = align_up(self._sizes[name], self._alignment)
        self.inputs.append(Input(name=name, size_bytes=size_bytes, kind=kind, evictable=evictable))
        self._storage_by_value[name] = name
        self._values_by_storage[name] = [name]

    def _know(self, name: str, call: Call) -> None:
        """A value that was allocated before the trace began is an input of the user's; any other must be known."""
        if name in self._storage_by_value:
            return
        if name not in self._sizes:
            raise InputError(f"call {call.op!r} reads {name!r}, which nothing made: bring it by a call of {LEAF_OP!r}")
        self._add_input(name, InputKind.USER, {})

    def _own_bytes(self, call: Call, name: str) -> int:
        if name in call.alias_by_output or name in call.overwrites_by_output:
            return 0
        return align_up(self._sizes[name], self._alignment)

    def _after(self, call: Call, node_name: str) -> tuple[str, ...]:
        """Which nodes come first: as the call says; or else the last random one, and who read what it writes to."""
        before: dict[str, None] = {}
        if call.rng:
            before.update({} if self._last_rng is None else {self._last_rng: None})
            self._last_rng = node_name
        for name in call.overwrites_by_output.values():
            before.update(self._readers_by_storage.get(self._storage_by_value.get(name, name), {}))
        return _texts(call, "after") if "after" in call.meta else tuple(before)

    def _bind(self, call: Call, node_name: str) -> None:
        """Note who shares, reads and overwrites which storage."""
        for name in call.inputs:
            self._readers_by_storage.setdefault(self._storage_by_value[name], {})[node_name] = None
        for name in call.overwrites_by_output.values():
            storage = self._storage_by_value.get(name, name)
            self._overwritten.update(self._values_by_storage.get(storage, ()))
            self._values_by_storage[storage] = []
            self._readers_by_storage[storage] = {node_name: None}
        ended = set(self._overwritten)
        waiting = list(call.outputs)
        for _ in call.outputs:  # siblings may alias one another in any order
            for name in tuple(waiting):
                source = call.overwrites_by_output.get(name) or call.alias_by_output.get(name, name)
                if source in waiting and source != name:
                    continue
                waiting.remove(name)
                storage = self._storage_by_value.get(source, source)
                self._storage_by_value[name] = storage
                self._values_by_storage.setdefault(storage, []).append(name)
                if name in call.alias_by_output and source in ended:
                    self._overwritten.add(name)  # a view of what this very call overwrites
                    ended.add(name)


def _marked(trace: Trace, kind: MarkKind) -> set[str]:
    return {event.id for event in trace.events if isinstance(event, Mark) and event.event is kind}


def _pinned_at_end(trace: Trace) -> set[str]:
    num_pins: Counter[str] = Counter()
    for event in trace.events:
        if isinstance(event, Mark) and event.event in (MarkKind.PIN, MarkKind.UNPIN):
            num_pins[event.id] += 1 if event.event is MarkKind.PIN else -1
    return {name for name, number in num_pins.items() if number > 0}


def _text(call: Call, key: str) -> str:
    value = call.meta.get(key, "")
    if not isinstance(value, str):
        raise FormatError(f"call {call.op!r}: meta.{key} must be text, not {str(value)[:40]!r}")
    return value


def _texts(call: Call, key: str) -> tuple[str, ...]:
    value = call.meta.get(key, ())
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise FormatError(f"call {call.op!r}: meta.{key} must be a list of names, not {str(value)[:40]!r}")
    return tuple(value)


def _flag(call: Call, key: str, *, default: bool) -> bool:
    value = call.meta.get(key, default)
    if not isinstance(value, bool):
        raise FormatError(f"call {call.op!r}: meta.{key} must be true or false, not {str(value)[:40]!r}")
    return value


# ---------------------------------------------------------------- graph to trace


def _events_of_graph(graph: Graph, sequence: Sequence[str]) -> Iterator[Event]:
    calls = {node.name: call for node, call in zip(graph.nodes, _calls_of(graph, sequence), strict=True)}
    storages = _Storages(graph)
    for graph_input in graph.inputs:
        meta = {"size_bytes": {graph_input.name: graph_input.size_bytes}, "kind": str(graph_input.kind)}
        yield Call(
            op=LEAF_OP,
            inputs=(),
            outputs=(graph_input.name,),
            meta={**meta, "evictable": graph_input.evictable},
        )
    for step in steps_from_sequence(graph, sequence):
        if isinstance(step, Compute):
            yield calls[step.node]
            for name in storages.ended_by(graph.node_by_name[step.node]):
                yield Mark(MarkKind.RELEASE, name)
        else:
            storages.release(step.value)
            yield Mark(MarkKind.RELEASE, step.value)


class _Storages:
    """Which values are alive on which storage, to tell what an overwriting call ends."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._storage_by_value = {graph_input.name: graph_input.name for graph_input in graph.inputs}
        self._alive_by_storage: dict[str, dict[str, None]] = {name: {name: None} for name in self._storage_by_value}

    def release(self, name: str) -> None:
        """A value has been released on its own."""
        self._alive_by_storage[self._storage_by_value[name]].pop(name)

    def ended_by(self, node: Node) -> list[str]:
        """Execute a node; returns the values that it ends by overwriting, in the order in which they were made."""
        overwritten = [self._storage_by_value[value.overwrites] for value in node.outputs if value.overwrites]
        ended: list[str] = []
        for storage in dict.fromkeys(overwritten):
            ended += self._alive_by_storage[storage]
            self._alive_by_storage[storage] = {}
        siblings = {value.name: value for value in node.outputs}
        for value in node.outputs:
            source = value
            while source.alias_of in siblings:
                source = siblings[source.alias_of]
            taken = source.overwrites or source.alias_of or source.name
            storage = self._storage_by_value.get(taken, taken)
            self._storage_by_value[value.name] = storage
            if storage in overwritten and source.overwrites is None:
                ended.append(value.name)
            else:
                self._alive_by_storage.setdefault(storage, {})[value.name] = None
        return ended


def _calls_of(graph: Graph, sequence: Sequence[str]) -> list[Call]:
    """The calls of all nodes, in the order of ``graph.nodes``."""
    boundary = graph.boundary
    position = {name: index for index, name in enumerate(sequence)}
    calls = [_call_of(node) for node in graph.nodes]
    if boundary is None:
        return calls
    return [
        replace(call, backward=position[node.name] > position[boundary.name])
        for node, call in zip(graph.nodes, calls, strict=True)
    ]


def _call_of(node: Node) -> Call:
    sizes = {value.name: value.size_bytes for value in node.outputs if value.owns_storage}
    first_only = [value.name for value in node.outputs if value.first_only]
    unevictable = [value.name for value in node.outputs if not value.evictable]
    optional = {
        "size_bytes": sizes,
        "workspace_bytes": node.workspace_bytes,
        "recompute_inputs": list(node.recompute_inputs),
        "first_only": first_only,
        "unevictable": unevictable,
    }
    return Call(
        op=node.op,
        inputs=node.inputs,
        outputs=tuple(value.name for value in node.outputs),
        alias_by_output={value.name: value.alias_of for value in node.outputs if value.alias_of is not None},
        overwrites_by_output={value.name: value.overwrites for value in node.outputs if value.overwrites is not None},
        cost=node.duration,
        rng=node.meta.get("rng") is True,
        backward=node.meta.get("backward") is True,
        meta={
            "node": node.name,
            **{key: value for key, value in optional.items() if value},
            **({} if node.recomputable else {"recomputable": False}),
            "after": list(node.after),
        },
    )
