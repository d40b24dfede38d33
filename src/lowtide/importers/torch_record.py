"""Records what eager PyTorch does as a trace, without a budget: every op of forward, backward and optimizer.

    trace = record(lambda: training_step(model, batch))

A dispatch mode sees the ops, weak references to their storages see when the program's (and autograd's) last reference
is gone. Costs come from a deterministic model, so the same program with the same seed gives the same trace. What a
recording holds beyond ``lowtide.trace`` is told in docs/decisions/trace-recording.md.

Not seen: other threads, sparse and meta tensors, and what ops allocate and free inside.
"""

from __future__ import annotations

import gc
import importlib
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lowtide.importers.torch_record_call import (
    COST_MODEL,
    EagerCall,
    estimate_cost_ns,
    has_storage,
    tensors_in,
    view_of,
)
from lowtide.importers.torch_record_kinds import kind_by_storage, storage_key
from lowtide.importers.trace_builder import Result, Storage, TraceBuilder, Write
from lowtide.ir import InputKind, Trace

__all__ = ["RECORDING_ALIGNMENT_BYTES", "Recorder", "record"]

RECORDING_ALIGNMENT_BYTES = 64
"""What torch's CPU allocator aligns to."""


def record(function: Callable[[], object], *, seed: int | None = None) -> Trace:
    """Record all that one call of a function does with tensors.

    What the function returns is dropped before the recording ends; what it leaves behind elsewhere (gradients,
    optimizer state) is never released in the trace. Python's cyclic garbage collector stands still meanwhile, as it
    would free tensors at moments of its own.

    Args:
        function: What to record, typically one training step that has been run once before.
        seed: Seeds torch's generator first, if given.

    Returns:
        The trace: no budget, no blocks, sizes in the calls' meta.
    """
    if seed is not None:
        torch.manual_seed(seed)
    recorder = Recorder(seed=seed or 0)
    with _without_garbage_collection(), recorder:
        function()
    return recorder.trace()


class Recorder:
    """Records while it is entered; for programs that cannot be put into one function.

    Args:
        seed: Seed of the run, for the trace's header.
    """

    def __init__(self, *, seed: int = 0) -> None:
        self._seed = seed
        self._watch = _StorageWatch(TraceBuilder(alignment=RECORDING_ALIGNMENT_BYTES))
        self._mode = _RecordingMode(self._watch)

    def __enter__(self) -> Recorder:
        # Imported by torch at the first op otherwise, by code whose tracebacks would keep the program's frames alive.
        importlib.import_module("torch._dynamo")
        self._mode.__enter__()  # type: ignore[no-untyped-call]  # torch's
        return self

    def __exit__(self, *error: Any) -> None:
        self._mode.__exit__(*error)  # type: ignore[no-untyped-call]  # torch's
        self._watch.finish()

    def trace(self) -> Trace:
        """What was recorded."""
        num_untracked = self._mode.num_untracked_tensors
        return Trace(
            capacity_bytes=None,
            alignment=RECORDING_ALIGNMENT_BYTES,
            policy=None,
            seed=self._seed,
            cost_model=COST_MODEL,
            events=self._watch.builder.events(),
            meta={
                "source": "torch",
                "torch": torch.__version__,
                **({"untracked_tensors": num_untracked} if num_untracked else {}),
            },
        )


class _StorageWatch:
    """Knows the storages that are alive, and writes down when they die."""

    def __init__(self, builder: TraceBuilder) -> None:
        self.builder = builder
        self._storage_by_key: dict[int, Storage] = {}
        self._reference_by_key: dict[int, weakref.ref[Any]] = {}
        self._num_ops_running = 0
        self._died_meanwhile: list[Storage] = []

    def find(self, tensor: torch.Tensor) -> Storage | None:
        """The storage of a tensor, if it is known."""
        return self._storage_by_key.get(storage_key(tensor))

    def of_argument(self, tensor: torch.Tensor) -> Storage:
        """The storage of an op's argument, which is a leaf where it is new."""
        storage = self.find(tensor)
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        if storage is None:
            kind = InputKind.PARAMETER if is_parameter else InputKind.USER
            size_bytes = tensor.untyped_storage().nbytes()
            storage = self.builder.leaf(view=view_of(tensor), size_bytes=size_bytes, kind=kind)
            self.watch(tensor, storage)
        elif is_parameter and not storage.is_leaf:
            self.builder.pin(storage)
        return storage

    def watch(self, tensor: torch.Tensor, storage: Storage) -> None:
        """Know the storage of a tensor from now on, until it dies."""
        key = storage_key(tensor)
        self._storage_by_key[key] = storage
        self._reference_by_key[key] = weakref.ref(tensor.untyped_storage(), lambda _: self._note_death(key))

    @contextmanager
    def op_running(self) -> Iterator[None]:
        """What dies while an op runs is released after the op: it may have read it."""
        self._num_ops_running += 1
        try:
            yield
        finally:
            self._num_ops_running -= 1
            if not self._num_ops_running:
                dead, self._died_meanwhile = self._died_meanwhile, []
                for storage in dead:
                    self.builder.release(storage)

    def finish(self) -> None:
        """Stop watching: say what the leaves are, and leave only owners of what lives on."""
        kinds = kind_by_storage()
        for key, storage in self._storage_by_key.items():
            if key in kinds and storage.is_leaf:
                self.builder.set_leaf_kind(storage, kinds[key])
            self.builder.release_views(storage)
        self._storage_by_key.clear()
        self._reference_by_key.clear()

    def _note_death(self, key: int) -> None:
        self._reference_by_key.pop(key, None)
        storage = self._storage_by_key.pop(key, None)
        if storage is None:
            return
        if self._num_ops_running:
            self._died_meanwhile.append(storage)
        else:
            self.builder.release(storage)


class _RecordingMode(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's
    """Writes down every op that is dispatched, and runs it as it is."""

    def __init__(self, watch: _StorageWatch) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's
        self._watch = watch
        self.num_untracked_tensors = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        call = EagerCall(func, args, kwargs or {})
        with self._watch.op_running():
            return self._run(call)

    def _run(self, call: EagerCall) -> Any:
        reads = [(self._watch.of_argument(tensor), view_of(tensor)) for tensor in self._tracked(call.reads())]
        written = [(tensor, self._watch.of_argument(tensor)) for tensor in self._tracked(call.writes())]
        result = call.target(*call.args, **call.kwargs)
        results = self._tracked(tensors_in(result))
        writes = [write for tensor, storage in written if (write := self._write_of(tensor, storage)) is not None]
        new = self._watch.builder.call(
            call.name,
            reads=reads,
            writes=writes,
            results=[self._result_of(tensor) for tensor in results],
            cost=estimate_cost_ns(call, result),
            rng=call.draws_random_numbers,
            backward=torch._C._current_graph_task_id() != -1,
            meta=_meta_of(call),
        )
        for tensor in results:
            storage = new.get(storage_key(tensor))
            if storage is not None and self._watch.find(tensor) is None:
                self._watch.watch(tensor, storage)
        return result

    def _write_of(self, tensor: torch.Tensor, storage: Storage) -> Write | None:
        if self._watch.find(tensor) is not storage:
            return None  # the tensor has been given another storage (set_): nothing was written to this one
        size_bytes = tensor.untyped_storage().nbytes()
        return Write(storage, view_of(tensor), new_size_bytes=None if size_bytes == storage.size_bytes else size_bytes)

    def _result_of(self, tensor: torch.Tensor) -> Result:
        known = self._watch.find(tensor)
        key = storage_key(tensor)
        return Result(key if known is None else known, view_of(tensor), tensor.untyped_storage().nbytes())

    def _tracked(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        tracked = [tensor for tensor in tensors if has_storage(tensor)]
        self.num_untracked_tensors += len(tensors) - len(tracked)
        return tracked


def _meta_of(call: EagerCall) -> dict[str, Any]:
    silent = call.silent_writes()
    return {
        **({"unrecorded_writes": list(silent)} if silent else {}),
        **({"recomputable": False} if call.is_opaque else {}),
    }


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
