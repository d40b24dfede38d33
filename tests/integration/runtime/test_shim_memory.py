"""The arena: what lies in it, who else may allocate, and what becomes of tensors when the block ends."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent))

import shim_cases as cases
import torch
from torch import nn

MIB = 2**20


def _values(seed: int, *, size: int = 256) -> torch.Tensor:
    return torch.randn(size, size, generator=torch.Generator().manual_seed(seed))


def test_everything_is_off_without_a_budget(shim: ModuleType) -> None:
    assert not shim.is_active()
    assert shim.cell_of(torch.ones(10_000)) is None
    with cases.arena(shim):
        assert shim.is_active()
    assert not shim.is_active()


def test_the_capacity_is_whole_pages(shim: ModuleType) -> None:
    with cases.arena(shim, 10 * 4096 + 4095):
        assert shim.stats()["capacity"] == 10 * 4096


@pytest.mark.parametrize(
    "options", [{"capacity": 100}, {"capacity": MIB, "colour": 1}, {"capacity": MIB, "score": "x"}]
)
def test_options_that_make_no_sense_are_refused(shim: ModuleType, options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"below 4096|unknown option of the torch shim: colour|'x' is none of coop"):
        shim.enter(options)
    assert not shim.is_active()


def test_a_second_budget_is_refused(shim: ModuleType) -> None:
    with cases.arena(shim), pytest.raises(RuntimeError, match="a budget is on already"):
        shim.enter({"capacity": MIB})


def test_leaving_without_entering_is_refused(shim: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="no budget is on"):
        shim.leave()


def test_tensors_are_counted_and_given_back(shim: ModuleType) -> None:
    with cases.arena(shim):
        held = torch.ones(1000, 1000)
        assert shim.stats()["resident_bytes"] >= 4_000_000
        del held
        assert shim.stats()["resident_bytes"] == 0


def test_empty_tensors_take_nothing(shim: ModuleType) -> None:
    with cases.arena(shim):
        empty = torch.zeros(0, 5) + torch.ones(0, 5)
        assert shim.stats()["resident_bytes"] == 0
        assert empty.shape == (0, 5)
        assert torch.cat([empty, torch.ones(1, 5)]).tolist() == [[1.0] * 5]


def test_addresses_are_aligned(shim: ModuleType) -> None:
    with cases.arena(shim):
        for size in (1, 3, 100, 5000, 70_000):
            assert torch.ones(size).data_ptr() % 64 == 0


def test_survivors_outlive_the_arena(shim: ModuleType, kept_arenas: Callable[[], int]) -> None:
    with cases.arena(shim):
        survivor = _values(0) * 2
        view = survivor[10:20]
    assert shim.stats()["num_survivors"] == 1
    assert kept_arenas() == 1
    assert torch.equal(survivor, _values(0) * 2)
    survivor.add_(1)
    assert torch.equal(view, (_values(0) * 2 + 1)[10:20])
    del survivor, view
    gc.collect()
    assert kept_arenas() == 0


def test_evicted_survivors_are_computed_again_outside(shim: ModuleType, kept_arenas: Callable[[], int]) -> None:
    with cases.arena(shim):
        survivor = (_values(0) * 2).relu()
        assert shim.evict(survivor)
        assert not shim.is_resident(survivor)
    assert shim.stats()["num_restored"] == 1
    assert shim.stats()["num_lost"] == 0
    assert kept_arenas() == 0  # it lies outside
    assert torch.equal(survivor, (_values(0) * 2).relu())


def test_more_evicted_survivors_than_the_arena_holds(shim: ModuleType) -> None:
    source = _values(0)
    with cases.arena(shim, MIB):  # four of them
        survivors = [(source * (step + 1)).sin() for step in range(12)]
        assert sum(not shim.is_resident(survivor) for survivor in survivors) >= 8
    assert shim.stats()["num_lost"] == 0
    for step, survivor in enumerate(survivors):
        assert torch.equal(survivor, (source * (step + 1)).sin())


def test_tensors_of_an_earlier_arena_are_plain_tensors_in_the_next(shim: ModuleType) -> None:
    with cases.arena(shim):
        old = _values(0) * 2
    with cases.arena(shim, 4 * MIB):
        new = [(old * step).cos() for step in range(20)]
        old_sum = old.sum().item()
    assert old_sum == (_values(0) * 2).sum().item()
    for step, value in enumerate(new):
        assert torch.equal(value, (_values(0) * 2 * step).cos())


def test_views_and_saved_tensors_survive_an_eviction(shim: ModuleType) -> None:
    expected = (_values(0) * 2).T[3:7].clone()
    with cases.arena(shim):
        base = _values(0) * 2
        view, version = base.T[3:7], base._version
        assert shim.evict(base)
        assert torch.equal(view, expected)
        assert base._version == version


def test_making_a_view_recomputes_nothing(shim: ModuleType) -> None:
    with cases.arena(shim):
        base = _values(0) * 2
        assert shim.evict(base)
        view = base.view(-1, 4).T.unsqueeze(0)[..., 1:3].detach()
        assert base.shape == (256, 256)
        assert not shim.is_resident(base)
        assert view.shape == (1, 4, 2)
        assert shim.stats()["num_recomputes"] == 0


def test_a_read_past_the_dispatcher_raises_instead_of_lying(shim: ModuleType) -> None:
    with cases.arena(shim):
        value = _values(0) * 2
        assert shim.evict(value)
        with pytest.raises(RuntimeError, match="lowtide has evicted this tensor's bytes"):
            value.data_ptr()
        assert torch.equal(value, _values(0) * 2)
        assert value.data_ptr() != 0


def test_pinned_tensors_stay_where_they_are(shim: ModuleType) -> None:
    with cases.arena(shim, MIB):
        pinned = _values(0) * 2
        shim.pin(pinned)
        address = pinned.data_ptr()
        for step in range(12):
            (_values(0) * step).sum()
        assert not shim.evict(pinned)
        assert pinned.data_ptr() == address


def test_materialize_brings_the_bytes_back(shim: ModuleType) -> None:
    with cases.arena(shim):
        value = _values(0) * 2
        assert shim.evict(value)
        shim.materialize(value)
        assert torch.equal(torch.from_numpy(value.numpy().copy()), _values(0) * 2)


def test_other_threads_allocate_outside(shim: ModuleType) -> None:
    made: list[torch.Tensor] = []

    def work() -> None:
        made.append(torch.ones(1000, 1000) * 3)

    with cases.arena(shim, MIB):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert shim.stats()["num_foreign"] >= 1
        assert shim.stats()["bytes_foreign"] >= 4_000_000
        assert shim.stats()["resident_bytes"] == 0
        assert made[0].sum().item() == 3_000_000


def test_another_thread_that_reads_an_evicted_tensor_is_told(shim: ModuleType) -> None:
    errors: list[str] = []

    def work(value: torch.Tensor) -> None:
        try:
            value.sum()
        except RuntimeError as error:
            errors.append(str(error))

    with cases.arena(shim):
        value = _values(0) * 2
        assert shim.evict(value)
        thread = threading.Thread(target=work, args=(value,))
        thread.start()
        thread.join()
        assert value.sum().item() == (_values(0) * 2).sum().item()
    assert len(errors) == 1
    assert "in the thread that entered the budget" in errors[0]


def test_other_threads_may_drop_tensors(shim: ModuleType) -> None:
    with cases.arena(shim):
        held = [_values(0) * 2]
        thread = threading.Thread(target=held.clear)
        thread.start()
        thread.join()
        assert shim.stats()["resident_bytes"] == 0


def test_a_batch_is_kept_for_as_long_as_records_need_it(shim: ModuleType) -> None:
    with cases.arena(shim):
        batch = _values(5)  # from numpy, say: memory outside the arena
        outside = torch.from_numpy(batch.numpy().copy())
        result = outside * 2
        del outside
        for _ in range(600):  # time enough to notice that it is gone
            torch.ones(2) + 1
        assert shim.evict(result)
        assert torch.equal(result, _values(5) * 2)


def test_the_arena_bounds_a_long_chain_without_deep_recursion(shim: ModuleType) -> None:
    with cases.arena(shim, MIB, max_depth=10**9):
        value = _values(0)
        for _ in range(20_000):
            value = value * 1.0001
        expected = value.sum().item()
        assert shim.evict(value)
        assert value.sum().item() == expected


def test_moving_a_module_in_and_out(shim: ModuleType) -> None:
    with cases.arena(shim):
        torch.manual_seed(3)
        inside = nn.Linear(200, 200)
        output = inside(torch.ones(4, 200))
    torch.manual_seed(3)
    plain = nn.Linear(200, 200)
    assert torch.equal(inside.weight, plain.weight)
    assert torch.equal(output, plain(torch.ones(4, 200)))


def test_an_op_that_finds_no_hole_is_tried_again(shim: ModuleType) -> None:
    """Its input lies in the middle, locked: on either side are 400 kB, together enough for the result of 720 kB."""

    def run() -> torch.Tensor:
        torch.manual_seed(0)
        low, middle, high = torch.randn(100_000), torch.randn(60_000), torch.randn(90_000)
        del low, high
        return torch.cat([middle, middle, middle])

    expected = run()
    with cases.arena(shim, MIB, has_one_end=True, small_bytes=0):
        result = run()
        assert shim.stats()["num_retries"] == 1
        assert torch.equal(result, expected)


def test_a_random_op_that_is_tried_again_draws_the_same(shim: ModuleType) -> None:
    def run() -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(0)
        low, middle, high = torch.zeros(100_000), torch.rand(60_000), torch.zeros(90_000)
        del low, high
        return torch.multinomial(middle, 60_000), torch.get_rng_state()

    expected = run()
    with cases.arena(shim, 1_250_000, has_one_end=True, small_bytes=0):
        result = run()
        assert shim.stats()["num_retries"] == 1
        assert all(torch.equal(one, other) for one, other in zip(result, expected, strict=True))


def test_numpy_memory_that_changes_is_noticed(shim: ModuleType) -> None:
    array = _values(0).numpy().copy()
    with cases.arena(shim):
        doubled = torch.from_numpy(array) * 2
        assert shim.evict(doubled)
        assert torch.equal(doubled, _values(0) * 2)
        assert shim.evict(doubled)
        array[0, 0] += 1
        with pytest.raises(RuntimeError, match=r"memory that a tensor shares with numpy .* was changed from outside"):
            doubled.sum()
        array[0, 0] = _values(0)[0, 0].item()
        assert torch.equal(doubled, _values(0) * 2)


def test_numpy_memory_may_be_filled_anew_for_each_batch(shim: ModuleType) -> None:
    array = _values(0).numpy().copy()
    with cases.arena(shim, MIB):
        for step in range(20):
            array[:] = _values(step).numpy()
            batch = torch.from_numpy(array)
            layers = [(batch * scale).sin() for scale in range(6)]
            total = sum(float(layer.sum()) for layer in reversed(layers))
            assert total == sum(float((_values(step) * scale).sin().sum()) for scale in reversed(range(6)))
            del layers, batch
