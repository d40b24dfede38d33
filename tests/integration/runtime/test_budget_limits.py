"""The arena is the limit, and stays it: memory beside it, thousands of steps."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent))

import budget_cases as cases
import budget_features as features
import torch

import lowtide
from lowtide.measure import measure_in_subprocess

pytestmark = pytest.mark.usefixtures("shim")


@pytest.mark.parametrize("name", ["gpt2", "resnet50_like"])
def test_beside_the_arena_the_process_hardly_grows(name: str) -> None:
    if name == "gpt2":
        pytest.importorskip("transformers")
    figures = measure_in_subprocess("budget_growth_child:measure", kwargs={"name": name})
    assert figures["growth_bytes"] < 0.02 * figures["budget_bytes"] + 8e6
    assert figures["growth_bytes"] < figures["plain_growth_bytes"] / 2, "tensors are not in the arena"


def _train_for_long(shim: ModuleType, *, num_steps: int) -> None:
    """Records, cells and bytes after every tenth of the steps are those after the first; the bits are plain's."""

    def make() -> cases.Training:
        return features.with_optimizer("adamw, foreach")

    budget_bytes = cases.train(make, budget_bytes=cases.AMPLE_BYTES, num_steps=3).budget_at(0.5)
    training, plain = (cases.make_anew(make) for _ in range(2))
    counts = []
    with lowtide.budget(budget_bytes) as session:
        for step in range(num_steps):
            torch.manual_seed(step)
            training.step(step)
            if step % (num_steps // 10) == num_steps // 10 - 1:
                figures = shim.stats()
                counts.append((figures["num_records"], figures["num_cells"], figures["resident_bytes"]))
    for step in range(num_steps):
        torch.manual_seed(step)
        plain.step(step)
    assert session.stats.num_evictions > num_steps
    assert len(counts) == 10
    assert set(counts) == {counts[0]}
    for one, other in zip(training.model.state_dict().values(), plain.model.state_dict().values(), strict=True):
        assert torch.equal(one, other)
    states = [list(item.optimizer.state.values()) for item in (training, plain)]
    for one, other in zip(*states, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_records_and_results_stay_what_they_are(shim: ModuleType) -> None:
    _train_for_long(shim, num_steps=60)


@pytest.mark.slow
def test_records_and_results_stay_what_they_are_for_long(shim: ModuleType) -> None:
    _train_for_long(shim, num_steps=600)
