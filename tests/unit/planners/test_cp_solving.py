"""CP-SAT in a thread of its own: what it finds, what stops it, whose Ctrl-C is."""

from __future__ import annotations

import signal
import threading
from itertools import pairwise
from types import FrameType

import pytest
from ortools.sat.python import cp_model

from lowtide.planners.cp_solving import run_solver


def endless_model() -> cp_model.CpModel:
    """A model that takes far longer than a test: pairwise different sums of a large set, as small as can be."""
    model = cp_model.CpModel()
    marks = [model.new_int_var(0, 2000, f"m{index}") for index in range(26)]  # a Golomb ruler
    for one, other in pairwise(marks):
        model.add(one < other)
    model.add_all_different([marks[j] - marks[i] for i in range(len(marks)) for j in range(i + 1, len(marks))])
    model.minimize(marks[-1])
    return model


def small_model() -> cp_model.CpModel:
    model = cp_model.CpModel()
    number = model.new_int_var(0, 5, "x")
    model.maximize(number)
    return model


def one_worker() -> cp_model.CpSolver:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    return solver


def test_the_status_and_the_objective_come_back() -> None:
    solver = one_worker()
    assert run_solver(solver, small_model(), should_stop=None) == cp_model.OPTIMAL
    assert solver.objective_value == 5


def test_it_stops_when_asked_to() -> None:
    questions = iter([False, False, True])
    status = run_solver(one_worker(), endless_model(), should_stop=lambda: next(questions, True))
    assert status in (cp_model.UNKNOWN, cp_model.FEASIBLE)


def test_what_a_callback_raises_comes_out() -> None:
    class Failing(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            raise ZeroDivisionError("from the callback")

    with pytest.raises(ZeroDivisionError, match="from the callback"):
        run_solver(one_worker(), small_model(), Failing(), should_stop=None)


def test_what_the_question_raises_ends_the_solve() -> None:
    def ask() -> bool:
        raise ZeroDivisionError("from the question")

    with pytest.raises(ZeroDivisionError, match="from the question"):
        run_solver(one_worker(), endless_model(), should_stop=ask)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lowtide-cp-sat")]


def test_ctrl_c_within_a_solve_is_heard_at_once_and_again_afterwards() -> None:
    heard: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        heard.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        interrupting = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
        interrupting.start()
        run_solver(one_worker(), endless_model(), should_stop=lambda: bool(heard))
        assert heard == [signal.SIGINT]
        signal.raise_signal(signal.SIGINT)  # left to the system, it would end this process
        assert heard == [signal.SIGINT] * 2
    finally:
        signal.signal(signal.SIGINT, before)


def test_without_a_handler_of_ours_ctrl_c_ends_the_solve_and_is_raised() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Timer(0.3, signal.raise_signal, [signal.SIGINT]).start()
        with pytest.raises(KeyboardInterrupt):
            run_solver(one_worker(), endless_model(), should_stop=None)
    finally:
        signal.signal(signal.SIGINT, before)
