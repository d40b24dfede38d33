"""The compiled torch shim."""

from __future__ import annotations

from collections.abc import Iterator
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


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """One thread per process: the threads of parallel tests wait for each other at every op."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
