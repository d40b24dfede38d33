"""From the online engine's log to the events of a trace: who had which bytes when, and what was computed.

    log     take 0..64   own cell 3 at 0   bind cell 3 to variable 7   call   evict cell 3   give 0
    trace   alloc v7 0..64                                             call   evict v7       free v7 0..64

Simulator and runtime have the same engine, so they have the same log, and this is how both write their traces.

The log speaks of cells and offsets, in the order in which things happened; names come later in it than bytes do. So
it is read twice: first to learn who will own each piece of bytes, then to write. What nobody comes to own is scratch.

An op in place hands its bytes on: their block keeps the id of the value they were allocated for. If that value is
recomputed later, beside the bytes it once had, the block is renamed right after the op (``move`` of the overwriting
value, ``free`` of the old id, ``alloc`` of the new one at the same offset). A small leaf that is about to be
overwritten while others may still be recomputed from it is copied out of the arena: in the trace it then lies outside
from the start, and its bytes inside go by an id of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from lowtide.ir.trace import BlockKind, Call, Event, Mark, MarkKind, Memory, MemoryKind
from lowtide.ir.trace_sizes import LEAF_OP
from lowtide.units import align_up

__all__ = ["LogEvent", "LogKind", "LoggedProgram", "events_of_log"]

LogEvent = tuple[int, int, int, int]
"""Kind, id, offset, size."""


class LogKind(IntEnum):
    """As ``EventKind`` in ``native/include/lowtide/engine_events.hpp``."""

    CALL = 0
    RECOMPUTE = 1
    TAKE = 2
    GIVE = 3
    OWN = 4
    EVICT = 5
    MOVE = 6
    TAKE_OUT = 7
    GONE = 8
    BEGIN = 9
    BIND = 10
    RELEASE = 11
    RECOMPUTED = 12


@dataclass(frozen=True, slots=True)
class LoggedProgram:
    """What the log's numbers stand for.

    Attributes:
        names: By variable: the value whose contents it numbers.
        calls: By the number that a BEGIN names; leaves are calls of :data:`~lowtide.ir.trace_sizes.LEAF_OP`, releases
            have none.
        alignment: Of the arena, in bytes.
    """

    names: Sequence[str]
    calls: Sequence[Call | None]
    alignment: int


def events_of_log(program: LoggedProgram, log: Sequence[LogEvent], *, has_addresses: bool) -> list[Event]:
    """Write what happened.

    Args:
        program: Whose numbers the log uses.
        log: The engine's.
        has_addresses: Whether offsets mean anything; if not, no blocks are written.

    Returns:
        Events of the program's values without views.
    """
    return _Writer(program, log, has_addresses=has_addresses).write()


class _Owners:
    """First reading: which variable comes to own what is taken, and who is owned by which cell when."""

    def __init__(self, log: Sequence[LogEvent]) -> None:
        self.variable_at: dict[int, int] = {}
        """By position in the log: the variable that an own, evict, move or take_out is about."""
        self.owner_of_take: dict[int, int] = {}
        """By position of a take: the position of the own that follows."""
        self.last_own_by_variable: dict[int, int] = {}
        """Position in the log."""
        self.taken_out: set[int] = set()
        variable_by_cell: dict[int, int] = {}
        waiting: dict[int, list[int]] = {}  # positions that are about a cell whose variable is not known yet
        unowned: dict[int, int] = {}  # position of the take, by offset
        for position, (kind, subject, offset, _) in enumerate(log):
            if kind == LogKind.TAKE:
                unowned[offset] = position
            elif kind == LogKind.GIVE:
                unowned.pop(offset, None)
            elif kind == LogKind.BIND:
                variable_by_cell[subject] = offset
                for earlier in waiting.pop(subject, ()):
                    self._know(earlier, offset, log)
            elif kind == LogKind.GONE:
                variable_by_cell.pop(subject, None)
                waiting.pop(subject, None)
            elif kind in (LogKind.OWN, LogKind.EVICT, LogKind.MOVE, LogKind.TAKE_OUT):
                if kind == LogKind.OWN and offset in unowned:
                    self.owner_of_take[unowned.pop(offset)] = position
                if subject in variable_by_cell:
                    self._know(position, variable_by_cell[subject], log)
                else:
                    waiting.setdefault(subject, []).append(position)

    def _know(self, position: int, variable: int, log: Sequence[LogEvent]) -> None:
        self.variable_at[position] = variable
        if log[position][0] == LogKind.OWN:
            self.last_own_by_variable[variable] = position
        if log[position][0] == LogKind.TAKE_OUT:
            self.taken_out.add(variable)


@dataclass(slots=True)
class _Held:
    """Bytes in use. Attributes: block: as it was allocated; variable: whose contents they hold, -1: scratch."""

    block: Memory
    variable: int
    is_small: bool


class _Writer:
    """Second reading."""

    def __init__(self, program: LoggedProgram, log: Sequence[LogEvent], *, has_addresses: bool) -> None:
        self._program = program
        self._log = log
        self._owners = _Owners(log)
        self._has_addresses = has_addresses
        self._events: list[Event] = []
        self._held_by_offset: dict[int, _Held] = {}
        self._held_ids: set[str] = set()
        self._offset_by_variable: dict[int, int] = {}
        self._instruction_by_record: dict[int, int] = {}
        self._handed_over: list[tuple[int, int]] = []  # new and old variable, of the call that is being executed
        self._made: list[int] = []
        self._instruction = -1
        self._num_scratch = 0
        self._position = 0
        self._call_position = 0
        self._last_own_by_id = {
            self._block_id(variable): own for variable, own in self._owners.last_own_by_variable.items()
        }

    def write(self) -> list[Event]:
        """All events."""
        for position, (kind, subject, offset, size_bytes) in enumerate(self._log):
            self._position = position
            match kind:
                case LogKind.BEGIN:
                    self._begin(subject)
                case LogKind.TAKE:
                    self._take(position, offset, size_bytes, is_small=subject == 1)
                case LogKind.GIVE:
                    self._memory(MemoryKind.FREE, self._held_by_offset.pop(offset).block)
                case LogKind.OWN if position in self._owners.variable_at:
                    self._own(self._owners.variable_at[position], offset)
                case LogKind.CALL:
                    self._instruction_by_record[subject] = self._instruction
                    self._call_position = len(self._events)
                    self._call(self._instruction, is_recompute=False)
                case LogKind.RECOMPUTE:
                    self._call_position = len(self._events)
                case LogKind.RECOMPUTED:
                    self._call(self._instruction_by_record[subject], is_recompute=True)
                case LogKind.EVICT:
                    self._events.append(Mark(MarkKind.EVICT, self._name(self._owners.variable_at[position])))
                case LogKind.MOVE:
                    self._move(self._owners.variable_at[position], offset)
                case LogKind.RELEASE:
                    self._events.append(Mark(MarkKind.RELEASE, self._name(offset)))
        return self._events

    def _name(self, variable: int) -> str:
        return self._program.names[variable]

    def _block_id(self, variable: int) -> str:
        """The id of the bytes of a variable; of one that is copied out later, not its own."""
        name = self._name(variable)
        return f"{name}~inside" if variable in self._owners.taken_out else name

    def _begin(self, instruction: int) -> None:
        self._instruction = instruction
        self._handed_over, self._made = [], []
        call = self._program.calls[instruction]
        if call is not None and call.op == LEAF_OP:
            self._events.append(call)

    def _take(self, position: int, offset: int, size_bytes: int, *, is_small: bool) -> None:
        own = self._owners.owner_of_take.get(position)
        variable = -1 if own is None else self._owners.variable_at.get(own, -1)
        kind = BlockKind.SMALL if is_small else BlockKind.VALUE
        is_held = variable >= 0 and self._block_id(variable) in self._held_ids
        if variable < 0 or is_held:  # held: a second copy, until the first is evicted for what else the op makes
            identity, kind = f"scratch{self._num_scratch}", BlockKind.SCRATCH
            self._num_scratch += 1
        else:
            identity = self._block_id(variable)
        size_bytes = align_up(size_bytes, self._program.alignment)
        held = _Held(Memory(MemoryKind.ALLOC, identity, offset, size_bytes, kind), variable, is_small)
        self._held_by_offset[offset] = held
        self._memory(MemoryKind.ALLOC, held.block)

    def _own(self, variable: int, offset: int) -> None:
        self._made.append(variable)
        self._offset_by_variable[variable] = offset
        held = self._held_by_offset.get(offset)
        if held is not None and held.variable not in (-1, variable):
            self._handed_over.append((variable, held.variable))
            held.variable = variable
        elif held is not None and held.block.block is BlockKind.SCRATCH:
            kind = BlockKind.SMALL if held.is_small else BlockKind.VALUE
            self._replace(held, replace(held.block, id=self._block_id(variable), block=kind))

    def _call(self, instruction: int, *, is_recompute: bool) -> None:
        call = self._program.calls[instruction]
        assert call is not None
        hidden = self._owners.taken_out
        overwrites = {
            self._name(new): self._name(old)
            for new, old in self._handed_over
            if new not in hidden and old not in hidden
        }
        overwrites |= {new: old for new, old in call.overwrites_by_output.items() if self._is_outside(new)}
        if is_recompute:
            made = {self._name(variable) for variable in self._made}
            call = replace(call, outputs=tuple(name for name in call.outputs if name in made), recompute=True)
        meta = {**call.meta, "size_bytes": self._sizes(call, overwrites)}
        self._events.insert(self._call_position, replace(call, overwrites_by_output=overwrites, meta=meta))
        for new, old in self._handed_over:
            held = self._held_by_offset[self._offset_by_variable[new]]
            is_hidden = new in hidden or old in hidden
            if self._has_addresses and (is_hidden or self._comes_back(held.block.id)):
                if not is_hidden:
                    self._events.append(Mark(MarkKind.MOVE, self._name(new)))
                self._replace(held, replace(held.block, id=self._block_id(new)))
        if not is_recompute:
            self._events += [Mark(MarkKind.RELEASE, name) for name in call.overwrites_by_output.values()]
        self._handed_over, self._made = [], []

    def _sizes(self, call: Call, overwrites: Mapping[str, str]) -> dict[str, int]:
        """Bytes of the outputs that own storage; of a copy on write, or where a block is not its own, as placed."""
        sizes: Mapping[str, int] = call.meta.get("size_bytes", {})
        made = ((variable, self._held_by_offset.get(self._offset_by_variable[variable])) for variable in self._made)
        placed = {self._name(variable): held.block.size_bytes for variable, held in made if held is not None}
        return {name: sizes.get(name, placed.get(name, 0)) for name in call.outputs if name not in overwrites}

    def _is_outside(self, name: str) -> bool:
        """Whether the call in progress wrote it outside the arena, where it found it."""
        return any(self._name(variable) == name and self._offset_by_variable[variable] < 0 for variable in self._made)

    def _comes_back(self, block_id: str) -> bool:
        """Whether bytes go by the same id again."""
        return self._last_own_by_id.get(block_id, -1) > self._position

    def _move(self, variable: int, offset: int) -> None:
        held = self._held_by_offset.pop(self._offset_by_variable[variable])
        self._offset_by_variable[variable] = offset
        self._held_by_offset[offset] = held
        self._events.append(Mark(MarkKind.MOVE, self._name(variable)))
        self._replace(held, replace(held.block, id=self._block_id(variable), offset=offset))

    def _replace(self, held: _Held, block: Memory) -> None:
        self._memory(MemoryKind.FREE, held.block)
        held.block = block
        self._memory(MemoryKind.ALLOC, block)

    def _memory(self, kind: MemoryKind, block: Memory) -> None:
        if kind is MemoryKind.ALLOC:
            self._held_ids.add(block.id)
        else:
            self._held_ids.discard(block.id)
        if self._has_addresses:
            self._events.append(replace(block, event=kind))
