"""Planners by name."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from lowtide import registry
from lowtide.errors import InputError
from lowtide.planners.protocol import Planner
from lowtide.planners.table import PLANNERS, planner_named, planner_names


@pytest.mark.parametrize("name", ["greedy", "sqrt"])
def test_own_planners_are_found_and_know_their_name(name: str) -> None:
    planner = planner_named(name)
    assert isinstance(planner, Planner)
    assert planner.name == name


def test_a_class_is_found_by_module_and_name() -> None:
    assert planner_named("lowtide.planners.sqrt:SqrtPlanner").name == "sqrt"


def test_planners_of_other_packages_are_found_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = EntryPoint("mine", "lowtide.planners.sqrt:SqrtPlanner", "lowtide.planners")
    broken = EntryPoint("broken", "no_such_module:Class", "lowtide.planners")

    def entry_points(*, group: str) -> EntryPoints:
        return EntryPoints([declared, broken] if group == "lowtide.planners" else [])

    monkeypatch.setattr(registry, "entry_points", entry_points)
    assert "mine" in planner_names()
    assert planner_named("mine").name == "sqrt"
    with pytest.raises(InputError, match=f"choose one of {', '.join(planner_names())}, or name"):
        planner_named("other")
    with pytest.raises(InputError, match=r"^planner 'broken': 'no_such_module:Class' cannot be made: No module "):
        planner_named("broken")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "nope",
            f"planner 'nope' is not known: choose one of {', '.join(planner_names())}, or name a class",
        ),
        ("no_such_module:Class", "planner 'no_such_module:Class' cannot be made: No module "),
        ("lowtide.ir:Nothing", "planner 'lowtide.ir:Nothing' cannot be made: module 'lowtide.ir' has no "),
        ("lowtide.ir:Scope", "planner 'lowtide.ir:Scope' has no name and propose: it is no planner"),
        ("sys:exit", "planner 'sys:exit' cannot be made: "),
        (":", "planner ':' cannot be made: "),
    ],
)
def test_what_is_no_planner_is_refused_in_one_line(name: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        planner_named(name)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_importing_the_table_imports_neither_planners_nor_native_code() -> None:
    code = (
        "import sys; import lowtide.planners.table; "
        "print([m for m in sys.modules if m in ('torch', 'ortools', 'highspy', 'lowtide._search', 'numpy') "
        "or m.startswith('lowtide.planners.') and m not in ('lowtide.planners.table', 'lowtide.planners.protocol')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_own_planner_is_where_the_table_says() -> None:
    for name in PLANNERS:
        if name != "moccasin":  # needs a solver; its own tests make it
            assert planner_named(name).name == name
