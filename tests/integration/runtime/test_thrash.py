"""Budgets that are far too small: they are warned of, and Ctrl-C ends what they recompute."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent))

import torch
from budget_models import SMALL
from session_cases import nothing_left, session_of  # noqa: F401

from lowtide.runtime.session import Session

Handler = Callable[[int, FrameType | None], object]

MODEL = SMALL["bilstm_decomposed"]
"""Long chains of small ops, hardest of all on a small budget."""


def _budget(ratio: float) -> int:
    """Bytes: what lives on after a step, and a share of what else a step takes."""
    with session_of("256MiB") as session:
        training = MODEL()
        for number in range(2):
            training.step(number)
        kept_bytes, peak_bytes = session.stats.resident_bytes, session.stats.peak_bytes
    return int(kept_bytes + ratio * (peak_bytes - kept_bytes))


def test_thrashing_is_warned_of_once_and_says_what_to_do(shim: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    told: list[tuple[str, Mapping[str, Any]]] = []
    budget_bytes = _budget(0.4)
    session = session_of(budget_bytes, max_recompute_percent=1e5)
    with session, caplog.at_level(logging.WARNING, logger="lowtide"):
        session.on_event = lambda name, figures: told.append((name, figures)) if name == "thrash" else None
        training = MODEL()
        number, started = 0, time.monotonic()
        while not told and time.monotonic() - started < 120:
            training.step(number := number + 1)
        assert session.stats.has_thrashed
        training.step(number + 1)
    ((_, figures),) = told
    (warning,) = [record.getMessage() for record in caplog.records if "is too small" in record.getMessage()]
    assert figures["wait_percent"] > 20  # of all the time, that before the first step included
    assert figures["recomputes_per_op"] > 0.5
    assert budget_bytes < figures["next_bytes"] < figures["enough_bytes"] < 2 * _budget(1.0)
    assert f"{figures['recomputes_per_op']:.1f} recomputed ops for each new one; try " in warning
    assert "\n" not in warning
    assert session.stats.as_dict()["has_thrashed"] == 1
    assert "thrashing" in str(session.stats)


def test_what_is_said_to_be_enough_is(shim: ModuleType) -> None:
    with session_of(_budget(0.5)) as session:
        training = MODEL()
        for number in range(2):
            training.step(number)
        assert session.stats.num_evictions > 0
        enough_bytes = session.stats.peak_demand_bytes
    with session_of(int(1.02 * enough_bytes)) as session:  # somewhat more: for what lies between the blocks
        training = MODEL()
        for number in range(2):
            training.step(number)
        assert session.stats.num_evictions == 0
        assert session.stats.peak_demand_bytes == session.stats.peak_bytes


def test_a_budget_that_is_somewhat_small_is_not_warned_of(shim: ModuleType) -> None:
    training = SMALL["gpt2"]()
    with session_of(9 * 2**20) as session:
        for number in range(8):
            training.step(number)
        assert session.stats.num_recomputes > 100
        assert 0 < session.stats.recompute_seconds <= session.stats.wait_seconds
    assert not session.stats.has_thrashed


def _interrupt_after(seconds: float, sent: list[float]) -> threading.Timer:
    def interrupt() -> None:
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(seconds, interrupt)
    timer.start()
    return timer


def _take_an_endless_step(*, interrupted_after: tuple[float, ...], sent: list[float]) -> None:
    """On a budget so small that it would take minutes."""
    budget_bytes = _budget(0.2)
    with session_of(budget_bytes, max_recompute_percent=1e9):
        training = MODEL()
        for seconds in interrupted_after:
            _interrupt_after(seconds, sent)
        training.step(0)


def test_ctrl_c_ends_what_is_recomputed(shim: ModuleType) -> None:
    sent: list[float] = []
    with pytest.raises(KeyboardInterrupt):
        _take_an_endless_step(interrupted_after=(3.0,), sent=sent)
    assert time.monotonic() - sent[0] < 10.0  # the session left behind included
    with session_of("64MiB"):  # everything is usable
        MODEL().step(0)


def test_ctrl_c_while_a_callback_runs_ends_the_training(shim: ModuleType) -> None:
    named: list[str] = []

    def interrupt(name: str, figures: Mapping[str, Any]) -> None:
        named.append(name)
        if len(named) == 1:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(60.0)  # which Ctrl-C ends

    with session_of(_budget(0.5)) as session:
        session.on_event = interrupt
        training = MODEL()
        with pytest.raises(KeyboardInterrupt):
            training.step(0)
    assert len(named) >= 1


def _read_again(values: list[torch.Tensor], session: Session, shim: ModuleType) -> int:
    """Compute a chain of values again for one op that reads the last; how many ops have been recomputed by then."""
    assert sum(map(shim.evict, values[1:])) >= 1
    _ = values[-1] + 1
    return session.stats.num_recomputes


def test_an_op_that_is_not_done_waiting_is_warned_of(shim: ModuleType) -> None:
    recomputes_when_told: list[int] = []

    def note(name: str, figures: Mapping[str, Any]) -> None:
        if name == "thrash":
            recomputes_when_told.append(session.stats.num_recomputes)

    with session_of("256MiB", max_recompute_percent=1e9) as session:
        session.on_event = note
        values, weight = [torch.rand(1024, 1024)], torch.eye(1024)
        for _ in range(40):
            values.append(values[-1] @ weight)
        recomputes_when_done = [_read_again(values[:21], session, shim)]
        while not recomputes_when_told and len(recomputes_when_done) < 100:  # the first one takes longer than all else
            recomputes_when_done.append(_read_again(values, session, shim))
        assert torch.equal(values[-1], values[0])
    assert recomputes_when_told[0] not in recomputes_when_done  # in the middle of an op, not after it


@pytest.fixture
def handler() -> Iterator[Callable[[Handler], None]]:
    """Sets a handler of Ctrl-C for the time of a test."""
    before = signal.getsignal(signal.SIGINT)
    yield lambda handler: signal.signal(signal.SIGINT, handler) and None
    signal.signal(signal.SIGINT, before)


def test_a_handler_that_raises_nothing_lets_the_op_go_on(shim: ModuleType, handler: Callable[[Handler], None]) -> None:
    sent: list[float] = []
    seen: list[float] = []

    def note(number: int, frame: FrameType | None) -> None:
        seen.append(time.monotonic())
        if len(seen) == 2:
            raise TimeoutError

    handler(note)
    with pytest.raises(TimeoutError):
        _take_an_endless_step(interrupted_after=(2.0, 4.0), sent=sent)
    assert max(late - early for early, late in zip(sent, seen, strict=True)) < 5.0
    assert signal.getsignal(signal.SIGINT) is note


def test_values_are_right_after_interruptions(shim: ModuleType, handler: Callable[[Handler], None]) -> None:
    plain = MODEL()
    wanted = [plain.step(number) for number in range(3)]
    seen: list[int] = []
    handler(lambda number, frame: seen.append(number))
    budget_bytes = _budget(0.45)
    is_done = threading.Event()

    def pester() -> None:
        while not is_done.wait(0.01):
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=pester)
    with session_of(budget_bytes):
        training = MODEL()
        thread.start()
        try:
            results = [training.step(number) for number in range(3)]
        finally:
            is_done.set()
            thread.join()
        for one, other in zip(wanted, results, strict=True):
            assert all(torch.equal(*pair) for pair in zip(one, other, strict=True))
    assert len(seen) > 3
