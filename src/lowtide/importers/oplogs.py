"""From an op log of DTR's simulator to a Trace.

    {"INSTRUCTION": "CALL", "NAME": "relu", "ARGS": ["x1"], "RESULT": ["x2"], "TIME": "31000"}       call relu  v0 -> v1
    {"INSTRUCTION": "MEMORY", "NAME": "x2", "MEMORY": "4096"}
    {"INSTRUCTION": "ALIAS", "NAME": "x2", "ALIAS": "-1"}
    {"INSTRUCTION": "RELEASE", "NAME": "x1"}                                                        release v0

A name of the log is a reference of the program: several may lead to one storage (COPY, ALIAS), one may be led elsewhere
(COPY_FROM), and RELEASE takes one away. A storage's values are released with its last name. Departure from DTR's own
simulator, which copies on write: a MUTATE overwrites the storage in place, for all names on it, as the op did; whether
to copy on write is for the simulated policy to say. Constants are leaves of kind ``constant``.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

from lowtide.errors import FormatError
from lowtide.importers.oplog_lines import Instruction, InstructionKind, read_instructions
from lowtide.importers.trace_builder import Result, Storage, TraceBuilder, Write
from lowtide.ir import Event, InputKind, Trace
from lowtide.ir.serde.files import name_of_file, read_text

__all__ = ["oplog_from_lines", "read_oplog"]

_COST_MODEL = "dtr-log (ns)"
_START = "START"
_BACKWARD = "BACKWARD"


def read_oplog(path: str | os.PathLike[str], *, alignment: int = 1) -> Trace:
    """Read an op log file.

    Args:
        path: The log, one JSON object a line.
        alignment: Sizes are rounded up to a multiple of it; by default they are taken as given.

    Returns:
        A trace without blocks, sizes in the calls' meta, costs in nanoseconds.

    Raises:
        FormatError: The file cannot be read, or a line of it is damaged; the message has its number and the reason.
    """
    return oplog_from_lines(read_text(path).split("\n"), name_of_file(path), alignment=alignment)


def oplog_from_lines(lines: Iterable[str], where: str, *, alignment: int = 1) -> Trace:
    """Read an op log from its lines; see :func:`read_oplog`.

    Raises:
        FormatError: A line is damaged.
    """
    reader = _Reader(alignment)
    instructions = iter(_after_start(list(read_instructions(lines, where)), reader))
    for instruction in instructions:
        reader.carry_out(instruction, instructions)
    return Trace(
        capacity_bytes=None,
        alignment=alignment,
        policy=None,
        seed=0,
        cost_model=_COST_MODEL,
        events=reader.finish(),
        meta={"source": "oplog"},
    )


def _after_start(instructions: list[Instruction], reader: _Reader) -> list[Instruction]:
    """What counts: all after the first START, or everything; names of before may be released after it."""
    start = next((index for index, item in enumerate(instructions) if _is_annotation(item, _START)), -1)
    for item in instructions[: start + 1]:
        reader.forgotten_names.update(item.results, (item.target,) if item.target else ())
        if item.kind is InstructionKind.CONSTANT:
            reader.forgotten_names.add(item.name)
    return instructions[start + 1 :]


def _is_annotation(instruction: Instruction, name: str) -> bool:
    return instruction.kind is InstructionKind.ANNOTATE and instruction.name == name


@dataclass(frozen=True, slots=True)
class _Reference:
    """What a name leads to: a storage, and a view of it."""

    storage: Storage
    view: Hashable


class _Reader:
    """Carries out the instructions one by one."""

    def __init__(self, alignment: int) -> None:
        self.forgotten_names: set[str] = set()
        self._builder = TraceBuilder(alignment=alignment)
        self._reference_by_name: dict[str, _Reference] = {}
        self._num_names: Counter[Storage] = Counter()
        self._released: set[str] = set()
        self._is_backward = False

    def carry_out(self, instruction: Instruction, following: Iterator[Instruction]) -> None:
        """Carry out one instruction, and take those that belong to it."""
        kind = instruction.kind
        if kind is InstructionKind.CONSTANT:
            self._add_constant(instruction, following)
        elif kind is InstructionKind.CALL:
            self._call(instruction, following)
        elif kind is InstructionKind.MUTATE:
            self._mutate(instruction)
        elif kind is InstructionKind.COPY:
            self._name(instruction.target, self._find(instruction.source, instruction), instruction)
        elif kind is InstructionKind.COPY_FROM:
            self._copy_from(instruction)
        elif kind is InstructionKind.RELEASE:
            self._release(instruction)
        elif kind is InstructionKind.ANNOTATE:
            self._is_backward |= instruction.name == _BACKWARD
        else:
            raise FormatError(f"{instruction.where}: {kind} of {instruction.name!r} follows no CALL or CONSTANT of it")

    def finish(self) -> tuple[Event, ...]:
        """All events; of storages that are still named only the owners stay."""
        for storage in self._num_names:
            self._builder.release_views(storage)
        return self._builder.events()

    def _add_constant(self, instruction: Instruction, following: Iterator[Instruction]) -> None:
        size_bytes = _take(InstructionKind.MEMORY, instruction.name, instruction, following)
        storage = self._builder.leaf(view=instruction.name, size_bytes=size_bytes, kind=InputKind.CONSTANT)
        self._name(instruction.name, _Reference(storage, instruction.name), instruction)

    def _call(self, instruction: Instruction, following: Iterator[Instruction]) -> None:
        arguments = [self._find(name, instruction) for name in instruction.arguments]
        results = []
        for name in instruction.results:
            size_bytes = _take(InstructionKind.MEMORY, name, instruction, following)
            index = _take(InstructionKind.ALIAS, name, instruction, following)
            if index >= len(arguments):
                raise FormatError(
                    f"{instruction.where}: result {name!r} is an alias of ARGS[{index}], "
                    f"but there are {len(arguments)} arguments"
                )
            shared: Hashable = name if index < 0 else arguments[index].storage
            results.append(Result(shared, name, size_bytes))
        new = self._builder.call(
            instruction.name,
            reads=[(argument.storage, argument.view) for argument in arguments],
            results=results,
            cost=instruction.number,
            backward=self._in_backward(instruction),
        )
        for result, name in zip(results, instruction.results, strict=True):
            storage = result.storage if isinstance(result.storage, Storage) else new[result.storage]
            self._name(name, _Reference(storage, name), instruction)

    def _mutate(self, instruction: Instruction) -> None:
        arguments = [self._find(name, instruction) for name in instruction.arguments]
        self._builder.call(
            instruction.name,
            reads=[(argument.storage, argument.view) for argument in arguments],
            writes=[Write(arguments[index].storage, arguments[index].view) for index in instruction.mutated],
            cost=instruction.number,
            backward=self._in_backward(instruction),
        )

    def _copy_from(self, instruction: Instruction) -> None:
        source = self._find(instruction.source, instruction)
        target = self._find(instruction.target, instruction)
        self._reference_by_name[instruction.target] = source
        self._num_names[source.storage] += 1
        self._drop(target)

    def _release(self, instruction: Instruction) -> None:
        name = instruction.name
        if name in self._reference_by_name:
            self._released.add(name)
            self._drop(self._reference_by_name.pop(name))
        elif name in self._released:
            raise FormatError(f"{instruction.where}: {name!r} is released twice")
        elif name not in self.forgotten_names:
            raise FormatError(f"{instruction.where}: {name!r} is released, but no line defines it")

    def _drop(self, reference: _Reference) -> None:
        self._num_names[reference.storage] -= 1
        if not self._num_names[reference.storage]:
            del self._num_names[reference.storage]
            self._builder.release(reference.storage)

    def _name(self, name: str, reference: _Reference, instruction: Instruction) -> None:
        if name in self._reference_by_name or name in self._released:
            raise FormatError(f"{instruction.where}: {name!r} is defined twice")
        self._reference_by_name[name] = reference
        self._num_names[reference.storage] += 1

    def _find(self, name: str, instruction: Instruction) -> _Reference:
        reference = self._reference_by_name.get(name)
        if reference is None:
            was = "was released before" if name in self._released else "is defined by no line before"
            raise FormatError(f"{instruction.where}: {instruction.kind} uses {name!r}, which {was}")
        return reference

    def _in_backward(self, instruction: Instruction) -> bool:
        self._is_backward |= "backward" in instruction.name
        return self._is_backward


def _take(kind: InstructionKind, name: str, owner: Instruction, following: Iterator[Instruction]) -> int:
    """The number of the instruction that must come next: MEMORY or ALIAS of a certain name."""
    instruction = next(following, None)
    if instruction is None:
        raise FormatError(f"{owner.where}: the log ends before the {kind} of {name!r}: it is cut off")
    if instruction.kind is not kind or instruction.name != name:
        raise FormatError(
            f"{instruction.where}: {instruction.kind} of {instruction.name!r} where the {kind} of {name!r} must come"
        )
    return instruction.number
