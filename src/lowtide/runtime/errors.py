"""Out of memory inside a budget. This module imports torch, because its error is one of torch's too.

The shim raises it from C++ with nothing but its text, in the middle of an op or of backward; the numbers are read out
of that text (``native/torch_shim_errors.hpp`` writes it, ``read_shortage`` reads it), and whoever knows the modules
that hold the memory, and how much the program has held at most, says so through `names_holders`. People get it in
words, with the shim's figures to the byte at the end.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from lowtide.errors import LowtideError
from lowtide.runtime.thrash import advise_budget
from lowtide.units import format_bytes

__all__ = ["Holder", "LowtideOutOfMemory", "Shortage", "names_holders", "read_shortage"]

_PAGE = 4096
_MOST_NAMED = 3

_SIZE = r"(?:[\d.]+ \w+ \()?(\d+) bytes\)?"
"""As the shim writes it, or as `_size_of` does."""
_BUDGET = re.compile(rf"the budget of {_SIZE} ")
_REQUEST = re.compile(rf"has no room for {_SIZE} more in (.+?): ")
_SHIM_SIZE = re.compile(r"(?:(?<=the budget of )|(?<=has no room for ))(\d+) bytes\b")
_TO_THE_BYTE = "To the byte: "
_SHIM_FIGURES = re.compile(
    rf"(?<!{_TO_THE_BYTE})\bresident \d+, locked \d+, unevictable \d+, free \d+, largest hole \d+"
)
_NO_OP = ("no op", "this program")
"""What the shim says where the request came from outside any op it saw, e.g. from a factory."""
_TOO_SMALL = re.compile(r"is too small for (.+?): ")
_OPAQUE_LSTM = "mkldnn_rnn_layer"
_KINDS = {
    "parameters": "parameters",
    "gradients": "gradients",
    "buffers": "buffers",
    "state": "optimizer state",
    "scratch": "scratch",
}
_UNNAMED = "inputs of the op and others"
"""What the holders do not sum up to: values that only the op that asked keeps, and what small values leave of slabs."""
_LEAST_SHARE = 0.01
"""Of what is held: kinds of less are not worth a word."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who keeps bytes in the arena that cannot be evicted.

    Attributes:
        module: Path of the module, e.g. ``"encoder.layer.3"``; empty where none is known.
        op: The op that made the value, e.g. ``"aten::embedding"``, or what it is: ``"parameters"``, ``"gradients"``,
            ``"buffers"``, ``"state"`` of an optimizer, ``"scratch"`` of ops; empty where neither is known.
        size_bytes: How many.
    """

    module: str
    op: str
    size_bytes: int

    @property
    def kind(self) -> str:
        """What such bytes are, in words: those of one kind are summed up."""
        return _KINDS.get(self.op, "results of ops" if self.op else "other tensors")

    def __str__(self) -> str:
        name = self.module or "no module"
        return f"{name}{f' ({self.op})' if self.op else ''} {format_bytes(self.size_bytes)}"


@dataclass(frozen=True, slots=True)
class Shortage:
    """The arena at the moment a request did not fit; None is what the text did not tell.

    Attributes:
        requested_bytes: What did not fit.
        capacity_bytes: What the arena has.
        resident_bytes: What values take in it.
        pinned_bytes: What could not be evicted: inputs of running ops, parameters, gradients, all that has no recipe.
        free_bytes: What is in holes.
        largest_hole_bytes: The largest of them.
        op: The op that asked.
    """

    requested_bytes: int | None = None
    capacity_bytes: int | None = None
    resident_bytes: int | None = None
    pinned_bytes: int | None = None
    free_bytes: int | None = None
    largest_hole_bytes: int | None = None
    op: str | None = None

    @property
    def fragmentation(self) -> float | None:
        """Free bytes / capacity: what lies in holes, each too small."""
        if self.free_bytes is None or not self.capacity_bytes:
            return None
        return self.free_bytes / self.capacity_bytes

    @property
    def smallest_budget_bytes(self) -> int | None:
        """No smaller budget lets this op run at this point: what cannot be evicted and the request, whole pages.

        It is enough if the pinned blocks leave the rest in one piece; if it is below the capacity, they did not.
        """
        if self.pinned_bytes is None or self.requested_bytes is None:
            return None
        return -(-(self.pinned_bytes + self.requested_bytes) // _PAGE) * _PAGE


def read_shortage(text: str) -> Shortage:
    """Read the numbers out of what the shim says, or out of the text of an error that was made of it."""
    budget, request, too_small = _BUDGET.search(text), _REQUEST.search(text), _TOO_SMALL.search(text)
    locked, unevictable = _number_after("locked", text), _number_after("unevictable", text)
    op = request[2] if request is not None else None if too_small is None else too_small[1]
    return Shortage(
        requested_bytes=None if request is None else int(request[1]),
        capacity_bytes=None if budget is None else int(budget[1]),
        resident_bytes=_number_after("resident", text),
        pinned_bytes=None if locked is None or unevictable is None else locked + unevictable,
        free_bytes=_number_after("free", text),
        largest_hole_bytes=_number_after("largest hole", text),
        op=None if op in _NO_OP else op,
    )


def _number_after(label: str, text: str) -> int | None:
    match = re.search(rf"[:,] {label} (\d+)\b", text)
    return None if match is None else int(match[1])


@dataclass(frozen=True, slots=True)
class _Witness:
    """Who is asked while an error is made."""

    holders: Callable[[], Sequence[Holder]]
    peak_demand_bytes: Callable[[], int | None]


_witnesses: list[_Witness] = []


@contextlib.contextmanager
def names_holders(
    source: Callable[[], Sequence[Holder]], *, peak_demand_bytes: Callable[[], int | None] = lambda: None
) -> Iterator[None]:
    """Let errors raised inside say who holds the memory, and what budget to try.

    Both are called while an error is made, and must not allocate tensors. What they raise is passed over: an error
    about an error would hide the first.

    Args:
        source: Who holds it, largest first.
        peak_demand_bytes: Most bytes so far that the program held at a time, evicted or not; None where unknown.
    """
    witness = _Witness(source, peak_demand_bytes)
    _witnesses.append(witness)
    try:
        yield
    finally:
        _witnesses.remove(witness)


class LowtideOutOfMemory(LowtideError, torch.OutOfMemoryError):
    """A value does not fit the budget, though all that can be evicted was.

    Catch it as ``torch.OutOfMemoryError``, ``RuntimeError`` or `LowtideError`. Its text begins with the words by which
    accelerate and Lightning know that memory ran out, so they retry with a smaller batch.

    Args:
        message: What the shim says.
        holders: Who holds what cannot be evicted, largest first; by default whom `names_holders` names.
        peak_demand_bytes: Most bytes so far that the program held at a time; by default what `names_holders` tells.

    Attributes:
        requested_bytes: As in `Shortage`, like the following ones; None where the message does not tell.
        capacity_bytes: What the arena has.
        resident_bytes: What is in it.
        pinned_bytes: What of it could not be evicted at that moment.
        largest_hole_bytes: The largest free piece.
        fragmentation: Free bytes / capacity.
        smallest_budget_bytes: No smaller budget lets this op run at this point.
        op: The op that asked, or None.
        peak_demand_bytes: Most bytes so far that the program held at a time, evicted or not; None where unknown.
        holders: A tuple of `Holder`.
    """

    def __init__(
        self, message: str, *, holders: Sequence[Holder] | None = None, peak_demand_bytes: int | None = None
    ) -> None:
        found = tuple(_named_holders() if holders is None else holders)
        demand = _told_demand() if peak_demand_bytes is None else peak_demand_bytes
        shortage = read_shortage(message)
        remarks = _remarks(shortage, found, demand)
        super().__init__(" ".join([_in_words(message, shortage), *remarks, *_figures(message)]))
        self.requested_bytes = shortage.requested_bytes
        self.capacity_bytes = shortage.capacity_bytes
        self.resident_bytes = shortage.resident_bytes
        self.pinned_bytes = shortage.pinned_bytes
        self.largest_hole_bytes = shortage.largest_hole_bytes
        self.fragmentation = shortage.fragmentation
        self.smallest_budget_bytes = shortage.smallest_budget_bytes
        self.op = shortage.op
        self.peak_demand_bytes = demand
        self.holders = found


def _named_holders() -> Sequence[Holder]:
    if _witnesses:
        with contextlib.suppress(Exception):
            return _witnesses[-1].holders()
    return ()


def _told_demand() -> int | None:
    if _witnesses:
        with contextlib.suppress(Exception):
            return _witnesses[-1].peak_demand_bytes()
    return None


def _in_words(message: str, shortage: Shortage) -> str:
    """The shim's text as people read it; any other stays as it is."""
    text = _SHIM_SIZE.sub(lambda match: _size_of(int(match[1])), message)
    return _SHIM_FIGURES.sub(
        lambda _: (
            f"{format_bytes(shortage.resident_bytes or 0)} in use, {format_bytes(shortage.pinned_bytes or 0)} of it "
            f"cannot be evicted now; {format_bytes(shortage.free_bytes or 0)} free, "
            f"{format_bytes(shortage.largest_hole_bytes or 0)} of it in one piece"
        ),
        text,
    )


def _figures(message: str) -> list[str]:
    """What `_in_words` rounds, as the shim says it."""
    return [f"{_TO_THE_BYTE}{figures[0]}." for figures in _SHIM_FIGURES.finditer(message)]


def _remarks(shortage: Shortage, holders: Sequence[Holder], demand_bytes: int | None) -> list[str]:
    """What follows from the numbers, sentence by sentence."""
    remarks = []
    smallest, capacity = shortage.smallest_budget_bytes, shortage.capacity_bytes
    if smallest is not None and capacity is not None:
        remarks.append(_what_is_missing(smallest, capacity, pinned_bytes=shortage.pinned_bytes or 0))
    too_small = max(smallest or 0, capacity or 0)
    if demand_bytes is not None and too_small and demand_bytes > too_small:
        advice = advise_budget(too_small, enough_bytes=demand_bytes, write=_size_of)
        remarks.append(f"{advice[0].upper()}{advice[1:]}.")
    if any(_OPAQUE_LSTM in op for op in (shortage.op or "", *(holder.op for holder in holders))):
        remarks.append(
            "oneDNN's LSTM keeps what cannot be recomputed: lowtide.budget(..., decompose_rnn=True), or lowtide run "
            "--decompose-rnn, runs it as ordinary ops, with other last bits."
        )
    if holders:
        remarks.append(_who_holds(holders, pinned_bytes=shortage.pinned_bytes or 0))
    return remarks


def _what_is_missing(smallest_bytes: int, capacity_bytes: int, *, pinned_bytes: int) -> str:
    if smallest_bytes > capacity_bytes:
        return f"This op needs a budget of at least {_size_of(smallest_bytes)}; others may need more."
    return (
        f"What is free and what could be evicted are {format_bytes(capacity_bytes - pinned_bytes)} together, enough "
        "but not in one piece: what cannot be evicted lies between."
    )


def _who_holds(holders: Sequence[Holder], *, pinned_bytes: int) -> str:
    """Sums by kind as far as they matter, then the largest holders by name."""
    bytes_by_kind: Counter[str] = Counter()
    for holder in holders:
        bytes_by_kind[holder.kind] += holder.size_bytes
    bytes_by_kind[_UNNAMED] = max(pinned_bytes - bytes_by_kind.total(), 0)
    least_bytes = bytes_by_kind.total() * _LEAST_SHARE
    sums = ", ".join(
        f"{kind} {format_bytes(size_bytes)}"
        for kind, size_bytes in bytes_by_kind.most_common()
        if size_bytes > least_bytes
    )
    named = ", ".join(map(str, holders[:_MOST_NAMED]))
    more = f", {len(holders) - _MOST_NAMED} more" if len(holders) > _MOST_NAMED else ""
    return f"Held by {sums}: {named}{more}."


def _size_of(size_bytes: int) -> str:
    """For people, and to the byte: ``"1.50 MiB (1572864 bytes)"``."""
    return f"{format_bytes(size_bytes)} ({size_bytes} bytes)"
