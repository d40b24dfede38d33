"""Sessions as users meet them: once, again, nested, with errors inside, with tensors that live on."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent))

import torch
from session_cases import MIB, churn, evictable, evicted, expected, nothing_left, session_of, source  # noqa: F401
from torch import Tensor, nn

import lowtide
from lowtide.errors import InputError
from lowtide.runtime.session import active_session


def _train_a_little() -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 96))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = model(source(step)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _is_usable() -> bool:
    """Whether torch and lowtide work as if nothing had happened before."""
    plain = _train_a_little()
    with lowtide.budget("2MiB"):
        return _train_a_little() == plain and active_session() is not None


def test_sessions_follow_one_another(shim: ModuleType) -> None:
    for _ in range(5):
        assert _is_usable()
        assert active_session() is None


def test_a_session_is_entered_once(shim: ModuleType) -> None:
    session = session_of()
    with session:
        pass
    with pytest.raises(InputError, match=r"has been entered before: call lowtide.budget\(...\) again"), session:
        pass
    assert _is_usable()


@pytest.mark.parametrize("is_other_thread", [False, True])
def test_budgets_do_not_nest(shim: ModuleType, is_other_thread: bool) -> None:
    errors: list[BaseException] = []

    def enter() -> None:
        try:
            session_of("1MiB").__enter__()
        except InputError as error:
            errors.append(error)

    with session_of("2MiB") as outer:
        if is_other_thread:
            thread = threading.Thread(target=enter)
            thread.start()
            thread.join()
        else:
            enter()
        assert [str(error) for error in errors] == [
            "a budget of 2.00 MiB is active already: leave its block before another begins, budgets do not nest"
        ]
        assert outer.is_active
        assert active_session() is outer
        evicted(shim).sum()
    assert _is_usable()


def test_an_error_in_the_block_leaves_everything_usable(shim: ModuleType) -> None:
    values = []

    def work() -> None:
        with session_of():
            values.append(evicted(shim))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    value = values.pop()
    assert torch.equal(value, expected())
    assert _is_usable()


class _Failing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, value: Tensor) -> Tensor:
        return value * 2

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        raise ValueError("from inside backward")


def test_an_error_inside_backward_gives_every_lock_back(shim: ModuleType) -> None:
    with session_of():
        leaf = source().requires_grad_()
        hidden = (leaf * 2).relu()
        loss = (_Failing.apply(hidden).relu() * hidden).sum()
        with pytest.raises(ValueError, match="from inside backward"):
            loss.backward()
        assert shim.evict(hidden)
        (leaf * 3).sum().backward()
        assert torch.equal(hidden, (source() * 2).relu())
    assert leaf.grad is not None
    assert torch.equal(leaf.grad, torch.full((96, 96), 3.0))


def test_a_hook_that_fails_leaves_the_session_usable(shim: ModuleType) -> None:
    with session_of():
        leaf = source().requires_grad_()
        hidden = leaf * 2
        hidden.register_hook(lambda gradient: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            hidden.sum().backward()
        assert shim.evict(hidden)
        assert torch.equal(hidden, source() * 2)


def test_ctrl_c_in_the_block(shim: ModuleType) -> None:
    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    def work() -> None:
        with session_of("2MiB"):
            threading.Timer(0.2, interrupt).start()
            while True:
                churn(6)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert active_session() is None
    assert _is_usable()


def test_a_generator_that_is_abandoned_leaves_its_budget(shim: ModuleType) -> None:
    def batches() -> Iterator[Tensor]:
        with session_of("2MiB"):
            while True:
                yield evictable()

    running = batches()
    value = next(running)
    assert active_session() is not None
    running.close()
    assert active_session() is None
    assert torch.equal(value, expected())
    assert _is_usable()


def test_a_block_that_another_thread_leaves(shim: ModuleType) -> None:
    session = session_of("2MiB")
    session.__enter__()
    value = evicted(shim)
    thread = threading.Thread(target=session.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    assert active_session() is None
    assert torch.equal(value, expected())
    assert _is_usable()


def test_coroutines_of_one_thread_share_the_budget(shim: ModuleType) -> None:
    async def compute(seed: int) -> Tensor:
        value = evicted(shim, seed)
        await asyncio.sleep(0)
        return value + 0

    async def main() -> list[Tensor]:
        with session_of():
            return list(await asyncio.gather(*(compute(seed) for seed in range(4))))

    for seed, value in enumerate(asyncio.run(main())):
        assert torch.equal(value, expected(seed))


def test_training_goes_on_after_the_block(shim: ModuleType, kept_arenas: Callable[[], int]) -> None:
    def run(*, is_budgeted: bool) -> list[float]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 96))
        optimizer = torch.optim.AdamW(model.parameters())
        losses = []

        def step(number: int) -> None:
            optimizer.zero_grad()
            loss = model(source(number)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())

        if is_budgeted:
            with session_of(2 * MIB):
                step(0)
                step(1)
            with session_of(4 * MIB):
                step(2)
        else:
            for number in range(3):
                step(number)
        step(3)
        return losses

    assert run(is_budgeted=True) == run(is_budgeted=False)
    gc.collect()
    assert kept_arenas() == 0


def test_a_graph_built_inside_is_differentiated_outside(shim: ModuleType) -> None:
    with session_of(2 * MIB):
        leaf = source().requires_grad_()
        loss = (leaf * 2).sin().square().sum()
        churn(6)
    loss.backward()
    plain = source().requires_grad_()
    (plain * 2).sin().square().sum().backward()
    assert leaf.grad is not None
    assert plain.grad is not None
    assert torch.equal(leaf.grad, plain.grad)


def test_the_arena_goes_with_the_last_tensor_in_it(shim: ModuleType, kept_arenas: Callable[[], int]) -> None:
    with session_of() as session:
        values = [evictable(seed) for seed in range(3)]
    assert kept_arenas() == 1
    assert session.stats.num_survivors == 3
    values.pop()
    values.pop()
    assert torch.equal(values[0], expected())
    assert kept_arenas() == 1
    values.clear()
    assert kept_arenas() == 0


def test_evicted_survivors_are_reported(shim: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="lowtide"), session_of() as session:
        values = [evicted(shim, seed) for seed in range(2)]
    assert all(torch.equal(value, expected(seed)) for seed, value in enumerate(values))
    assert (session.stats.num_restored, session.stats.num_lost) == (2, 0)
    assert "2 tensors that had been evicted were computed again outside the arena" in caplog.text
    assert "2 recomputed outside the arena, 0 lost" in str(session.stats)


def test_stats_during_and_after(shim: ModuleType) -> None:
    session = session_of(2 * MIB)
    with pytest.raises(InputError, match="has not been entered"):
        _ = session.stats
    with session:
        before = session.stats
        churn(12)
        during = session.stats
        assert during.num_ops > before.num_ops
        assert during.num_evictions > 0
    after = session.stats
    assert after.num_ops == during.num_ops
    assert after.peak_bytes <= 2 * MIB
    assert str(after).startswith("budget 2.00 MiB: peak ")
    assert len(str(after).splitlines()) <= 6
    assert after.as_dict()["num_evictions"] == after.num_evictions


def test_materialize_and_pin(shim: ModuleType) -> None:
    with session_of() as session:
        value = evicted(shim)
        assert session.materialize(value) is value
        assert shim.is_resident(value)
        assert session.pin(value) is value
        assert not shim.evict(value)
    with pytest.raises(InputError, match="block is not being executed"):
        session.pin(value)


def test_events_are_told(shim: ModuleType) -> None:
    told: list[tuple[str, dict[str, object]]] = []
    with session_of() as session:
        session.on_event = lambda name, figures: told.append((name, dict(figures)))
        value = evicted(shim)
        value.sum()
        session.on_event = None
        evicted(shim, 1)
        torch.ones(1).sum()
    assert told[0] == ("evict", {"value": told[0][1]["value"], "size_bytes": 96 * 96 * 4})
    assert {name for name, _ in told} == {"evict", "recompute"}
    assert ("recompute", {"op": "aten::add.Tensor"}) in told


def test_a_callback_may_compute_and_may_fail(shim: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", failures.append)
    with session_of() as session:

        def callback(name: str, figures: object) -> None:
            torch.ones(100, 100).sum()
            raise ValueError(name)

        session.on_event = callback
        assert torch.equal(evicted(shim), source() * 2 + 1)
    assert failures


COMPILED = """
import logging, sys
import torch
import lowtide
logging.basicConfig(level=logging.WARNING, stream=sys.stdout, format="%(message)s")
runs = []
def backend(module, inputs):
    def run(*arguments):
        runs.append(len(runs))
        return module.forward(*arguments)
    return run
@torch.compile(backend=backend)
def function(value):
    return (value * 2).relu() + 1
plain = function(torch.ones(8))
assert len(runs) == 1
with lowtide.budget("2MiB"):
    for _ in range(3):
        assert torch.equal(function(torch.ones(8)), plain)
    assert len(runs) == 1, "compiled code ran inside"
assert torch.equal(function(torch.ones(8)), plain)
assert len(runs) == 2, "no compiled code ran after the block"
with lowtide.budget("2MiB"):
    pass
model = lowtide.compile(torch.nn.Linear(8, 8), budget="1MiB")
with lowtide.budget("2MiB"):
    try:
        model(torch.ones(8))
    except lowtide.errors.LowtideError as error:
        print("REFUSED", type(error).__name__, error)
"""


def test_compiled_code_runs_eagerly_inside_and_compiled_after(shim: ModuleType) -> None:
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert (
        lines.count("inside a budget, functions compiled by torch.compile run eagerly; they are compiled after it") == 1
    )
    refused = [line for line in lines if line.startswith("REFUSED")]
    assert len(refused) == 1
    assert "budget" in refused[0]
