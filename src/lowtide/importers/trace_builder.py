"""Writes a trace from what a program does to storages: the bookkeeping that recorders and log readers share.

A program sees tensors that share and mutate storages; a trace has values in SSA form. This keeps, for each storage, the
value that stands for its contents now (its *owner*) and the values that are views of those contents:

    x = ones(4)      leaf                    storage s: owner v0
    y = x.view(2, 2) alias      v1 -> v0     storage s: owner v0, views v1
    y.add_(1)        overwrites v2 -> v0     storage s: owner v2             v1 and v0 are released
    x.sum()          reads v2

Writing to a storage, through whatever view, makes a new owner and releases all values that stood for the old contents:
the program cannot read those any more. A view that is read after that, without being made anew, is read as the owner.
When a storage dies, its values are released, the youngest first.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lowtide.ir import Call, Event, InputKind, Mark, MarkKind
from lowtide.ir.trace_sizes import LEAF_OP
from lowtide.units import align_up

__all__ = ["Result", "Storage", "TraceBuilder", "Write"]


@dataclass(slots=True, eq=False)
class Storage:
    """The bytes that aliasing tensors share, as the program sees them.

    Attributes:
        owner: The value that stands for the contents now.
        size_bytes: Bytes as the program asked for them.
        value_by_view: The values that stand for the contents now, by how the program looks at them; the owner included.
        is_leaf: Whether no op produced it; writing to it does not change that.
        first_owner: The first value that stood for its contents.
        is_pinned: Whether the owner has been pinned.
    """

    owner: str
    size_bytes: int
    value_by_view: dict[Hashable, str] = field(default_factory=dict)
    is_leaf: bool = False
    is_pinned: bool = False
    first_owner: str = ""

    def __post_init__(self) -> None:
        self.first_owner = self.first_owner or self.owner

    def value_at(self, view: Hashable) -> str:
        """The value that a reader with this view reads."""
        return self.value_by_view.get(view, self.owner)

    def values(self) -> tuple[str, ...]:
        """All values that stand for the contents now, the youngest first, the owner last."""
        views = [value for value in self.value_by_view.values() if value != self.owner]
        return (*reversed(dict.fromkeys(views)), self.owner)


@dataclass(frozen=True, slots=True)
class Write:
    """A storage that a call wrote to.

    Attributes:
        storage: Which.
        view: How the program looked at it.
        new_size_bytes: Where the call allocated other bytes for it (``resize_``): how many. None otherwise.
    """

    storage: Storage
    view: Hashable
    new_size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """A tensor that a call returned.

    Attributes:
        storage: The storage if it was known before the call; any other key that results on one new storage share.
        view: How the program looks at it.
        size_bytes: Bytes of a new storage.
    """

    storage: Storage | Hashable
    view: Hashable
    size_bytes: int = 0


class TraceBuilder:
    """Collects the events of one trace.

    Args:
        alignment: Sizes are rounded up to a multiple of it, in bytes.
    """

    def __init__(self, *, alignment: int) -> None:
        self.alignment = alignment
        self._events: list[Event] = []
        self._num_values = 0
        self._position_by_leaf: dict[str, int] = {}

    def leaf(self, *, view: Hashable, size_bytes: int, kind: InputKind) -> Storage:
        """A storage that no op produced has come into sight."""
        storage = Storage(self._new_value(), size_bytes, is_leaf=True)
        storage.value_by_view[view] = storage.owner
        self._position_by_leaf[storage.owner] = len(self._events)
        meta = {"size_bytes": {storage.owner: align_up(size_bytes, self.alignment)}, "kind": str(kind)}
        self._events.append(Call(op=LEAF_OP, inputs=(), outputs=(storage.owner,), meta=meta))
        return storage

    def set_leaf_kind(self, storage: Storage, kind: InputKind) -> None:
        """Correct what a leaf is, once that is known."""
        position = self._position_by_leaf[storage.first_owner]
        event = self._events[position]
        assert isinstance(event, Call)
        self._events[position] = replace(event, meta={**event.meta, "kind": str(kind)})

    def call(
        self,
        op: str,
        *,
        reads: Sequence[tuple[Storage, Hashable]],
        writes: Sequence[Write] = (),
        results: Sequence[Result] = (),
        cost: int = 0,
        rng: bool = False,
        backward: bool = False,
        meta: Mapping[str, Any] | None = None,
    ) -> dict[Hashable, Storage]:
        """One execution of an op.

        A call that neither writes nor returns anything new (``detach``, a view that is already known) is left out.

        Args:
            op: What was executed.
            reads: What it read: storages, and how the program looked at them.
            writes: Which of them it wrote to.
            results: What it returned.
            cost: Modelled duration.
            rng: Whether it draws random numbers.
            backward: Whether it ran inside backward.
            meta: Annotations.

        Returns:
            The new storages, by the keys that the results gave.
        """
        inputs = dict.fromkeys(storage.value_at(view) for storage, view in reads)
        inputs.update(dict.fromkeys(write.storage.owner for write in writes))
        source_by_storage = {storage: storage.value_at(view) for storage, view in reversed(reads)}
        draft = _Draft()
        superseded: list[str] = []
        for write in {write.storage: write for write in writes}.values():
            superseded += write.storage.values()
            self._write(draft, write)
            source_by_storage[write.storage] = write.storage.owner
        for result in results:
            self._return(draft, result, source_by_storage)
        if draft.outputs or (reads and not results):
            annotations = {"size_bytes": draft.sizes} if draft.sizes else {}
            self._events.append(
                Call(
                    op=op,
                    inputs=tuple(inputs),
                    outputs=tuple(draft.outputs),
                    alias_by_output=draft.alias_by_output,
                    overwrites_by_output=draft.overwrites_by_output,
                    cost=cost,
                    rng=rng,
                    backward=backward,
                    meta={**annotations, **(meta or {})},
                )
            )
        self._events.extend(Mark(MarkKind.RELEASE, value) for value in superseded)
        return draft.storage_by_key

    def pin(self, storage: Storage) -> None:
        """What stands for a storage now must never be evicted: it has become a parameter."""
        if not storage.is_pinned:
            storage.is_pinned = True
            self._events.append(Mark(MarkKind.PIN, storage.owner))

    def release(self, storage: Storage) -> None:
        """The program's last reference to a storage is gone."""
        self._events.extend(Mark(MarkKind.RELEASE, value) for value in storage.values())

    def release_views(self, storage: Storage) -> None:
        """At the end of a trace: of a storage that lives on, only the owner stays."""
        self._events.extend(Mark(MarkKind.RELEASE, value) for value in storage.values()[:-1])

    def events(self) -> tuple[Event, ...]:
        """All events; leaves that were there before (all but users' and constants) stand first."""
        early = {position for position in self._position_by_leaf.values() if _is_leaf_of_before(self._events[position])}
        first = [self._events[position] for position in sorted(early)]
        return (*first, *(event for position, event in enumerate(self._events) if position not in early))

    def _write(self, draft: _Draft, write: Write) -> None:
        storage, value = write.storage, self._new_value()
        draft.outputs.append(value)
        if write.new_size_bytes is None:
            draft.overwrites_by_output[value] = storage.owner
        else:
            draft.sizes[value] = align_up(write.new_size_bytes, self.alignment)
            storage.size_bytes = write.new_size_bytes
            storage.is_leaf = False
        storage.owner = value
        storage.value_by_view = {write.view: value}
        storage.is_pinned = False

    def _return(self, draft: _Draft, result: Result, source_by_storage: Mapping[Storage, str]) -> None:
        known = result.storage if isinstance(result.storage, Storage) else draft.storage_by_key.get(result.storage)
        if known is None:
            value = self._new_value()
            draft.outputs.append(value)
            draft.sizes[value] = align_up(result.size_bytes, self.alignment)
            draft.storage_by_key[result.storage] = Storage(value, result.size_bytes, {result.view: value})
            return
        source = known.owner if known.owner in draft.outputs else source_by_storage.get(known)
        if result.view in known.value_by_view or source is None:
            return  # known already, or an op returned what it was not given: then the owner stands for it
        value = self._new_value()
        draft.outputs.append(value)
        draft.alias_by_output[value] = source
        known.value_by_view[result.view] = value

    def _new_value(self) -> str:
        self._num_values += 1
        return f"v{self._num_values - 1}"


@dataclass(slots=True)
class _Draft:
    """The outputs of a call that is being written."""

    outputs: list[str] = field(default_factory=list)
    alias_by_output: dict[str, str] = field(default_factory=dict)
    overwrites_by_output: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    storage_by_key: dict[Hashable, Storage] = field(default_factory=dict)


def _is_leaf_of_before(event: Event) -> bool:
    early = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.STATE)
    return isinstance(event, Call) and event.meta["kind"] in early
