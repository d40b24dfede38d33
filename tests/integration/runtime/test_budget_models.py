"""Every model of `lowtide.models` ends in the same bits within a budget as in plain PyTorch."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent))

import budget_cases as cases
import budget_models as zoo
import torch

from lowtide import models

_WITH_TRANSFORMERS = {"bert", "gpt2", "gpt2_eager_attention", "swin"}
_RATIOS = (0.7, 0.5, 0.4)
_HAS_AVX512 = "AVX512" in torch.backends.cpu.get_cpu_capability()
_UNREACHED: dict[str, set[float]] = {"supernet": {0.5, 0.4} if _HAS_AVX512 else {0.4}}
"""Where an op of so small a model needs more than the budget leaves: oneDNN's scratch, more with wider vectors."""

pytestmark = pytest.mark.usefixtures("shim")


def _make(name: str) -> cases.Make:
    if name in _WITH_TRANSFORMERS:
        pytest.importorskip("transformers")
    return zoo.SMALL[name]


@functools.cache
def _plain(name: str) -> cases.Run:
    return cases.train(_make(name))


@functools.cache
def _ample(name: str) -> cases.Run:
    return cases.train(_make(name), budget_bytes=cases.AMPLE_BYTES)


@pytest.mark.parametrize("name", zoo.SMALL)
def test_with_memory_to_spare_nothing_changes(name: str) -> None:
    ample = _ample(name)
    assert cases.differences(_plain(name), cases.train(_make(name))) == [], "plain PyTorch does not repeat itself"
    assert cases.differences(_plain(name), ample) == []
    assert ample.stats is not None
    assert ample.stats.num_evictions == 0


@pytest.mark.parametrize(
    ("name", "ratio"),
    [
        *((name, ratio) for name in zoo.SMALL for ratio in _RATIOS if ratio not in _UNREACHED.get(name, ())),
        ("unet", 0.35),  # gradients that are kept for the optimizer, which overwrites what they came from, move
    ],
)
def test_within_a_budget_the_bits_are_the_same(name: str, ratio: float) -> None:
    budget_bytes = _ample(name).budget_at(ratio)
    tight = cases.train(_make(name), budget_bytes=budget_bytes)
    assert cases.differences(_plain(name), tight) == []
    assert tight.stats is not None
    assert tight.stats.num_evictions > 0
    assert tight.stats.peak_bytes <= budget_bytes


@pytest.mark.slow
@pytest.mark.parametrize("name", zoo.FULL)
def test_in_full_size(name: str) -> None:
    if name in _WITH_TRANSFORMERS:
        pytest.importorskip("transformers")
    make = zoo.of_program(getattr(models, name))
    plain = cases.train(make, num_steps=3)
    ample = cases.train(make, num_steps=3, budget_bytes=2**34)
    tight = cases.train(make, num_steps=3, budget_bytes=ample.budget_at(0.5))
    assert cases.differences(plain, ample) == []
    assert cases.differences(plain, tight) == []
    assert tight.stats is not None
    assert tight.stats.num_evictions > 0


def test_the_comparison_sees_a_single_bit(shim: ModuleType) -> None:
    plain = _plain("unet")
    name = next(name for name in plain.values if name.startswith("parameter"))
    changed = cases.Run({**plain.values, name: plain.values[name].clone()})
    changed.values[name][0] ^= 1
    assert cases.differences(plain, changed) == [name]
