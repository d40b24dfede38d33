"""The native core: what it checks, what it says, and that it lets others run."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import Any

import pytest

from lowtide import _search


def problem(**changes: Any) -> _search.Problem:
    """Three nodes in a chain: 0 makes storage 0 (4 bytes), 1 reads it and makes 1 (6), 2 reads both and makes 2 (1)."""
    arrays: dict[str, Any] = {
        "duration": [5, 3, 2],
        "recompute_duration": [5, 3, 2],
        "workspace_bytes": [0, 10, 0],
        "recompute_workspace_bytes": [7, 0, 0],
        "last_stage": [2, 2, 2],
        "read_starts": [0, 0, 1, 3],
        "reads": [0, 0, 1],
        "recompute_read_starts": [0, 0, 0, 0],
        "recompute_reads": [],
        "size_bytes": [4, 6, 1],
        "producer": [0, 1, 2],
        "is_recreated": [1, 1, 1],
        "is_kept": [0, 0, 1],
    }
    return _search.Problem(**{**arrays, **changes})


def test_load_of_each_stage_by_hand() -> None:
    assert _search.load_bytes(problem(), stages=[], nodes=[]) == [4, 4 + 6 + 10, 4 + 6 + 1]
    # Node 0 again in stage 2: its scratch of 7 beside storages 0 and 1 (17); then 0, 1 and 2 (11).
    assert _search.load_bytes(problem(), stages=[2], nodes=[0]) == [4, 20, 17]
    # Node 1 again in stage 2: its scratch of 10 beside 0 and the fresh 1.
    assert _search.load_bytes(problem(), stages=[2], nodes=[1]) == [4, 20, 20]


def test_sizes_of_a_problem() -> None:
    assert (problem().num_nodes, problem().num_storages) == (3, 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"duration": [5, -3, 2]}, "node 1 has a negative duration or size"),
        ({"workspace_bytes": [0, 0]}, "workspace_bytes has 2 items, expected 3"),
        ({"last_stage": [2, 0, 2]}, "node 1 has last_stage 0"),
        ({"last_stage": [2, 3, 2]}, "node 1 has last_stage 3"),
        ({"size_bytes": [4, -6, 1]}, "storage 1 has a negative size"),
        ({"producer": [0, 1, 3]}, "storage 2 has producer 3"),
        ({"producer": [-1, 1, 2]}, "storage 0 is recreated but has no producer"),
        ({"reads": [0, 0, 7]}, "reads of node 2 names storage 7"),
        ({"reads": [0, 0, 2]}, "reads of node 2 names storage 2, which is made later"),
        ({"read_starts": [0, 2, 1, 3]}, "reads has bad row starts"),
        ({"recompute_read_starts": [0]}, "recompute_reads has bad row starts"),
    ],
)
def test_arrays_that_contradict_each_other_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(_search.ProblemError) as caught:
        problem(**changes)
    assert str(caught.value) == message
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(("stage", "node"), [(0, 0), (1, 2), (3, 0), (2, -1), (-1, 0)])
def test_recomputations_that_cannot_be_are_refused(stage: int, node: int) -> None:
    with pytest.raises(_search.ProblemError, match=f"node {node} cannot be recomputed in stage {stage}"):
        _search.load_bytes(problem(), stages=[stage], nodes=[node])


def test_the_same_recomputation_twice_is_refused() -> None:
    with pytest.raises(_search.ProblemError, match="node 0 cannot be recomputed in stage 2"):
        _search.load_bytes(problem(), stages=[2, 2], nodes=[0, 0])


def search_for(seconds: float) -> _search.GreedyOutcome:
    """Plan a chain whose second half reads the first half backwards, until the clock ends it."""
    half = 30
    rows = [[node - 1] if node else [] for node in range(half)]
    rows += [[half + back - 1, half - 1 - back] if back else [half - 1] for back in range(half)]
    ones = [1] * len(rows)
    return _search.greedy(
        _search.Problem(
            duration=ones,
            recompute_duration=ones,
            workspace_bytes=[0] * len(rows),
            recompute_workspace_bytes=[0] * len(rows),
            last_stage=[len(rows) - 1] * len(rows),
            read_starts=list(accumulate(map(len, rows), initial=0)),
            reads=[storage for row in rows for storage in row],
            recompute_read_starts=[0] * (len(rows) + 1),
            recompute_reads=[],
            size_bytes=ones,
            producer=list(range(len(rows))),
            is_recreated=ones,
            is_kept=[0] * len(rows),
        ),
        budget_bytes=half // 2,
        seed=0,
        max_work=2**62,
        seconds=seconds,
    )


def test_other_threads_run_while_it_searches() -> None:
    with ThreadPoolExecutor(1) as pool:
        searching = pool.submit(search_for, 1.0)
        ticks = 0
        while not searching.done():
            ticks += 1
            time.sleep(0.01)
    assert searching.result().is_feasible
    assert searching.result().num_rounds > 0
    assert ticks >= 10
