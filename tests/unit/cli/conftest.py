"""A folder with a graph worked out by hand and planners to choose as ``cli_fakes:Class``."""

from __future__ import annotations

from pathlib import Path

import pytest

from lowtide.ir import Graph
from lowtide.ir.serde import save_graph

FAKES = '''
import os
import sys
import time

from lowtide.ir import Incumbent, Status
from lowtide.ir.sequence import steps_from_sequence
from lowtide.planners.protocol import Proposal


class Recomputing:
    """The plan that recomputes a: peak 17, duration 5."""

    name = "recomputing"

    def propose(self, request):
        print("chatter of a planner", flush=True)
        os.write(1, b"chatter from below Python\\n")
        steps = steps_from_sequence(request.graph, ("a", "b", "c", "a", "d"))
        return Proposal(Status.FEASIBLE if request.budget_bytes >= 17 else Status.TIMEOUT, steps, 5)


class Clueless(Recomputing):
    name = "clueless"

    def propose(self, request):
        return Proposal(Status.TIMEOUT, None)


class Broken(Recomputing):
    name = "broken"

    def propose(self, request):
        raise ZeroDivisionError("division\\nby zero")


class UntilStopped(Recomputing):
    name = "until-stopped"

    def propose(self, request):
        print("searching", file=sys.stderr, flush=True)
        request.on_progress(Incumbent(0.0, 5, 4))
        while not request.should_stop():
            time.sleep(0.01)
        return super().propose(request)


class Deaf(Recomputing):
    name = "deaf"

    def propose(self, request):
        print("searching", file=sys.stderr, flush=True)
        while True:
            time.sleep(0.01)
'''


@pytest.fixture
def workplace(tmp_path: Path, four: Graph, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder: ``four.json`` (peak 24, working set 17; ``tests/unit/test_api.py`` has the drawing)."""
    save_graph(four, tmp_path / "four.json")
    (tmp_path / "cli_fakes.py").write_text(FAKES, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path
