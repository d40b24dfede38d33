"""How outputs of two runs compare where a runtime may round."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lowtide.emit.bands.planned import plan_bands
from lowtide.emit.tflite_bands import is_same_within_rounding, largest_difference
from lowtide.emit.tflite_check import RuntimeCheck, TfliteCheck
from lowtide.emit.tflite_run import LitertRun


def check(before: Any, after: Any) -> RuntimeCheck:
    runs = [LitertRun(outputs={"0_0": np.array(array)}, arena_bytes=0, seconds=0.0) for array in (before, after)]
    num_different = int(np.array(before).tobytes() != np.array(after).tobytes())
    return RuntimeCheck("LiteRT", runs[0], runs[1], num_different, None)


REFUSED = RuntimeCheck("TensorFlow Lite Micro", None, None, 0, "it has no kernel")


def checked(micro: RuntimeCheck, litert: RuntimeCheck) -> TfliteCheck:
    return TfliteCheck(micro, litert, 1, 1, (), (), 0, 0)


@pytest.mark.parametrize(
    ("before", "after", "difference"),
    [
        ([1.0, -4.0], [1.0, -4.0], 0.0),
        ([1.0, -4.0], [1.5, -4.0], 0.125),
        ([0.0], [1.0], math.inf),
        ([1.0, np.nan], [1.0, np.nan], 0.0),
        ([1.0, 2.0], [1.0, np.nan], math.inf),
        ([1, 2], [1, 3], math.inf),  # integers do not round
        ([1.0, 2.0], [[1.0, 2.0]], math.inf),
    ],
)
def test_the_largest_difference(before: Any, after: Any, difference: float) -> None:
    assert largest_difference(check(before, after)) == difference


def test_a_missing_output_is_no_rounding() -> None:
    whole = check([1.0], [1.0])
    assert whole.after is not None
    empty = LitertRun(outputs={}, arena_bytes=0, seconds=0.0)
    assert largest_difference(RuntimeCheck("LiteRT", whole.before, empty, 1, None)) == math.inf


def test_litert_may_round_and_micro_may_not() -> None:
    same, rounded, other = check([1.0], [1.0]), check([1.0], [1.00001]), check([1.0], [1.1])
    assert is_same_within_rounding(checked(same, rounded))
    assert is_same_within_rounding(checked(REFUSED, rounded))
    assert not is_same_within_rounding(checked(rounded, same))
    assert not is_same_within_rounding(checked(same, other))
    assert not is_same_within_rounding(checked(REFUSED, REFUSED))


def a_result(footprint_bytes: int, *, num_recomputes: int = 0, tdi_percent: float = 0.0) -> Any:
    plan = SimpleNamespace(footprint_bytes=footprint_bytes, peak_bytes=0, tdi_percent=tdi_percent)
    return SimpleNamespace(plan=plan, num_recomputes=num_recomputes)


@pytest.mark.parametrize(
    ("recomputed", "is_taken"),
    [
        (a_result(5000, num_recomputes=10, tdi_percent=10.0), True),
        (a_result(5000, num_recomputes=10, tdi_percent=40.0), False),  # 1.2 x 1.4 is more than 1.5
        (a_result(5000, num_recomputes=20, tdi_percent=10.0), False),  # their room in the arena outweighs it
        (SimpleNamespace(plan=None, num_recomputes=0), False),
    ],
)
def test_recomputation_counts_with_its_time_and_room(recomputed: Any, is_taken: bool) -> None:
    by_order = a_result(9000)
    results = {(True, 1): a_result(10000), (False, 1): by_order, (False, None): recomputed}
    choice: Any = SimpleNamespace(added_time_percent=20.0)
    graph: Any = None
    found = plan_bands(graph, choice, lambda _graph, *, keep_order, max_copies: results[keep_order, max_copies])
    assert found is (recomputed if is_taken else by_order)
