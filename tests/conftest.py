"""What all tests share."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest

from lowtide.ir import Graph, Input, Node, Value


def pytest_configure() -> None:
    """A shell that starts us in the background has us ignore Ctrl-C, and so all that we start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def num_calls() -> Callable[[Callable[[], Any]], int]:
    """Counts the calls that Python makes while something runs: work that repeats, where time does not."""

    def count(run: Callable[[], Any]) -> int:
        events = 0

        def note(_frame: object, event: str, _argument: object) -> None:
            nonlocal events
            events += event in {"call", "c_call"}

        before = sys.getprofile()
        sys.setprofile(note)
        try:
            run()
        finally:
            sys.setprofile(before)
        return events

    return count


@pytest.fixture
def four() -> Graph:
    """Peak 24 of x 1, va, vb, vc 8 each, working set 17; ``tests/unit/test_api.py`` has the drawing."""
    return Graph(
        name="four",
        inputs=(Input("x", 1),),
        nodes=(
            Node("a", "op", 1, ("x",), (Value("va", 8),)),
            Node("b", "op", 1, ("va",), (Value("vb", 8),)),
            Node("c", "op", 1, ("vb",), (Value("vc", 8),)),
            Node("d", "op", 1, ("va", "vc"), (Value("vd", 1),)),
        ),
        outputs=("vd",),
        order=("a", "b", "c", "d"),
        duration_unit="unit",
    )
