"""Out of memory: one of torch's errors and one of ours, with its numbers, known to those who retry."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from accelerate.utils import find_executable_batch_size

from lowtide.errors import LowtideError
from lowtide.runtime.errors import Holder, LowtideOutOfMemory, Shortage, names_holders, read_shortage

ROOT = Path(__file__).parents[3]
MIB = 1 << 20
# What native/torch_shim_errors.hpp makes of: capacity 4 MiB, 1 MiB asked, 3 MiB + 100 of 3.5 MiB cannot be evicted.
TEXT = (
    f"DefaultCPUAllocator: can't allocate memory: the budget of {4 * MIB} bytes has no room for {MIB} bytes more in "
    f"aten::mm: resident {3 * MIB + MIB // 2}, locked {MIB}, unevictable {2 * MIB + 100}, free {MIB // 2}, largest "
    f"hole {MIB // 4}. Raise the budget or make the batch smaller."
)
THRASHING = (
    "DefaultCPUAllocator: can't allocate memory: the budget of 4096 bytes is too small for aten::mm: recomputing 9 "
    "times. Raise the budget or make the batch smaller."
)
HOLDERS = (Holder("encoder.0", "aten::embedding", 2 * MIB), Holder("", "", MIB), Holder("head", "", 512))


def test_it_is_what_callers_catch() -> None:
    error = LowtideOutOfMemory(TEXT)
    for kind in (torch.OutOfMemoryError, torch.cuda.OutOfMemoryError, RuntimeError, LowtideError):
        assert isinstance(error, kind)
    assert len(error.args) == 1


def test_the_numbers_are_attributes() -> None:
    error = LowtideOutOfMemory(TEXT)
    assert error.requested_bytes == MIB
    assert error.capacity_bytes == 4 * MIB
    assert error.resident_bytes == 3 * MIB + MIB // 2
    assert error.pinned_bytes == 3 * MIB + 100
    assert error.largest_hole_bytes == MIB // 4
    assert error.fragmentation == 0.125
    assert error.smallest_budget_bytes == 4 * MIB + 4096  # the next page after 4 MiB + 100 bytes
    assert error.op == "aten::mm"
    assert error.holders == ()
    assert (
        str(error)
        == f"{TEXT} This op needs a budget of at least 4.00 MiB ({4 * MIB + 4096} bytes); others may need more."
    )


def test_fragmentation_is_named_as_the_reason() -> None:
    error = LowtideOutOfMemory(TEXT.replace(f"unevictable {2 * MIB + 100}", "unevictable 0"))
    assert error.smallest_budget_bytes == 2 * MIB
    assert str(error).endswith("smaller. The bytes are there, but not in one piece: 12.5 % free.")


def test_thrashing_tells_budget_and_op() -> None:
    error = LowtideOutOfMemory(THRASHING)
    assert (error.capacity_bytes, error.op) == (4096, "aten::mm")
    assert (error.requested_bytes, error.fragmentation, error.smallest_budget_bytes) == (None, None, None)
    assert str(error) == THRASHING


def test_a_request_outside_any_op() -> None:
    assert LowtideOutOfMemory(TEXT.replace("in aten::mm:", "in no op:")).op is None
    assert LowtideOutOfMemory(THRASHING.replace("for aten::mm:", "for this program:")).op is None


def test_an_unknown_text_stays_as_it_is() -> None:
    assert read_shortage("no numbers here") == Shortage()
    assert str(LowtideOutOfMemory("no numbers here")) == "no numbers here"


def test_holders_are_named() -> None:
    many = (*HOLDERS, Holder("tail", "aten::add", 1))
    error = LowtideOutOfMemory(THRASHING, holders=many)
    assert error.holders == many
    assert str(error) == (
        f"{THRASHING} Held by encoder.0 (aten::embedding) 2.00 MiB, no module 1.00 MiB, head 512 B, 1 more."
    )


def test_holders_come_from_whoever_knows_them() -> None:
    """The shim knows the text only; the innermost session adds the names."""

    def fail() -> Sequence[Holder]:
        raise ZeroDivisionError

    with names_holders(lambda: HOLDERS):
        assert LowtideOutOfMemory(THRASHING).holders == HOLDERS
        with names_holders(fail):
            assert LowtideOutOfMemory(THRASHING).holders == ()
        assert LowtideOutOfMemory(THRASHING, holders=HOLDERS[:1]).holders == HOLDERS[:1]
    assert LowtideOutOfMemory(THRASHING).holders == ()


@pytest.mark.parametrize("travel", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))], ids=["copy", "pickle"])
def test_it_travels(travel: Callable[[LowtideOutOfMemory], LowtideOutOfMemory]) -> None:
    error = LowtideOutOfMemory(TEXT, holders=HOLDERS)
    with names_holders(lambda: HOLDERS[:1]):  # not asked again
        arrived = travel(error)
    assert type(arrived) is LowtideOutOfMemory
    assert arrived.args == error.args
    assert vars(arrived) == vars(error)


@pytest.mark.parametrize("text", [TEXT, THRASHING])
def test_accelerate_retries_with_a_smaller_batch(text: str) -> None:
    tried = []

    @find_executable_batch_size(starting_batch_size=10)
    def train(batch_size: int) -> int:
        tried.append(batch_size)
        if batch_size > 8:
            raise LowtideOutOfMemory(text, holders=HOLDERS)
        return batch_size

    assert train() == 8
    assert tried == [10, 9, 8]


def test_the_shim_writes_what_is_read_here() -> None:
    written = (ROOT / "native" / "torch_shim_errors.hpp").read_text(encoding="utf-8")
    for piece in (
        "DefaultCPUAllocator: can't allocate memory: the budget of ",
        " bytes has no room for ",
        " bytes more in ",
        " bytes is too small for ",
        *('"no op"', '"this program"', ": resident ", ", locked ", ", unevictable ", ", free ", ", largest hole "),
    ):
        assert piece in written, piece
