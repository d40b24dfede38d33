"""What the tests of sessions share: values that can be evicted, and a session to evict them in."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import ModuleType

import pytest
import torch
from torch import Tensor

from lowtide.runtime.options import SessionOptions
from lowtide.runtime.session import Session

MIB = 2**20


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No tensor in an arena outlives its test by a reference cycle of pytest's: others count arenas."""
    yield
    gc.collect()


def session_of(budget: int | str = 64 * MIB, **options: object) -> Session:
    """A session that has not been entered."""
    return Session(budget, options=SessionOptions(**options))  # type: ignore[arg-type]


def source(seed: int = 0, *, size: int = 96) -> Tensor:
    """Random numbers, the same for the same seed."""
    return torch.randn(size, size, generator=torch.Generator().manual_seed(seed))


def expected(seed: int = 0) -> Tensor:
    """What `evicted` holds, by plain PyTorch where no session is active."""
    return source(seed) * 2 + 1


def evictable(seed: int = 0) -> Tensor:
    """A value that can be computed again."""
    return source(seed) * 2 + 1


def evicted(shim: ModuleType, seed: int = 0) -> Tensor:
    """The same, evicted."""
    value = evictable(seed)
    assert shim.evict(value)
    assert not shim.is_resident(value)
    return value


def churn(num_values: int = 24, *, size: int = 256) -> None:
    """Ask for so much that whatever may be evicted from a small budget is, and its bytes are used by others."""
    kept = [torch.full((size, size), float(step)) for step in range(num_values)]
    total = sum(value.sum().item() for value in kept)
    assert total == sum(range(num_values)) * size * size
