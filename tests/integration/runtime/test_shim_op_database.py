"""Every operator of torch's own database: inputs evicted before it runs, outputs after, gradients too.

The database (``torch.testing._internal``) has samples for some 600 operators. Each is run three times: twice in plain
PyTorch, to know whether it repeats at all, and once in an arena where everything that has a recipe is evicted at every
turn, so that its replay must give the same bits.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import sys
import types
import unittest
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent))

import shim_cases as cases
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

pytestmark = pytest.mark.slow

NUM_SHARDS = 6
SAMPLES_EACH = 3
# They read dense inputs in kernels for sparse tensors, which no hook sees: a clear error, never garbage.
SPARSE = {"sparse.mm.reduce"}
# What lies in uninitialized memory shows in their results.
UNREPEATABLE = {"linalg.lstsq", "linalg.lstsq.grad_oriented", "empty", "empty_like", "new_empty", "empty_strided",
                "new_empty_strided", "empty_permuted"}  # fmt: skip


@functools.cache
def _operators() -> list[Any]:
    if (
        importlib.util.find_spec("expecttest") is None
    ):  # the database's module imports it, the database needs nothing of it
        double = types.ModuleType("expecttest")
        double.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = double
    database = pytest.importorskip("torch.testing._internal.common_methods_invocations")
    return [op for op in database.op_db if torch.float32 in op.supported_dtypes("cpu")]


def _name(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def _samples(shard: int, *, requires_grad: bool) -> Iterator[tuple[Any, Any]]:
    for op in _operators()[shard::NUM_SHARDS]:
        if _name(op) in UNREPEATABLE or (requires_grad and not op.supports_autograd):
            continue
        try:
            samples = list(
                itertools.islice(op.sample_inputs("cpu", torch.float32, requires_grad=requires_grad), SAMPLES_EACH)
            )
        except Exception:  # noqa: BLE001 - the database has samples that need packages which are not installed
            continue
        yield from ((op, sample) for sample in samples)


def _strided(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor) and leaf.layout == torch.strided]


def _copied(tree: Any) -> Any:
    def copy(tensor: Tensor) -> Tensor:
        return (
            tensor.detach().clone().requires_grad_(tensor.requires_grad) if tensor.layout == torch.strided else tensor
        )

    return tree_map_only(Tensor, copy, tree)


def _forward(op: Any, sample: Any, evict: Callable[[Any], None]) -> list[Tensor | None]:
    """The bits of results and inputs, and the state of the generator, after each sight of them was evicted."""
    arguments, options = _copied((sample.input, *sample.args)), _copied(sample.kwargs)
    evict((arguments, options))
    torch.manual_seed(7)
    results = op.op(*arguments, **options)
    state = torch.get_rng_state()
    evict((results, arguments, options))
    values = [cases.bytes_of(tensor) for tensor in _strided((results, arguments, options))]
    return [*values, state, torch.get_rng_state()]


def _backward(op: Any, sample: Any, evict: Callable[[Any], None]) -> list[Tensor | None]:
    """The bits of the gradients; what autograd has saved is evicted before they are computed."""
    arguments, options = _copied((sample.input, *sample.args)), _copied(sample.kwargs)
    saved: list[Tensor] = []
    evict((arguments, options))
    torch.manual_seed(7)
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: (saved.append(tensor), tensor)[1], lambda saved: saved
    ):
        results = op.op(*arguments, **options)
    outputs = [tensor for tensor in _strided(results) if tensor.requires_grad]
    leaves = [tensor for tensor in _strided((arguments, options)) if tensor.requires_grad]
    if not outputs or not leaves:
        return []
    torch.manual_seed(8)
    tangents = [torch.rand_like(output) for output in outputs]
    evict((saved, outputs, leaves, tangents))
    gradients = torch.autograd.grad(outputs, leaves, tangents, allow_unused=True)
    evict((gradients, outputs))
    return [cases.bytes_of(tensor) for tensor in (*gradients, *outputs)]


def _compare(shim: ModuleType, shard: int, run: Callable[..., list[Tensor | None]], *, requires_grad: bool) -> None:
    wrong: dict[str, str] = {}
    num_compared = 0

    def evict(tree: Any) -> None:
        for tensor in _strided(tree):
            shim.evict(tensor)

    for op, sample in _samples(shard, requires_grad=requires_grad):
        try:
            expected = run(op, sample, lambda _: None)
            again = run(op, sample, lambda _: None)
        except Exception:  # noqa: BLE001 - not every sample runs everywhere
            continue
        if not cases.are_same(expected, again):
            continue
        num_compared += 1
        try:
            with cases.arena(shim, 2**28, small_bytes=0):
                got = run(op, sample, evict)
        except RuntimeError as error:
            if _name(op) not in SPARSE or "lowtide has evicted" not in str(error):
                wrong[_name(op)] = str(error)[:200]
            continue
        if not cases.are_same(expected, got):
            wrong[_name(op)] = "other bits"
    assert wrong == {}
    assert num_compared > 100


@pytest.mark.parametrize("shard", range(NUM_SHARDS))
def test_results_come_back_to_the_bit(shim: ModuleType, shard: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _compare(shim, shard, _forward, requires_grad=False)


@pytest.mark.parametrize("shard", range(NUM_SHARDS))
def test_gradients_are_the_same_to_the_bit(shim: ModuleType, shard: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _compare(shim, shard, _backward, requires_grad=True)
