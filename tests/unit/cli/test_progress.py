"""The progress line and Ctrl-C."""

from __future__ import annotations

import signal
import threading

import pytest

from lowtide.cli.progress import AnalysisLine, Interruption, ProgressLine
from lowtide.ir import Incumbent, Status
from lowtide.planning.analysis import AnalysisPoint


def test_line_says_best_bound_gap_seconds() -> None:
    now = 100.0
    line = ProgressLine(1000, clock=lambda: now)
    now += 7
    assert line.describe() == "planning: no plan yet, 7 s"
    line.update(Incumbent(1.0, None, 1010))
    assert line.describe() == "planning: no plan yet, bound 1.000 %, 7 s"
    line.update(Incumbent(2.0, 1025, 1010))
    assert line.describe() == "planning: best TDI 2.500 %, bound 1.000 %, gap 1.500 points, 7 s"


def test_off_a_terminal_lines_come_after_one_second_and_then_every_five(capsys: pytest.CaptureFixture[str]) -> None:
    now = 100.0
    with ProgressLine(1000, clock=lambda: now) as line:
        for seconds, duration in ((0.5, 1050), (1.5, 1040), (3.0, 1030), (7.0, 1020)):
            now = 100.0 + seconds
            line.update(Incumbent(seconds, duration, None))
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == ["planning: best TDI 4.000 %, 2 s", "planning: best TDI 2.000 %, 7 s"]


def test_first_interrupt_asks_second_raises_and_the_handler_is_restored(capfd: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interruption() as interruption:
        assert not interruption.should_stop()
        signal.raise_signal(signal.SIGINT)
        assert interruption.should_stop()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    assert "the best plan so far is kept (Ctrl-C again: at once)" in capfd.readouterr().err


def test_interruption_leaves_handlers_alone_outside_the_main_thread() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def work() -> None:
        with Interruption() as interruption:
            seen.append((signal.getsignal(signal.SIGINT), interruption.should_stop()))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(before, False)]


def test_line_of_an_analysis_says_the_last_budget_and_its_price() -> None:
    now = 100.0
    line = AnalysisLine(clock=lambda: now)
    now += 2
    assert line.describe() == "analysing: 2 s"
    line.update(AnalysisPoint(80, 800, Status.FEASIBLE, 790, 1.25))
    assert line.describe() == "analysing: 80 % TDI 1.250 %, 2 s"
    line.update(AnalysisPoint(70, 700, Status.INFEASIBLE, None, None))
    assert line.describe() == "analysing: 70 % no plan (infeasible), 2 s"
