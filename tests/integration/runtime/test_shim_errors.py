"""A budget that is too small ends in LowtideOutOfMemory, wherever that happens, and leaves everything usable."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent))

import shim_cases as cases
import torch

from lowtide.runtime.errors import LowtideOutOfMemory

MIB = 2**20


def test_an_op_that_cannot_fit(shim: ModuleType) -> None:
    with cases.arena(shim, MIB):
        with pytest.raises(LowtideOutOfMemory, match=r"DefaultCPUAllocator: can't allocate memory") as caught:
            torch.ones(1000, 1000)
        assert isinstance(caught.value, torch.OutOfMemoryError)
        assert caught.value.capacity_bytes == MIB
        assert caught.value.requested_bytes == 4_000_000
        assert torch.ones(100, 100).sum().item() == 10_000


def test_inputs_and_output_that_cannot_be_there_together(shim: ModuleType) -> None:
    source = torch.ones(256, 300)
    with cases.arena(shim, MIB):
        values = [source * step for step in range(1, 8)]
        with pytest.raises(LowtideOutOfMemory, match=r"in aten::cat|in aten::mul"):
            torch.cat(values)
        for step, value in enumerate(values, start=1):
            assert torch.equal(value, torch.ones(256, 300) * step)


class _Greedy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, value: torch.Tensor) -> torch.Tensor:
        return value * 2

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        return torch.ones(1000, 1000)[: len(gradient), 0] * gradient


def test_from_inside_backward(shim: ModuleType) -> None:
    leaf = torch.ones(10, requires_grad=True)
    with cases.arena(shim, MIB):
        loss = _Greedy.apply(leaf).sum()
        with pytest.raises(LowtideOutOfMemory):
            loss.backward()
        assert leaf.grad is None
        (leaf * 3).sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [3.0] * 10


def test_training_goes_on_after_an_error(shim: ModuleType) -> None:
    case = cases.CASES["convolutional"]
    model, batches = case.make()
    with cases.arena(shim, 4 * MIB):
        with pytest.raises(LowtideOutOfMemory):
            case.loss(model, torch.cat([batches[0]] * 40))
        resident = shim.stats()["resident_bytes"]
        assert resident < MIB
        case.loss(model, batches[0][:2]).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_an_op_that_fails_by_itself(shim: ModuleType) -> None:
    with cases.arena(shim):
        left, right = torch.ones(300, 200) * 2, torch.ones(300, 200) * 3
        assert shim.evict(left)
        with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
            left @ right
        assert shim.evict(left)  # no lock is left behind
        with pytest.raises(RuntimeError, match="must match"):
            left.add_(torch.ones(7, 7))
        assert torch.equal(left, torch.full((300, 200), 2.0))


def test_a_search_for_the_batch_size_finds_one(shim: ModuleType) -> None:
    accelerate = pytest.importorskip("accelerate")
    tried: list[int] = []

    @accelerate.utils.find_executable_batch_size(starting_batch_size=4096)
    def run(batch_size: int) -> int:
        tried.append(batch_size)
        with cases.arena(shim, MIB):
            torch.ones(batch_size, 1024)
        return batch_size

    assert run() < 256
    assert tried[0] == 4096
