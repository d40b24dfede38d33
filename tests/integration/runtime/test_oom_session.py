"""Out of memory in a session: what the error tells, who catches it, and that all is usable afterwards."""

from __future__ import annotations

import contextlib
import copy
import pickle
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent))

import torch
from session_cases import MIB, evictable, evicted, expected, nothing_left, session_of, source  # noqa: F401
from torch import nn

import lowtide
from lowtide.runtime.errors import LowtideOutOfMemory, read_shortage


class Model(nn.Module):
    """Weights of 1 MiB in "body"."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(512, 512, bias=False))


def test_the_error_says_what_was_asked_and_who_holds_the_rest(shim: ModuleType) -> None:
    with session_of(4 * MIB):
        model = Model()
        model.body(torch.ones(2, 512)).sum().backward()
        with pytest.raises(LowtideOutOfMemory) as caught:
            torch.ones(1024, 1024).mul(2)
        error = caught.value
        assert error.requested_bytes == 4 * MIB
        assert error.capacity_bytes == 4 * MIB
        assert error.pinned_bytes is not None
        assert error.resident_bytes is not None
        assert error.pinned_bytes >= 2 * MIB
        assert error.resident_bytes >= error.pinned_bytes - 128 * 1024  # slabs count as a whole
        assert error.largest_hole_bytes is not None
        assert error.fragmentation is not None
        assert 0 < error.largest_hole_bytes <= error.fragmentation * 4 * MIB
        holders = {(holder.module, holder.op): holder.size_bytes for holder in error.holders}
        assert holders["Model.body.0", "parameters"] == MIB
        assert holders["Model.body.0", "gradients"] == MIB
        assert "Held by parameters 1.00 MiB, gradients 1.00 MiB: Model.body.0 (parameters) 1.00 MiB" in str(error)
        assert read_shortage(str(error)).pinned_bytes == error.pinned_bytes
        assert "needs a budget of at least" in str(error)
        del model


def test_the_smallest_budget_is_a_bound(shim: ModuleType) -> None:
    """Below what the error names the op cannot run; not much above it, it does."""

    def run(budget_bytes: int) -> None:
        with session_of(budget_bytes):
            weight = torch.ones(512, 512, requires_grad=True)
            torch.mm(torch.ones(768, 512), weight)

    with pytest.raises(LowtideOutOfMemory) as caught:
        run(3 * MIB)
    smallest = caught.value.smallest_budget_bytes
    assert smallest is not None
    assert smallest > 3 * MIB
    for below in (smallest - 4096, smallest - 64 * 1024):
        with pytest.raises(LowtideOutOfMemory):
            run(below)
    run(smallest + 128 * 1024)  # one slab for small values


def test_inputs_of_the_op_are_named_by_the_op_that_made_them(shim: ModuleType) -> None:
    with session_of(2 * MIB):
        one, other = source(0, size=400) * 2, source(1, size=400) * 2
        with pytest.raises(LowtideOutOfMemory) as caught:
            torch.cat([one, other])
        assert caught.value.op == "aten::cat"
        assert ("", "aten::mul.Tensor") in {(holder.module, holder.op) for holder in caught.value.holders}
        assert torch.equal(one, source(0, size=400) * 2)


def test_the_session_goes_on(shim: ModuleType) -> None:
    with session_of(2 * MIB) as session:
        value = evicted(shim)
        for _ in range(3):
            with pytest.raises(LowtideOutOfMemory):
                torch.ones(1024, 1024)
        assert torch.equal(value, source() * 2 + 1)
        assert shim.evict(value)
    assert torch.equal(value, expected())
    assert session.stats.resident_bytes < MIB


def test_from_inside_backward(shim: ModuleType) -> None:
    def make() -> tuple[nn.Module, torch.Tensor]:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 512)), torch.randn(64, 64)

    model, batch = make()
    model(batch).sum().backward()
    with session_of(3 * MIB) as session:
        tight, batch = make()
        loss = tight(batch).sum()
        ballast = []
        with contextlib.suppress(LowtideOutOfMemory):
            while True:
                ballast.append(session.pin(torch.empty(64, 256)))
        with pytest.raises(LowtideOutOfMemory):
            loss.backward()
        del ballast, loss
        tight.zero_grad()
        tight(batch).sum().backward()
    for one, other in zip(model.parameters(), tight.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.equal(one.grad, other.grad)


def test_accelerate_finds_a_batch_that_fits_and_training_goes_on(shim: ModuleType) -> None:
    accelerate = pytest.importorskip("accelerate")
    tried: list[int] = []

    def train(batch_size: int) -> list[float]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(torch.randn(batch_size, 64)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    @accelerate.utils.find_executable_batch_size(starting_batch_size=16384)
    def search(batch_size: int) -> list[float]:
        tried.append(batch_size)
        return train(batch_size)

    with lowtide.budget("2MiB"):
        losses = search()
    assert tried[0] == 16384
    assert 16 < tried[-1] < 16384
    assert losses == train(tried[-1])


def test_the_error_can_be_copied_and_sent(shim: ModuleType) -> None:
    with session_of(2 * MIB), pytest.raises(LowtideOutOfMemory) as caught:
        torch.ones(1024, 1024)
    for other in (copy.copy(caught.value), pickle.loads(pickle.dumps(caught.value))):
        assert isinstance(other, torch.OutOfMemoryError)
        assert other.requested_bytes == 4 * MIB


def test_thrashing_ends_in_an_error(shim: ModuleType) -> None:
    def work() -> None:
        values = [evictable(seed).tanh() for seed in range(120)]
        for _ in range(200):
            for value in values:
                value.sum()

    with session_of(2 * MIB, max_recompute_percent=5.0), pytest.raises(LowtideOutOfMemory, match="too small for"):
        work()
