"""What all tests share."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lowtide.ir import Graph, Input, Node, Value


def pytest_configure() -> None:
    """A shell that starts us in the background has us ignore Ctrl-C, and so all that we start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _forget_imports_from_temporary_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test meets a module that another one wrote and imported: ``model.py`` would hide lowtide's own models."""
    modules, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    temporary = tmp_path_factory.getbasetemp().resolve()
    for name in set(sys.modules) - modules:
        if _is_written_in(sys.modules[name], temporary):
            del sys.modules[name]


def _is_written_in(module: ModuleType, folder: Path) -> bool:
    """Whether it is Python below a folder; a native module stays, which cannot be loaded twice."""
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and file.endswith(".py") and folder in Path(file).resolve().parents


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
