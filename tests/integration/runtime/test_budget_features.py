"""What people do in a training loop works within a budget, to the bit."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent))

import budget_cases as cases
import budget_features as features

_MAKE_BY_NAME: dict[str, cases.Make] = {
    **{name: functools.partial(features.with_optimizer, name) for name in features.OPTIMIZERS},
    **features.FEATURES,
}
_UNREACHED = {"saved_and_loaded": {0.4}}
"""Where what must stay is more than the budget: all state twice."""

pytestmark = [pytest.mark.usefixtures("shim"), pytest.mark.filterwarnings("ignore::UserWarning")]


@functools.cache
def _plain(name: str) -> cases.Run:
    return cases.train(_MAKE_BY_NAME[name])


@functools.cache
def _ample(name: str, *, is_made_inside: bool = False) -> cases.Run:
    return cases.train(_MAKE_BY_NAME[name], budget_bytes=cases.AMPLE_BYTES, is_made_inside=is_made_inside)


@pytest.mark.parametrize("name", _MAKE_BY_NAME)
def test_with_memory_to_spare_nothing_changes(name: str) -> None:
    assert cases.differences(_plain(name), cases.train(_MAKE_BY_NAME[name])) == [], "plain does not repeat itself"
    assert cases.differences(_plain(name), _ample(name)) == []


@pytest.mark.parametrize(
    ("name", "ratio"),
    [(name, ratio) for name in _MAKE_BY_NAME for ratio in (0.7, 0.5, 0.4) if ratio not in _UNREACHED.get(name, ())],
)
def test_within_a_budget_the_bits_are_the_same(name: str, ratio: float) -> None:
    budget_bytes = _ample(name).budget_at(ratio)
    tight = cases.train(_MAKE_BY_NAME[name], budget_bytes=budget_bytes)
    assert cases.differences(_plain(name), tight) == []
    assert tight.stats is not None
    assert tight.stats.num_evictions > 0
    assert tight.stats.peak_bytes <= budget_bytes


@pytest.mark.parametrize("name", ["sgd with momentum", "adamw, fused", "hooks", "saved_and_loaded"])
def test_a_model_built_inside_the_block(name: str) -> None:
    ample = _ample(name, is_made_inside=True)
    tight = cases.train(_MAKE_BY_NAME[name], budget_bytes=ample.budget_at(0.5), is_made_inside=True)
    assert cases.differences(_plain(name), tight) == []
    assert tight.stats is not None
    assert tight.stats.num_evictions > 0
    assert ample.kept_bytes > _ample(name).kept_bytes, "the model is not in the arena"
