"""Runs CP-SAT so that it stops when asked to, and so that Ctrl-C stays Python's.

CP-SAT would take SIGINT over for each solve and leave it to the system afterwards: the next Ctrl-C would kill the
process. And Python runs its own handlers in the main thread only, between two bytecodes, never within a solve. So the
solve gets a thread of its own, while the caller's waits in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

from ortools.sat.python import cp_model

__all__ = ["run_solver"]

_POLL_SECONDS = 0.05


def run_solver(
    solver: cp_model.CpSolver,
    model: cp_model.CpModel,
    callback: cp_model.CpSolverSolutionCallback | None = None,
    *,
    should_stop: Callable[[], bool] | None,
) -> int:
    """Solve a model.

    Args:
        solver: With its parameters set.
        model: What it solves.
        callback: Told of solutions, in other threads than the caller's.
        should_stop: Asked now and then in the caller's thread; true ends the solve with the best solution so far.

    Returns:
        The status: ``cp_model.OPTIMAL`` and so on.

    Raises:
        KeyboardInterrupt: Ctrl-C, where no handler says otherwise; the solve has ended by then.
    """
    solver.parameters.catch_sigint_signal = False
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="lowtide-cp-sat") as pool:
        solving = pool.submit(solver.solve, model, callback)
        try:
            while not wait([solving], timeout=_POLL_SECONDS).done:
                if should_stop is not None and should_stop():
                    solver.stop_search()
        except BaseException:
            while not wait([solving], timeout=_POLL_SECONDS).done:  # a solve that has not begun yet hears nothing
                solver.stop_search()
            raise
        return int(solving.result())
