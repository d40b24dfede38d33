"""Errors: one tree, one line, and the same after a journey to another process."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest

from lowtide import errors
from lowtide.errors import (
    BudgetOverrun,
    FormatError,
    InfeasibleBudget,
    LowtideError,
    MissingDependency,
    NoPlanFound,
    PlanRejected,
)

EXAMPLES = [
    FormatError("graph.json: not JSON at line 1, column 2"),
    PlanRejected("inputs-resident", "node 'b' reads 'a', which is not resident", step=3),
    InfeasibleBudget("too small", budget_bytes=10, bottleneck_node="conv", largest_working_set_bytes=20),
    NoPlanFound("none found", budget_bytes=10, smallest_known_peak_bytes=12),
    BudgetOverrun("no room", needed_bytes=12, budget_bytes=10),
    MissingDependency("ortools", extra="exact", needed_for="planner moccasin"),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("travel", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))], ids=["copy", "pickle"])
def test_errors_keep_text_and_numbers(error: LowtideError, travel: Callable[[LowtideError], LowtideError]) -> None:
    arrived = travel(error)
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert vars(arrived) == vars(error)


def test_every_public_error_is_in_the_tree() -> None:
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), LowtideError)
        assert name in (errors.__doc__ or "")


def test_errors_are_what_callers_catch() -> None:
    assert issubclass(InfeasibleBudget, MemoryError)
    assert issubclass(BudgetOverrun, MemoryError)
    assert issubclass(MissingDependency, ImportError)
    assert issubclass(FormatError, ValueError)


def test_a_referee_error_names_rule_and_step() -> None:
    error = PlanRejected("inputs-resident", "node 'b' reads 'a'", step=3)
    assert str(error) == "inputs-resident at step 3: node 'b' reads 'a'"
    assert (error.rule, error.step) == ("inputs-resident", 3)


def test_a_missing_dependency_says_how_to_get_it() -> None:
    error = MissingDependency("ortools", extra="exact", needed_for="planner moccasin")
    assert str(error) == (
        "planner moccasin needs the package 'ortools': pip install -c constraints.txt '.[exact]' in a clone of lowtide"
    )
