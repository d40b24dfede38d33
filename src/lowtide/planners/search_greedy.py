"""Greedy's plan among the starts of a search, so that no search ends with a longer one.

    threads 2 and more          greedy ────────────────▶ portfolio, on all threads
                                relaxation or order ─▶
    one, without a time limit   relaxation or order ─▶ greedy ─▶ portfolio
    one, with a time limit      greedy ─▶ relaxation or order ─▶ portfolio

A relaxation may take all the time there is and come to nothing; greedy needs a few seconds and always comes to
something. When it runs makes no difference to what it finds, nor to where the search takes that up: equal seeds and
threads give equal plans. Where the relaxation settles the problem first, greedy is stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from queue import SimpleQueue
from types import TracebackType

from lowtide.planners.flat import FlatGraph
from lowtide.planners.greedy import run_greedy
from lowtide.planners.search_course import Course, Found

__all__ = ["GreedyStart"]

_SECONDS_BETWEEN_LOOKS = 0.03

Better = Callable[[list[int], list[int]], None]


class GreedyStart:
    """Greedy in the given order, exactly as the planner ``greedy`` runs it: entered, it may begin; left, it has ended.

    Args:
        course: Of the search. It has a thread less while greedy may be running beside it, and half of its work is
            greedy's.
        flat: The graph in the given order.
    """

    def __init__(self, course: Course, flat: FlatGraph) -> None:
        self._course = course
        self._flat = flat
        self._found: Found | None = None
        self._running: Future[Found] | None = None
        self._is_stopped = threading.Event()
        self._better: SimpleQueue[tuple[list[int], list[int]]] = SimpleQueue()
        self._beside = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lowtide-greedy")

    def __enter__(self) -> GreedyStart:
        request = self._course.request
        if request.threads > 1:
            self._course.threads = request.threads - 1
            self._running = self._beside.submit(self._run, self._note, self._is_stopped.is_set)
        elif request.time_limit_seconds is not None:
            self._found = self._run_here()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_stopped.set()
        self._beside.shutdown()

    def found(self) -> Found:
        """Its plan, or the one of the smallest peak that it met; waits for it."""
        if self._found is None:
            self._found = self._run_here() if self._running is None else self._join(self._running)
        return self._found

    def _run_here(self) -> Found:
        return self._run(self._course.recorder.note, self._course.request.should_stop)

    def _join(self, running: Future[Found]) -> Found:
        is_done = False
        while not is_done:
            is_done = bool(wait([running], timeout=_SECONDS_BETWEEN_LOOKS).done)
            self._tell()
            if self._course.is_over:
                self._is_stopped.set()
        self._course.threads = self._course.request.threads
        return running.result()

    def _note(self, stages: list[int], nodes: list[int]) -> None:
        self._better.put((stages, nodes))

    def _tell(self) -> None:
        while not self._better.empty():
            self._course.recorder.note(*self._better.get())

    def _run(self, on_better: Better, should_stop: Callable[[], bool] | None) -> Found:
        course = self._course
        outcome = run_greedy(
            self._flat,
            course.request,
            max_work=course.work - course.work // 2,
            seconds=course.seconds_left(),
            on_better=on_better,
            should_stop=should_stop,
        )
        return course.found_in(self._flat, outcome)
