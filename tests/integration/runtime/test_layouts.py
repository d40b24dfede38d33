"""Sparse, nested, quantized, complex, meta and subclassed tensors within a budget: the same values as without."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent))

import torch
from layout_cases import NESTED, OTHERS, SPARSE, Case
from session_cases import MIB, churn, evictable, nothing_left, session_of, source  # noqa: F401
from torch import Tensor

CASES = SPARSE | NESTED | OTHERS

pytestmark = [
    pytest.mark.usefixtures("shim"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def _compare(case: Case, shim: ModuleType, **options: object) -> None:
    plain = case(lambda *_: None)
    num_evicted = 0

    def evict(*values: Tensor) -> None:
        nonlocal num_evicted
        num_evicted += sum(map(shim.evict, values))
        churn(5)  # others use the bytes

    with session_of(2 * MIB, **options):
        inside = case(evict)
        assert num_evicted > 0
        assert [_bytes_of(one) for one in inside] == [_bytes_of(one) for one in plain]


def _bytes_of(value: Tensor) -> tuple[object, ...]:
    value = value.detach().resolve_conj().resolve_neg()
    return (value.dtype, value.shape, value.reshape(-1).view(torch.uint8).tolist())


@pytest.mark.parametrize("name", CASES)
def test_the_values_are_the_same(shim: ModuleType, name: str) -> None:
    _compare(CASES[name], shim)


@pytest.mark.parametrize("name", ["coo in place", "coo products", "complex in place", "csr"])
def test_the_values_are_the_same_where_ops_in_place_copy(shim: ModuleType, name: str) -> None:
    _compare(CASES[name], shim, policy="dtr")


@pytest.mark.filterwarnings("error")
def test_outside_a_budget_sparse_kernels_are_torchs_own(shim: ModuleType) -> None:
    def kernels() -> str:
        return torch._C._dispatch_dump_table("aten::mul.Tensor")

    before = kernels()
    with session_of():
        sparse = evictable().to_sparse() * 2
    assert kernels() == before
    assert torch.equal(sparse.to_dense(), (source() * 2 + 1) * 2)


@pytest.fixture
def mesh() -> Iterator[object]:
    """A device mesh of this process alone."""
    distributed = pytest.importorskip("torch.distributed")
    from torch.distributed.device_mesh import init_device_mesh

    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    distributed.destroy_process_group()


def test_distributed_tensors(shim: ModuleType, mesh: object) -> None:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    def run(evict: object) -> list[Tensor]:
        weight = distribute_tensor(source(1), mesh, [Shard(0)]).requires_grad_()
        value = distribute_tensor(source(2) * 2, mesh, [Replicate()])
        hidden = (value @ weight * 2).tanh()
        evict(hidden.to_local(), value.to_local())  # type: ignore[operator]
        hidden.square().sum().backward()
        assert weight.grad is not None
        return [hidden.full_tensor().detach(), weight.grad.full_tensor()]

    _compare(run, shim)
