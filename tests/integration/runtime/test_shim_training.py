"""Training inside an arena ends in the same bits as plain PyTorch, with evictions."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent))

import shim_cases as cases
from torch import Tensor, nn


@functools.cache
def _plain(name: str, optimizer: str) -> cases.Run:
    return cases.train(cases.CASES[name], optimizer)


@functools.cache
def _ample(name: str, optimizer: str, shim: ModuleType) -> cases.Run:
    return cases.train(cases.CASES[name], optimizer, shim=shim)


def _needs_transformers(name: str) -> None:
    if name == "gpt2":
        pytest.importorskip("transformers")


@pytest.mark.parametrize("optimizer", cases.OPTIMIZERS)
@pytest.mark.parametrize("name", cases.CASES)
def test_an_ample_arena_changes_nothing(shim: ModuleType, name: str, optimizer: str) -> None:
    _needs_transformers(name)
    ample = _ample(name, optimizer, shim)
    assert cases.differences(_plain(name, optimizer), ample) == []
    assert ample.stats["num_evictions"] == 0
    assert ample.stats["num_recomputes"] == 0


@pytest.mark.parametrize("ratio", [0.7, 0.5, 0.4])
@pytest.mark.parametrize("optimizer", cases.OPTIMIZERS)
@pytest.mark.parametrize("name", cases.CASES)
def test_a_small_arena_gives_the_same_bits(shim: ModuleType, name: str, optimizer: str, ratio: float) -> None:
    _needs_transformers(name)
    budget = cases.budget_at(ratio, _ample(name, optimizer, shim))
    tight = cases.train(cases.CASES[name], optimizer, shim=shim, capacity=budget)
    assert cases.differences(_plain(name, optimizer), tight) == []
    assert tight.stats["num_evictions"] > 0
    assert tight.stats["high_water"] <= budget


@pytest.mark.parametrize(
    "policy",
    [
        {"method": "one_by_one", "score": "dtr", "is_copy_on_write": True, "has_one_end": True},
        {"method": "one_by_one", "score": "dte", "is_copy_on_write": True, "has_one_end": True},
        {"method": "one_by_one", "score": "lru"},
        {"method": "one_by_one", "score": "random", "seed": 3},
        {"keeps_dead": True},
        {"holds_awaited": False},
        {"is_two_tiered": False},
        {"compaction": "never"},
        {"small_bytes": 0},
        {"max_depth": 3},
    ],
    ids=str,
)
def test_every_policy_gives_the_same_bits(shim: ModuleType, policy: dict[str, object]) -> None:
    budget = cases.budget_at(0.6, _ample("convolutional", "sgd", shim))
    tight = cases.train(cases.CASES["convolutional"], "sgd", shim=shim, capacity=budget, **policy)
    assert cases.differences(_plain("convolutional", "sgd"), tight) == []
    assert tight.stats["num_evictions"] > 0


def test_decisions_repeat(shim: ModuleType) -> None:
    budget = cases.budget_at(0.5, _ample("convolutional", "sgd", shim))
    runs = [cases.train(cases.CASES["convolutional"], "sgd", shim=shim, capacity=budget) for _ in range(2)]
    for counter in ("num_calls", "num_evictions", "num_recomputes", "bytes_evicted", "high_water"):
        assert runs[0].stats[counter] == runs[1].stats[counter], counter


def test_records_do_not_pile_up(shim: ModuleType) -> None:
    case = cases.CASES["convolutional"]
    longer = cases.Case(lambda: _repeat(case, 8), case.loss)
    few = cases.train(longer, "sgd", shim=shim, num_steps=8)
    many = cases.train(longer, "sgd", shim=shim, num_steps=40)
    assert many.stats["num_records"] <= few.stats["num_records"]
    assert many.stats["num_cells"] <= few.stats["num_cells"]


def _repeat(case: cases.Case, times: int) -> tuple[nn.Module, list[Tensor]]:
    model, batches = case.make()
    return model, batches * times
