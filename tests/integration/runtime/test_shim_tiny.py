"""Arenas of some hundred kilobytes: slabs in proportion, waiting values may move, scratch is allowed for."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent))

import shim_cases as cases
import torch
from torch import Tensor, nn


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2))

    def forward(self, images: Tensor) -> Tensor:
        inner = torch.relu(self.norms[0](self.first(images)))
        return torch.relu(images + self.norms[1](self.second(inner)))


def _residual() -> tuple[nn.Module, list[Tensor]]:
    torch.manual_seed(0)
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)]
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), *[_Residual(8) for _ in range(4)], *head)
    return model, [torch.randn(4, 3, 16, 16) for _ in range(3)]


def _perceptron() -> tuple[nn.Module, list[Tensor]]:
    torch.manual_seed(0)
    hidden = [layer for _ in range(6) for layer in (nn.Linear(32, 32), nn.Tanh())]
    return nn.Sequential(*hidden, nn.Linear(32, 10)), [torch.randn(128, 32) for _ in range(3)]


def _loss(model: nn.Module, values: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(values), torch.arange(len(values)) % 10)


_TINY = {"residual": cases.Case(_residual, _loss), "perceptron": cases.Case(_perceptron, _loss)}


@functools.cache
def _plain(name: str) -> cases.Run:
    return cases.train(_TINY[name], "adamw_foreach", num_steps=3)


@pytest.mark.parametrize(("name", "ratio"), [("residual", 0.5), ("residual", 0.4), ("perceptron", 0.5)])
def test_a_tiny_arena_is_enough_for_a_tiny_model(shim: ModuleType, name: str, ratio: float) -> None:
    ample = cases.train(_TINY[name], "adamw_foreach", shim=shim, num_steps=3)
    budget = cases.budget_at(ratio, ample)
    assert budget < 2**19
    tight = cases.train(_TINY[name], "adamw_foreach", shim=shim, num_steps=3, capacity=budget)
    assert cases.differences(_plain(name), tight) == []
    assert tight.stats["num_evictions"] > 0


@pytest.mark.parametrize(("capacity", "slab_bytes"), [(2**17, 2048), (2**21, 2**15), (2**26, 2**16)])
def test_slabs_are_as_large_as_the_arena_can_bear(shim: ModuleType, capacity: int, slab_bytes: int) -> None:
    """The first small value takes a slab from the low end, so the next value lies a slab further."""
    with cases.arena(shim, capacity, has_one_end=True):
        small, large = torch.ones(8), torch.ones(2000)
        assert large.data_ptr() - small.data_ptr() == slab_bytes


def test_the_size_of_slabs_can_be_given(shim: ModuleType) -> None:
    with cases.arena(shim, 2**20, has_one_end=True, slab_bytes=8192, small_bytes=1024):
        small, large = torch.ones(8), torch.ones(2000)
        assert large.data_ptr() - small.data_ptr() == 8192
