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
FIGURES = (
    f"resident {3 * MIB + MIB // 2}, locked {MIB}, unevictable {2 * MIB + 100}, free {MIB // 2}, largest hole "
    f"{MIB // 4}"
)
TEXT = (
    f"DefaultCPUAllocator: can't allocate memory: the budget of {4 * MIB} bytes has no room for {MIB} bytes more in "
    f"aten::mm: {FIGURES}. Raise the budget or make the batch smaller."
)
IN_WORDS = (
    f"DefaultCPUAllocator: can't allocate memory: the budget of 4.00 MiB ({4 * MIB} bytes) has no room for 1.00 MiB "
    f"({MIB} bytes) more in aten::mm: 3.50 MiB in use, 3.00 MiB of it cannot be evicted now; 512.0 KiB free, 256.0 KiB "
    "of it in one piece. Raise the budget or make the batch smaller."
)
NEEDS = f"This op needs a budget of at least 4.00 MiB ({4 * MIB + 4096} bytes); others may need more."
THRASHING = (
    f"DefaultCPUAllocator: can't allocate memory: the budget of {70 * MIB} bytes is too small for aten::mm: "
    "recomputation has taken more time than allowed. Raise the budget or make the batch smaller."
)
THRASHING_IN_WORDS = (
    f"DefaultCPUAllocator: can't allocate memory: the budget of 70.0 MiB ({70 * MIB} bytes) is too small for aten::mm: "
    "recomputation has taken more time than allowed. Raise the budget or make the batch smaller."
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
    assert str(error) == f"{IN_WORDS} {NEEDS} To the byte: {FIGURES}."


def test_fragmentation_is_named_as_the_reason() -> None:
    """Also where less is free than was asked for: what could be evicted counts."""
    error = LowtideOutOfMemory(TEXT.replace(f"unevictable {2 * MIB + 100}", "unevictable 0"))
    assert error.smallest_budget_bytes == 2 * MIB
    assert (
        "smaller. What is free and what could be evicted are 3.00 MiB together, enough but not in one piece: what "
        "cannot be evicted lies between. To the byte: "
    ) in str(error)


@pytest.mark.parametrize("text", [TEXT, THRASHING, TEXT.replace("in aten::mm:", "in no op:")])
def test_an_errors_own_text_tells_the_same_numbers(text: str) -> None:
    """Loaders and replicas raise an error of another process again, of nothing but its text."""
    error = LowtideOutOfMemory(text, holders=HOLDERS, peak_demand_bytes=90 * MIB)
    assert read_shortage(str(error)) == read_shortage(text)
    again = LowtideOutOfMemory(f"Caught LowtideOutOfMemory in a worker. {error}", holders=HOLDERS)
    assert str(again).startswith(f"Caught LowtideOutOfMemory in a worker. {error} ")
    assert again.smallest_budget_bytes == error.smallest_budget_bytes


def test_thrashing_tells_budget_and_op() -> None:
    error = LowtideOutOfMemory(THRASHING)
    assert (error.capacity_bytes, error.op) == (70 * MIB, "aten::mm")
    assert (error.requested_bytes, error.fragmentation, error.smallest_budget_bytes) == (None, None, None)
    assert error.peak_demand_bytes is None
    assert str(error) == THRASHING_IN_WORDS


def test_what_else_thrashing_says_of_the_reason_stays() -> None:
    other = THRASHING.replace("recomputation has taken more time than allowed", "cells push")
    assert str(LowtideOutOfMemory(other)).endswith(
        " is too small for aten::mm: cells push. Raise the budget or make the batch smaller."
    )


def test_thrashing_names_a_budget_to_try() -> None:
    error = LowtideOutOfMemory(THRASHING, peak_demand_bytes=424 * MIB)
    assert error.peak_demand_bytes == 424 * MIB
    assert str(error) == (
        f"{THRASHING_IN_WORDS} Try 247.0 MiB ({247 * MIB} bytes), which should be comfortable (less may do): of 424.0 "
        f"MiB ({424 * MIB} bytes) nothing would have been evicted so far."
    )


def test_a_shortage_names_a_budget_to_try_above_what_the_op_needs() -> None:
    error = LowtideOutOfMemory(TEXT, peak_demand_bytes=8 * MIB + 4096)
    assert str(error) == (
        f"{IN_WORDS} {NEEDS} Try 6.00 MiB ({6 * MIB + 4096} bytes), which should be comfortable (less may do): of 8.00 "
        f"MiB ({8 * MIB + 4096} bytes) nothing would have been evicted so far. To the byte: {FIGURES}."
    )


@pytest.mark.parametrize("demand_bytes", [None, 0, 4 * MIB + 4096])
def test_nothing_is_advised_that_is_known_to_be_too_small(demand_bytes: int | None) -> None:
    assert "Try " not in str(LowtideOutOfMemory(TEXT, peak_demand_bytes=demand_bytes))
    assert "Try " not in str(LowtideOutOfMemory("no numbers here", peak_demand_bytes=demand_bytes))


LSTM = (
    "oneDNN's LSTM keeps what cannot be recomputed: lowtide.budget(..., decompose_rnn=True), or lowtide run "
    "--decompose-rnn, runs it as ordinary ops, with other last bits."
)


@pytest.mark.parametrize("op", ["aten::mkldnn_rnn_layer", "aten::mkldnn_rnn_layer_backward"])
def test_the_option_for_an_lstm_is_named_where_it_asks_and_where_it_holds(op: str) -> None:
    assert f" others may need more. {LSTM} To the byte: " in str(LowtideOutOfMemory(TEXT.replace("aten::mm", op)))
    error = LowtideOutOfMemory(THRASHING, holders=[Holder("", op, MIB)])
    assert str(error).endswith(f" {LSTM} Held by results of ops 1.00 MiB: no module ({op}) 1.00 MiB.")
    assert LSTM not in str(LowtideOutOfMemory(TEXT, holders=HOLDERS))


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
        f"{THRASHING_IN_WORDS} Held by results of ops 2.00 MiB, other tensors 1.00 MiB: encoder.0 (aten::embedding) "
        "2.00 MiB, no module 1.00 MiB, head 512 B, 1 more."
    )


def test_what_is_held_is_summed_up_by_kind() -> None:
    """What is less than a hundredth is left out; what nobody holds by name is what the op works on."""
    size_by_kind = {"scratch": MIB // 2, "state": MIB // 4, "aten::add": MIB // 4, "parameters": MIB // 8, "buffers": 9}
    holders = [Holder(f"m.{i}", kind, size) for kind, size in size_by_kind.items() for i in range(2)]
    assert (
        " Held by scratch 1.00 MiB, inputs of the op and others 768.1 KiB, optimizer state 512.0 KiB, results of ops "
        "512.0 KiB, parameters 256.0 KiB: m.0 (scratch) 512.0 KiB, m.1 (scratch) 512.0 KiB, m.0 (state) 256.0 KiB, "
        "7 more."
    ) in str(LowtideOutOfMemory(TEXT, holders=holders))


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


def test_the_demand_comes_from_whoever_knows_it() -> None:
    def fail() -> int:
        raise ZeroDivisionError

    with names_holders(lambda: (), peak_demand_bytes=lambda: 90 * MIB):
        assert LowtideOutOfMemory(THRASHING).peak_demand_bytes == 90 * MIB
        assert LowtideOutOfMemory(THRASHING, peak_demand_bytes=MIB).peak_demand_bytes == MIB
        with names_holders(lambda: HOLDERS, peak_demand_bytes=fail):
            assert LowtideOutOfMemory(THRASHING).peak_demand_bytes is None
            assert LowtideOutOfMemory(THRASHING).holders == HOLDERS
    assert LowtideOutOfMemory(THRASHING).peak_demand_bytes is None


@pytest.mark.parametrize("travel", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))], ids=["copy", "pickle"])
def test_it_travels(travel: Callable[[LowtideOutOfMemory], LowtideOutOfMemory]) -> None:
    error = LowtideOutOfMemory(THRASHING, holders=HOLDERS, peak_demand_bytes=90 * MIB)
    with names_holders(lambda: HOLDERS[:1], peak_demand_bytes=lambda: 95 * MIB):  # not asked again
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
