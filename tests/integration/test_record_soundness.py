"""A recording says the truth: whenever a call reads a value, the bytes are those that the value was produced with.

A second dispatch mode looks at the bytes of every storage before and after each op, and at what the recorder wrote down
for it. An op that mutates something behind its schema's back, a wrong version, a view that is read as what it no longer
is: each would show here.
"""

from __future__ import annotations

import ctypes
import hashlib
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="recordings are of torch programs")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from lowtide.importers.torch_record import Recorder  # noqa: E402
from lowtide.importers.torch_record_call import EagerCall, tensors_in  # noqa: E402
from lowtide.ir import Call, Mark, MarkKind  # noqa: E402
from lowtide.ir.trace_sizes import LEAF_OP  # noqa: E402
from lowtide.models import training_program  # noqa: E402
from lowtide.referee import check_trace  # noqa: E402


class _Witness(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's
    """Sees each op before the recorder does, and checks afterwards what that wrote down."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's
        self.events = recorder._watch.builder._events
        self.digest_by_value: dict[str, str] = {}
        self.storage_by_value: dict[str, int] = {}
        self.num_reads = 0
        self.num_seen = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._forget_released()
        call = EagerCall(func, args, kwargs or {})
        arguments = call.reads()
        before = {storage_of(tensor): digest_of(tensor) for tensor in arguments}
        sizes = {storage_of(tensor): tensor.untyped_storage().nbytes() for tensor in arguments}
        first_event = len(self.events)
        result = func(*args, **(kwargs or {}))
        new_events = self.events[first_event:]
        for event in new_events:
            if isinstance(event, Call):
                self._check(event, before, sizes, [*arguments, *tensors_in(result)])
        return result

    def _check(self, event: Call, before: dict[int, str], sizes: dict[int, int], tensors: list[Any]) -> None:
        if event.op == LEAF_OP:
            (name,) = event.outputs
            known = set(self.storage_by_value.values())
            storage = next(key for key in before if key not in known)
            self.storage_by_value[name], self.digest_by_value[name] = storage, before[storage]
            return
        for name in event.inputs:
            self.num_reads += 1
            assert self.digest_by_value[name] == before[self.storage_by_value[name]], (event.op, name)
        assert {self.storage_by_value[name] for name in event.inputs} == set(before), event.op
        after = {storage_of(tensor): digest_of(tensor) for tensor in tensors}
        known = set(self.storage_by_value.values())
        fresh = [key for key in before if size_of(key, tensors) not in (sizes[key], None)]  # given other bytes
        fresh += [key for key in after if key not in known]
        for name in event.outputs:
            source = event.alias_by_output.get(name) or event.overwrites_by_output.get(name)
            storage = self.storage_by_value[source] if source is not None else fresh.pop(0)
            self.storage_by_value[name], self.digest_by_value[name] = storage, after[storage]
        assert not fresh, (event.op, "returned a storage that is no output")

    def _forget_released(self) -> None:
        """Addresses of released storages may be those of new ones."""
        for event in self.events[self.num_seen :]:
            if isinstance(event, Mark) and event.event is MarkKind.RELEASE:
                self.storage_by_value.pop(event.id)
        self.num_seen = len(self.events)


def storage_of(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)


def size_of(storage: int, tensors: list[Any]) -> int | None:
    """Bytes of the storage now, or None if no tensor is on it any more."""
    sizes = (tensor.untyped_storage().nbytes() for tensor in tensors if storage_of(tensor) == storage)
    return next(sizes, None)


def digest_of(tensor: Any) -> str:
    """Of the bytes of the whole storage, read past torch: ``numpy()`` would forbid resizing it."""
    storage = tensor.untyped_storage()
    data = ctypes.string_at(storage.data_ptr(), storage.nbytes()) if storage.nbytes() else b""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


@pytest.mark.parametrize(
    "name",
    [
        "unet_tiny",
        "resnet50_like_tiny",
        "densenet121_like_tiny",
        "bilstm_tiny",
        "bilstm_decomposed_tiny",
        "tree_lstm_tiny",
        "supernet_tiny",
        "mixture_of_experts_tiny",
    ],
)
def test_what_a_call_reads_is_what_was_produced(name: str) -> None:
    program = training_program(name)
    program.step(0)
    recorder = Recorder()
    with recorder, _Witness(recorder) as witness:
        program.step(1)
    assert witness.num_reads > 100
    check_trace(recorder.trace())


def random_program(rng: Random, tensors: list[Any], num_ops: int) -> None:
    """Fresh tensors, views of views, writes through any of them, lists, growing out=, set_, deletions."""

    def any_tensor() -> Any:
        return rng.choice(tensors)

    for _ in range(num_ops):
        x, y = any_tensor(), any_tensor()
        kind = rng.randrange(11)
        if kind == 0:
            tensors.append(x * 1.5 + torch.rand(()))
        elif kind == 1:
            tensors.append(x[: max(1, len(x) // 2)])
        elif kind == 2:
            tensors.append(x.view(1, -1)[0, len(x) // 3 :] if x.is_contiguous() and len(x) > 3 else x.detach())
        elif kind == 3:
            x.add_(rng.random())
        elif kind == 4:
            x[: len(y)].mul_(y[: len(x)].clone())
        elif kind == 5:
            torch._foreach_add_([x, y] if storage_of(x) != storage_of(y) else [x], rng.random())
        elif kind == 6:
            torch.mul(x.clone(), 2.0, out=y if len(y) == len(x) else torch.empty(0))
        elif kind == 7:
            tensors.extend(x.sort()[:1])
        elif kind == 8 and len(tensors) > 4:
            tensors.pop(rng.randrange(len(tensors)))
        elif kind == 9:
            tensors.append(torch.cat([x, y])[:16])
        elif kind == 10:
            z = torch.rand(3)
            z.set_(x)
            tensors.append(z)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_random_programs_are_told_truly(seed: int, num_ops: int) -> None:
    outside = [torch.rand(8), torch.rand(5), torch.rand(12)[2:9]]
    recorder = Recorder()
    with recorder, _Witness(recorder):
        tensors = list(outside)
        random_program(Random(seed), tensors, num_ops)
        del tensors
    check_trace(recorder.trace())
