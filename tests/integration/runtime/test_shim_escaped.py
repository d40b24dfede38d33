"""What a record does not see by itself: addresses given away, shared memory, outputs resized, torch's state."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent))

import shim_cases as cases
import torch
from torch import Tensor

MIB = 2**20
SIZE = 2**16  # elements: a quarter of that arena

CHANGED = r"memory that a tensor shares with numpy .* was changed from outside"


def _shared() -> tuple[np.ndarray[tuple[int], np.dtype[np.float32]], Tensor]:
    array = np.ones(SIZE, dtype=np.float32)
    return array, torch.from_numpy(array)


@contextmanager
def _state(change: Callable[[], object], undo: Callable[[], object]) -> Iterator[None]:
    change()
    try:
        yield
    finally:
        undo()


# ---------------------------------------------------------------------------------------------------- addresses
@pytest.mark.parametrize("leave_lost", [False, True], ids=["restored", "lost"])
def test_what_numpy_holds_stays_where_it_is_when_the_block_is_left(
    shim: ModuleType, kept_arenas: Callable[[], int], leave_lost: bool
) -> None:
    array, source = _shared()
    with cases.arena(shim, MIB):
        given = torch.ones(280 * 256) * 1
        shim.expose(given)
        alias = given.numpy()
        wide = torch.full((160 * 256,), 2.0)
        shim.pin(wide)
        address = wide.data_ptr()
        evicted = source * 2
        assert shim.evict(evicted)
        leaves = [given[: 240 * 256] * 3 for _ in range(2)]  # they alone can make room
        if leave_lost:
            array[:] = 3
    assert shim.stats()["num_lost"] == int(leave_lost)
    assert given.data_ptr() == alias.ctypes.data
    assert wide.data_ptr() == address
    alias[:] = 7
    assert given[:2].tolist() == [7.0, 7.0]
    assert [leaf[0].item() for leaf in leaves] == [3.0, 3.0]
    assert leave_lost or evicted[0].item() == 2.0
    assert kept_arenas() == 1
    del given, wide
    gc.collect()
    assert float(alias.sum()) == 7.0 * alias.size
    del alias, leaves, evicted
    gc.collect()
    assert kept_arenas() == 0


# ---------------------------------------------------------------------------------------------------- shared memory
def test_shared_memory_is_watched_after_torch_has_written_to_it(shim: ModuleType) -> None:
    array, source = _shared()
    with cases.arena(shim):
        source.add_(1)
        doubled = source * 2
        assert shim.evict(doubled)
        assert doubled[0].item() == 4.0
        assert shim.evict(doubled)
        array[:] = 0
        with pytest.raises(RuntimeError, match=CHANGED):
            doubled.sum()
        array[:] = 2
        assert doubled[0].item() == 4.0


def test_two_tensors_over_the_same_array_watch_each_other(shim: ModuleType) -> None:
    array, source = _shared()
    with cases.arena(shim):
        other = torch.from_numpy(array)
        source.mul_(2)
        other.mul_(2)
        doubled = source * 2
        assert shim.evict(doubled)
        other.fill_(0)
        with pytest.raises(RuntimeError, match=CHANGED):
            doubled.sum()


@pytest.mark.parametrize("is_put_back", [False, True])
def test_a_use_after_a_change_reads_another_version(shim: ModuleType, is_put_back: bool) -> None:
    array, source = _shared()
    with cases.arena(shim):
        before = source * 3
        array[:] = 7
        after = source * 2
        assert not shim.evict(before)  # what it was computed from is gone
        assert shim.evict(after)
        if not is_put_back:
            assert after[0].item() == 14.0
        else:
            array[:] = 1
            with pytest.raises(RuntimeError, match=CHANGED):
                after.sum()
        assert before[0].item() == 3.0


def test_nothing_is_recorded_from_a_version_that_cannot_replace_the_one_before(shim: ModuleType) -> None:
    array, source = _shared()
    with cases.arena(shim):
        before = source * 3
        assert shim.evict(before)
        array[:] = 7
        after = source * 2
        assert not shim.evict(after)
        with pytest.raises(RuntimeError, match=CHANGED):
            before.sum()
        array[:] = 1
        assert before[0].item() == 3.0
        assert after[0].item() == 14.0


def test_outside_memory_given_to_numpy_inside_is_watched(shim: ModuleType) -> None:
    outside = torch.ones(SIZE)
    with cases.arena(shim):
        doubled = outside * 2
        shim.expose(outside)
        array = outside.numpy()
        assert shim.evict(doubled)
        assert doubled[0].item() == 2.0
        assert shim.evict(doubled)
        array[:] = 5
        with pytest.raises(RuntimeError, match=CHANGED):
            doubled.sum()


@pytest.mark.parametrize("at", [0, 1, SIZE // 2, SIZE - 1])
@pytest.mark.parametrize("size", [1, 7, 8, 9, 31, 32, 33, SIZE])
def test_a_change_of_any_byte_is_noticed(shim: ModuleType, at: int, size: int) -> None:
    array = np.zeros(size, dtype=np.uint8)
    with cases.arena(shim):
        wide = torch.from_numpy(array).to(torch.float64).repeat(SIZE // size + 1)
        copied = torch.from_numpy(array).repeat(SIZE // size + 1)
        array[min(at, size - 1)] = 1
        assert shim.evict(copied)
        with pytest.raises(RuntimeError, match=CHANGED):
            copied.sum()
        assert not wide.any()


# ---------------------------------------------------------------------------------------------------- outputs
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("is_view", [False, True])
def test_an_output_that_the_op_resizes_is_kept(shim: ModuleType, is_view: bool) -> None:
    with cases.arena(shim, 2 * MIB, is_copy_on_write=is_view):
        source = torch.ones(256, 256) * 1
        out = (torch.ones(256, 256) * 1).view(-1)[5:105] if is_view else torch.ones(64, 64) * 1
        torch.add(source, source, out=out)
        assert not shim.evict(out)
        pressure = [torch.randn(SIZE) for _ in range(7)]
        del pressure
        assert out.sum().item() == 2.0 * SIZE
    assert shim.stats()["num_lost"] == 0


# ---------------------------------------------------------------------------------------------------- state of torch
def test_a_recomputation_sees_the_default_dtype_of_its_call(shim: ModuleType) -> None:
    in_double, in_single = torch.arange(SIZE, dtype=torch.float64) / 3, torch.arange(SIZE) / 3
    with cases.arena(shim):
        counted = torch.arange(SIZE)
        with _state(lambda: torch.set_default_dtype(torch.float64), lambda: torch.set_default_dtype(torch.float32)):
            third = counted / 3
        single = counted / 3
        assert shim.evict(third)
        assert torch.equal(third, in_double)
        assert torch.get_default_dtype() == torch.float32
        with _state(lambda: torch.set_default_dtype(torch.float64), lambda: torch.set_default_dtype(torch.float32)):
            assert shim.evict(single)
            assert torch.equal(single, in_single)
            assert torch.get_default_dtype() == torch.float64


def test_a_recomputation_treats_denormals_as_its_call_did(shim: ModuleType) -> None:
    if not torch.set_flush_denormal(False):
        pytest.skip("this processor has no such mode")
    with cases.arena(shim):
        tiny = torch.full((SIZE,), 1e-39)
        with _state(lambda: torch.set_flush_denormal(True), lambda: torch.set_flush_denormal(False)):
            flushed = tiny * 1.5
        kept = tiny * 1.5
        assert shim.evict(flushed)
        assert shim.evict(kept)
        assert flushed[0].item() == 0.0
        assert kept[0].item() > 0.0
