"""The lines of an op log of DTR's simulator, one instruction each, checked one by one.

Source of the format: Kirisame et al., "Dynamic Tensor Rematerialization" (ICLR 2021), the logs that their PyTorch fork
writes and their simulator reads. A line is a JSON object; numbers may be written as text.

| INSTRUCTION | other keys | meaning |
|---|---|---|
| CONSTANT | NAME | a tensor that no op produced; its MEMORY comes next |
| MEMORY | NAME, MEMORY | bytes of a tensor that the line before introduced |
| ALIAS | NAME, ALIAS | whose storage a result shares: -1 its own, k that of ARGS[k] |
| CALL | RESULT, NAME, ARGS, TIME | an op; for each result follow its MEMORY and its ALIAS; TIME in nanoseconds |
| MUTATE | NAME, ARGS, MUTATE, TIME | an op that writes to ARGS[k] for each k of MUTATE |
| COPY | DST, SRC | one more name for what SRC names |
| COPY_FROM | DST, SRC | DST names from now on what SRC names |
| RELEASE | NAME | a name is gone |
| ANNOTATE | ANNOTATION | START: what is before does not count; BACKWARD: backward begins; others mean nothing |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from lowtide.errors import FormatError
from lowtide.ir.graph_rules import MAX_DURATION
from lowtide.ir.serde.files import parse_json
from lowtide.units import MAX_BYTES

__all__ = ["Instruction", "InstructionKind", "read_instructions"]

_MOST_DIGITS = 20


class InstructionKind(StrEnum):
    """What a line of an op log says."""

    CONSTANT = "CONSTANT"
    MEMORY = "MEMORY"
    ALIAS = "ALIAS"
    CALL = "CALL"
    MUTATE = "MUTATE"
    COPY = "COPY"
    COPY_FROM = "COPY_FROM"
    RELEASE = "RELEASE"
    ANNOTATE = "ANNOTATE"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line.

    Attributes:
        kind: What it says.
        where: Its place, for errors: file and line number.
        name: NAME: a tensor, or the op of CALL and MUTATE; ANNOTATION of ANNOTATE.
        number: MEMORY in bytes, ALIAS as an index, TIME in nanoseconds; 0 for others.
        arguments: ARGS.
        results: RESULT.
        mutated: MUTATE: which arguments are written to.
        target: DST.
        source: SRC.
    """

    kind: InstructionKind
    where: str
    name: str = ""
    number: int = 0
    arguments: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    mutated: tuple[int, ...] = ()
    target: str = ""
    source: str = ""


def read_instructions(lines: Iterable[str], where: str) -> Iterator[Instruction]:
    """Read the lines of an op log; empty ones are passed over, and so are keys that no instruction has.

    Args:
        lines: The lines.
        where: Names the log in errors.

    Raises:
        FormatError: A line is no JSON object, its instruction is unknown, or a key is missing or of the wrong kind; the
            message has the line's number.
    """
    for number, line in enumerate(lines, start=1):
        if line.strip():
            place = f"{where}: line {number}"
            yield _read(parse_json(line, place), place)


def _read(document: Any, where: str) -> Instruction:
    if not isinstance(document, dict):
        raise FormatError(f"{where}: must be an object with the key INSTRUCTION")
    name = document.get("INSTRUCTION")
    if name not in set(InstructionKind):
        known = ", ".join(InstructionKind)
        raise FormatError(f"{where}: INSTRUCTION {str(name)[:40]!r} must be one of {known}")
    kind = InstructionKind(name)
    return _READER_BY_KIND[kind](document, where)


def _constant(document: Mapping[str, Any], where: str) -> Instruction:
    return Instruction(InstructionKind.CONSTANT, where, name=_text(document, "NAME", where))


def _memory(document: Mapping[str, Any], where: str) -> Instruction:
    size_bytes = _whole(document, "MEMORY", where, least=0, most=MAX_BYTES)
    return Instruction(InstructionKind.MEMORY, where, name=_text(document, "NAME", where), number=size_bytes)


def _alias(document: Mapping[str, Any], where: str) -> Instruction:
    index = _whole(document, "ALIAS", where, least=-1, most=MAX_BYTES)
    return Instruction(InstructionKind.ALIAS, where, name=_text(document, "NAME", where), number=index)


def _call(document: Mapping[str, Any], where: str) -> Instruction:
    return Instruction(
        InstructionKind.CALL,
        where,
        name=_text(document, "NAME", where),
        number=_whole(document, "TIME", where, least=0, most=MAX_DURATION),
        arguments=_texts(document, "ARGS", where),
        results=_texts(document, "RESULT", where),
    )


def _mutate(document: Mapping[str, Any], where: str) -> Instruction:
    arguments = _texts(document, "ARGS", where)
    items = _list(document, "MUTATE", where)
    mutated = tuple(
        _as_whole(item, f"{where}: MUTATE[{index}]", least=0, most=len(arguments) - 1)
        for index, item in enumerate(items)
    )
    return Instruction(
        InstructionKind.MUTATE,
        where,
        name=_text(document, "NAME", where),
        number=_whole(document, "TIME", where, least=0, most=MAX_DURATION),
        arguments=arguments,
        mutated=mutated,
    )


def _copy(document: Mapping[str, Any], where: str) -> Instruction:
    kind = InstructionKind(document["INSTRUCTION"])
    return Instruction(kind, where, target=_text(document, "DST", where), source=_text(document, "SRC", where))


def _release(document: Mapping[str, Any], where: str) -> Instruction:
    return Instruction(InstructionKind.RELEASE, where, name=_text(document, "NAME", where))


def _annotate(document: Mapping[str, Any], where: str) -> Instruction:
    return Instruction(InstructionKind.ANNOTATE, where, name=_text(document, "ANNOTATION", where))


_READER_BY_KIND: Mapping[InstructionKind, Callable[[Mapping[str, Any], str], Instruction]] = {
    InstructionKind.CONSTANT: _constant,
    InstructionKind.MEMORY: _memory,
    InstructionKind.ALIAS: _alias,
    InstructionKind.CALL: _call,
    InstructionKind.MUTATE: _mutate,
    InstructionKind.COPY: _copy,
    InstructionKind.COPY_FROM: _copy,
    InstructionKind.RELEASE: _release,
    InstructionKind.ANNOTATE: _annotate,
}


def _get(document: Mapping[str, Any], key: str, where: str) -> Any:
    if key not in document:
        raise FormatError(f"{where}: {document['INSTRUCTION']} has no {key}: the log is damaged")
    return document[key]


def _text(document: Mapping[str, Any], key: str, where: str) -> str:
    value = _get(document, key, where)
    if not isinstance(value, str) or not value:
        raise FormatError(f"{where}: {key} must be text, not {str(value)[:40]!r}")
    return value


def _list(document: Mapping[str, Any], key: str, where: str) -> list[Any]:
    value = _get(document, key, where)
    if not isinstance(value, list):
        raise FormatError(f"{where}: {key} must be a list, not {str(value)[:40]!r}")
    return value


def _texts(document: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    items = _list(document, key, where)
    for index, item in enumerate(items):
        if not isinstance(item, str) or not item:
            raise FormatError(f"{where}: {key}[{index}] must be text, not {str(item)[:40]!r}")
    return tuple(items)


def _whole(document: Mapping[str, Any], key: str, where: str, *, least: int, most: int) -> int:
    return _as_whole(_get(document, key, where), f"{where}: {key}", least=least, most=most)


def _as_whole(value: Any, where: str, *, least: int, most: int) -> int:
    """A whole number, also where it is written as text."""
    number = value
    if isinstance(value, str) and len(value) <= _MOST_DIGITS and value.removeprefix("-").isascii():
        number = int(value) if value.removeprefix("-").isdigit() else value
    if isinstance(number, bool) or not isinstance(number, int):
        raise FormatError(f"{where} must be a whole number, not {str(value)[:40]!r}")
    if not least <= number <= most:
        raise FormatError(f"{where} {number} must be from {least} to {most}")
    return number
