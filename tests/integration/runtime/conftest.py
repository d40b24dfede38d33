"""The compiled torch shim."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

pytest.importorskip("torch")


@pytest.fixture(scope="session")
def shim() -> ModuleType:
    """The module, compiled if it has to be."""
    from lowtide.errors import ShimError
    from lowtide.runtime.build import load_shim

    try:
        return load_shim()
    except ShimError as error:
        pytest.skip(f"no torch shim here: {error}")


@pytest.fixture
def kept_arenas(shim: ModuleType) -> Callable[[], int]:
    """Counts the arenas that are kept for their survivors, without those that other tests' caches keep."""

    def count() -> int:
        gc.collect()
        try:
            return int(shim.stats()["num_kept_arenas"])
        except RuntimeError:  # no budget has been on
            return 0

    before = count()
    return lambda: count() - before


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """One thread per process: the threads of parallel tests wait for each other at every op.

    For a whole module, so that what its fixtures compute to compare with is computed on as many threads.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
