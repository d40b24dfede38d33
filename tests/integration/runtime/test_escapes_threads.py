"""Other threads and processes: what they read of the arena is right, what they allocate lies outside and is counted."""

from __future__ import annotations

import logging
import multiprocessing
import os
import queue
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent))

import torch
from session_cases import MIB, evictable, evicted, expected, nothing_left, session_of, source  # noqa: F401
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from lowtide.errors import InputError


def _in_thread(work: Callable[[], object]) -> object:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result(timeout=60)


@pytest.mark.parametrize("method", ["sum", "tolist", "numpy", "clone", "repr", "data_ptr"])
def test_a_thread_started_inside_reads_evicted_values(shim: ModuleType, method: str) -> None:
    with session_of():
        value = evicted(shim)
        got = _in_thread(lambda: torch.as_tensor(getattr(value, method)()) if method not in ("repr", "data_ptr") else 0)
        if method == "sum":
            assert got == expected().sum()
        elif method in ("tolist", "numpy", "clone"):
            assert torch.equal(got, expected())  # type: ignore[arg-type]
        assert torch.equal(value, source() * 2 + 1)


def test_a_thread_that_was_running_before_reads_evicted_values(shim: ModuleType) -> None:
    asked: queue.Queue[Tensor | None] = queue.Queue()
    answers: queue.Queue[object] = queue.Queue()

    def serve() -> None:
        while (value := asked.get()) is not None:
            try:
                answers.put((value * 3).sum().item())
            except RuntimeError as error:
                answers.put(error)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        asked.put(torch.ones(2))
        assert answers.get(timeout=60) == 6.0
        with session_of() as session:
            for seed in range(5):
                asked.put(evicted(shim, seed))
                assert answers.get(timeout=60) == (expected(seed) * 3).sum().item()
            assert session.stats.num_outside > 0
        asked.put(torch.ones(2))
        assert answers.get(timeout=60) == 6.0
    finally:
        asked.put(None)
        thread.join()


def test_threads_read_right_values_while_the_budget_is_under_pressure(shim: ModuleType) -> None:
    with session_of(2 * MIB) as session:
        values = [evictable(seed) for seed in range(80)]
        plain = [float((source(seed) * 2 + 1).sum()) for seed in range(80)]
        wrong: list[object] = []

        def read() -> None:
            for _ in range(4):
                for seed, value in enumerate(values):
                    if value.sum().item() != plain[seed]:
                        wrong.append(seed)

        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            for seed, value in enumerate(values):
                assert float(value.sum()) == plain[seed]
        for thread in threads:
            thread.join()
        assert session.stats.num_evictions > 40
        assert not wrong


def test_what_a_thread_writes_is_seen(shim: ModuleType) -> None:
    with session_of():
        value = evicted(shim)
        before = value * 2
        _in_thread(lambda: value.add_(5))
        after = value * 2
        for one in (before, value, after):
            shim.evict(one)
        assert torch.equal(before, (source() * 2 + 1) * 2)
        assert torch.equal(after, (source() * 2 + 1 + 5) * 2)


@pytest.mark.parametrize("policy", ["coop", "dtr"])
def test_what_a_thread_writes_in_place_is_seen_under_every_policy(shim: ModuleType, policy: str) -> None:
    with session_of(policy=policy):
        value = evictable()
        before = value * 2
        _in_thread(lambda: value.mul_(2))
        shim.evict(before)
        assert torch.equal(before, (source() * 2 + 1) * 2)
        assert torch.equal(value, (source() * 2 + 1) * 2)


def test_allocations_of_other_threads_are_counted_and_told_once(
    shim: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="lowtide"), session_of() as session:
        for _ in range(3):
            _in_thread(lambda: torch.ones(1000, 1000))
        assert session.stats.num_outside == 3
        assert session.stats.outside_bytes == 12_000_000
    told = [record.getMessage() for record in caplog.records if "other threads" in record.getMessage()]
    assert told == ["3 allocations of other threads (11.4 MiB in all) went outside the budget"]


def test_a_thread_trains_beside_the_budget(shim: ModuleType) -> None:
    def train() -> list[float]:
        generator = torch.Generator().manual_seed(3)
        weight = torch.randn(64, 64, generator=generator, requires_grad=True)
        losses = []
        for _ in range(5):
            loss = (weight @ weight).square().mean()
            loss.backward()
            with torch.no_grad():
                assert weight.grad is not None
                weight -= 0.01 * weight.grad
            weight.grad = None
            losses.append(loss.item())
        return losses

    plain = train()
    with session_of(2 * MIB):
        assert _in_thread(train) == plain


class _Numbers(Dataset[Tensor]):
    """Reads of a tensor that its maker computed inside a budget."""

    def __init__(self, table: Tensor) -> None:
        self.table = table

    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> Tensor:
        return self.table[index] + 1


@pytest.mark.parametrize("method", ["none", "fork", "spawn"])
def test_workers_of_a_loader_read_right_values(shim: ModuleType, method: str) -> None:
    plain = list(DataLoader(_Numbers(expected()), batch_size=16))
    with session_of():
        loader = DataLoader(
            _Numbers(evicted(shim)),
            batch_size=16,
            num_workers=0 if method == "none" else 2,
            multiprocessing_context=None if method == "none" else method,
        )
        batches = list(loader)
        results = [batch * 2 for batch in batches]
        for one in results:
            shim.evict(one)
        assert all(torch.equal(one, other) for one, other in zip(batches, plain, strict=True))
        assert all(torch.equal(one, other * 2) for one, other in zip(results, plain, strict=True))


def test_a_forked_child_reads_from_its_copy_and_leaves_the_parent_alone(shim: ModuleType) -> None:
    with session_of() as session:
        value = evicted(shim)
        child = os.fork()
        if child == 0:  # no assertion may leave this branch
            code = 1
            try:
                torch.set_num_threads(1)
                is_right = torch.equal(value, source() * 2 + 1) and torch.from_numpy(value.numpy()).sum() == value.sum()
                try:
                    session_of().__enter__()
                except InputError as error:
                    is_right = is_right and "forked inside a budget" in str(error) and not session.is_active
                    code = 0 if is_right else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert session.is_active
        assert torch.equal(value, source() * 2 + 1)


def _double(given: multiprocessing.Queue[Tensor], back: multiprocessing.Queue[Tensor]) -> None:
    back.put(given.get() * 2)
    given.get()


def test_tensors_are_sent_to_another_process_and_back(shim: ModuleType) -> None:
    context = torch.multiprocessing.get_context("spawn")
    with session_of():
        given, back = context.Queue(), context.Queue()
        process = context.Process(target=_double, args=(given, back))
        process.start()
        value = evicted(shim)
        given.put(value)
        assert torch.equal(back.get(timeout=120), (source() * 2 + 1) * 2)
        given.put(None)
        process.join(60)
        assert torch.equal(value, source() * 2 + 1)
