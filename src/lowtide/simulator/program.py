"""A trace as the native engine reads it: storages' versions as numbers, one instruction per event.

    trace     leaf x      y = view(x)   z = op(y)   x' = op_(x) in place       release z
    program   leaf 0                    1 = f(0)    2 = f(0), overwrites 0     release 1

Views are no instructions: whoever reads a view reads the version that its storage holds at that moment. An op that
returns nothing of its own and writes nothing still needs its inputs resident, so it stays. A storage is released with
the last value that stands for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from lowtide import _online
from lowtide.errors import InputError
from lowtide.ir import Call, Mark, MarkKind, Trace
from lowtide.ir.trace_sizes import LEAF_OP, size_by_value, workspace_bytes
from lowtide.units import align_up

__all__ = ["EXPENSIVE_COST_PER_BYTE", "CompiledTrace", "Temper", "compile_trace"]

EXPENSIVE_COST_PER_BYTE = 0.5
"""Cost density (ns per byte of output) from which an op counts as expensive; moving bytes alone costs about .3."""


class Temper(IntEnum):
    """Where a value belongs in the pool."""

    EXPENSIVE = 0
    CHEAP = 1
    RESIDENT = 2


_TEMPERS = {temper.name.lower(): temper for temper in Temper}
"""As traces of the runtime say where it placed a value; it judges by an op's inputs, before it runs."""


class _Kind(IntEnum):
    LEAF = 0
    CALL = 1
    RELEASE = 2


_BACKWARD, _REPLAYABLE, _EXTERNAL = 1, 2, 4


@dataclass(frozen=True)
class CompiledTrace:
    """A trace, ready to be simulated any number of times.

    Attributes:
        program: For the native engine.
        names: The value that each of the program's variables stands for.
        calls: What each instruction carries out, in terms of those values: views are gone. Releases have none.
        alignment: Of the trace, in bytes.
        cost_model: Of the trace.
        meta: What the trace's own has of ``name`` and ``duration_unit``: a simulation of it has them, too.
        num_calls: Ops that are executed.
        base_cost: Sum of their costs.
        peak_bytes: Most bytes alive when nothing is evicted.
        end_bytes: Bytes alive at the end.
        floor_bytes: Bytes alive at the end, or of leaves at any time, whichever is more: no budget below can hold.
    """

    program: _online.Program
    names: tuple[str, ...]
    calls: tuple[Call | None, ...]
    alignment: int
    cost_model: str
    meta: Mapping[str, Any]
    num_calls: int
    base_cost: float
    peak_bytes: int
    end_bytes: int
    floor_bytes: int

    @property
    def ops(self) -> tuple[str | None, ...]:
        """The op of each instruction; releases have none."""
        return tuple(None if call is None else call.op for call in self.calls)


@dataclass
class _Columns:
    kinds: list[int] = field(default_factory=list)
    flags: list[int] = field(default_factory=list)
    tempers: list[int] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)
    workspaces: list[int] = field(default_factory=list)
    input_starts: list[int] = field(default_factory=lambda: [0])
    inputs: list[int] = field(default_factory=list)
    output_starts: list[int] = field(default_factory=lambda: [0])
    outputs: list[int] = field(default_factory=list)
    output_sizes: list[int] = field(default_factory=list)
    output_overwrites: list[int] = field(default_factory=list)
    output_tempers: list[int] = field(default_factory=list)


@dataclass
class _Storage:
    """Attributes: variable: number of its present version; values: what stands for it and is not released."""

    variable: int
    size_bytes: int
    values: set[str]
    is_leaf: bool


def compile_trace(trace: Trace) -> CompiledTrace:
    """Turn a trace into a program.

    Args:
        trace: A recording. Recomputations, evictions and blocks in it are left out: they are what is simulated.

    Raises:
        InputError: A call reads or overwrites a value that nothing made, or that is gone.
        FormatError: A value has no size.
    """
    compiler = _Compiler(trace)
    for position, event in enumerate(trace.events):
        if isinstance(event, Call) and not event.recompute:
            compiler.call(event, position)
        elif isinstance(event, Mark) and event.event is MarkKind.RELEASE:
            compiler.release(event.id)
    return compiler.finish()


class _Compiler:
    def __init__(self, trace: Trace) -> None:
        self._alignment = trace.alignment
        self._sizes = size_by_value(trace)
        self._columns = _Columns()
        self._names: list[str] = []
        self._meta = {key: trace.meta[key] for key in ("name", "duration_unit") if key in trace.meta}
        self._calls: list[Call | None] = []
        self._cost_model = trace.cost_model
        self._storage_by_value: dict[str, _Storage] = {}
        self._num_calls = 0
        self._base_cost = 0
        self._alive_bytes = self._peak_bytes = self._leaf_bytes = self._peak_leaf_bytes = 0

    def call(self, call: Call, position: int) -> None:
        """Add a call, or the leaves that it brings."""
        if call.op == LEAF_OP:
            for name in call.outputs:
                self._leaf(name, call.meta)
            return
        where = f"event {position} ({call.op!r})"
        inputs = [self._storage_of(name, where) for name in call.inputs]
        storages = self._outputs(call, where)
        is_view_only = bool(call.outputs) and not storages
        if is_view_only and call.cost == 0:
            return
        read = list(dict.fromkeys(storage.variable for storage in inputs))
        made: list[tuple[int, int, int]] = []  # variable, size, overwritten variable
        for name, storage, is_overwritten in storages:
            variable = self._variable(name)
            made.append((variable, storage.size_bytes, storage.variable if is_overwritten else -1))
            storage.variable = variable
        own_bytes = sum(size_bytes for _, size_bytes, _ in made)
        density = call.cost / max(own_bytes, 1)
        temper = Temper.EXPENSIVE if density >= EXPENSIVE_COST_PER_BYTE else Temper.CHEAP
        temper = _TEMPERS.get(call.meta.get("temper", ""), temper)
        columns = self._columns
        columns.inputs += read
        placed: Mapping[str, str] = call.meta.get("placed", {})
        for variable, size_bytes, overwritten in made:
            columns.outputs.append(variable)
            columns.output_sizes.append(size_bytes)
            columns.output_overwrites.append(overwritten)
            columns.output_tempers.append(_TEMPERS.get(placed.get(self._names[variable], ""), temper))
        is_replayable = call.meta.get("recomputable", True) is not False
        flags = (_BACKWARD if call.backward else 0) | (_REPLAYABLE if is_replayable else 0)
        workspace = align_up(workspace_bytes(call), self._alignment)
        self._add(_Kind.CALL, self._plain(call, read, made), flags=flags, temper=temper, workspace=workspace)
        self._num_calls += 1
        self._base_cost += call.cost
        self._peak_bytes = max(self._peak_bytes, self._alive_bytes + workspace)

    def release(self, name: str) -> None:
        """A value is released; its storage goes with the last one."""
        storage = self._storage_by_value.pop(name, None)
        if storage is None:
            return
        storage.values.discard(name)
        if storage.values:
            return
        self._columns.inputs.append(storage.variable)
        self._add(_Kind.RELEASE, None)
        self._alive_bytes -= storage.size_bytes
        self._leaf_bytes -= storage.size_bytes if storage.is_leaf else 0

    def finish(self) -> CompiledTrace:
        """The program and its figures."""
        columns = self._columns
        program = _online.Program(**vars(columns), num_variables=len(self._names))
        return CompiledTrace(
            program=program,
            names=tuple(self._names),
            calls=tuple(self._calls),
            alignment=self._alignment,
            cost_model=self._cost_model,
            meta=self._meta,
            num_calls=self._num_calls,
            base_cost=float(self._base_cost),
            peak_bytes=self._peak_bytes,
            end_bytes=self._alive_bytes,
            floor_bytes=max(self._alive_bytes, self._peak_leaf_bytes),
        )

    def _plain(self, call: Call, read: Sequence[int], made: Sequence[tuple[int, int, int]]) -> Call:
        """The call as the program has it."""
        names = self._names
        sizes = {names[variable]: size_bytes for variable, size_bytes, overwritten in made if overwritten < 0}
        kept = {key: call.meta[key] for key in ("workspace_bytes", "recomputable") if key in call.meta}
        return replace(
            call,
            inputs=tuple(names[variable] for variable in read),
            outputs=tuple(names[variable] for variable, _, _ in made),
            alias_by_output={},
            overwrites_by_output={names[variable]: names[old] for variable, _, old in made if old >= 0},
            meta={**({"size_bytes": sizes} if sizes else {}), **kept},
        )

    def _leaf(self, name: str, meta: Mapping[str, Any]) -> None:
        size_bytes = align_up(self._sizes[name], self._alignment)
        is_external = meta.get("external", False) is True
        if is_external:
            size_bytes = 0  # of the arena
        storage = _Storage(self._variable(name), size_bytes, {name}, is_leaf=True)
        self._storage_by_value[name] = storage
        self._grow(storage)
        self._leaf_bytes += size_bytes
        self._peak_leaf_bytes = max(self._peak_leaf_bytes, self._leaf_bytes)
        columns = self._columns
        columns.outputs.append(storage.variable)
        columns.output_sizes.append(size_bytes)
        columns.output_overwrites.append(-1)
        columns.output_tempers.append(Temper.RESIDENT)
        kept = {key: meta[key] for key in ("kind", "evictable") if key in meta}
        if is_external:
            kept["external"] = True
        call = Call(op=LEAF_OP, inputs=(), outputs=(name,), meta={"size_bytes": {name: size_bytes}, **kept})
        self._add(_Kind.LEAF, call, flags=_EXTERNAL if is_external else 0, temper=Temper.RESIDENT)

    def _outputs(self, call: Call, where: str) -> list[tuple[str, _Storage, bool]]:
        """The storages that a call makes or overwrites; values that only refer to one are bound on the way."""
        made: list[tuple[str, _Storage, bool]] = []
        for name in call.outputs:
            if name in call.overwrites_by_output:
                storage = self._storage_of(call.overwrites_by_output[name], where)
                for old in storage.values:
                    self._storage_by_value.pop(old, None)
                storage.values = {name}
                made.append((name, storage, True))
            elif name not in call.alias_by_output:
                size_bytes = align_up(self._sizes[name], self._alignment)
                storage = _Storage(-1, size_bytes, {name}, is_leaf=False)
                self._grow(storage)
                made.append((name, storage, False))
            else:
                continue
            self._storage_by_value[name] = storage
        self._bind_aliases(call, where)
        return made

    def _bind_aliases(self, call: Call, where: str) -> None:
        for name in call.alias_by_output:
            source = name
            for _ in call.outputs:  # siblings may alias one another in any order
                source = call.alias_by_output.get(source, source)
            if source in call.overwrites_by_output.values():  # a view of what this very call overwrites
                source = next(new for new, old in call.overwrites_by_output.items() if old == source)
            storage = self._storage_of(source, where)
            storage.values.add(name)
            self._storage_by_value[name] = storage

    def _storage_of(self, name: str, where: str) -> _Storage:
        storage = self._storage_by_value.get(name)
        if storage is None:
            raise InputError(f"{where}: value {name!r:.80} was not made before, or is gone")
        return storage

    def _variable(self, name: str) -> int:
        self._names.append(name)
        return len(self._names) - 1

    def _grow(self, storage: _Storage) -> None:
        self._alive_bytes += storage.size_bytes
        self._peak_bytes = max(self._peak_bytes, self._alive_bytes)

    def _add(
        self,
        kind: _Kind,
        call: Call | None,
        *,
        flags: int = 0,
        temper: Temper = Temper.EXPENSIVE,
        workspace: int = 0,
    ) -> None:
        columns = self._columns
        columns.kinds.append(kind)
        columns.flags.append(flags)
        columns.tempers.append(temper)
        columns.costs.append(0.0 if call is None else float(call.cost))
        columns.workspaces.append(workspace)
        columns.input_starts.append(len(columns.inputs))
        columns.output_starts.append(len(columns.outputs))
        self._calls.append(call)
