"""Every constraint allows what it should and forbids what it should, one at a time."""

from __future__ import annotations

from typing import Any

import pytest

from lowtide.ir import Graph, Node, Value
from lowtide.planners.moccasin.constraints import executions, implied, memory, precedence, retention, sharing
from lowtide.planners.moccasin.problem import Column, problem_from_graph
from lowtide.planners.moccasin.variables import make_variables

Bench = Any


# ---------------------------------------------------------------- executions


@pytest.mark.parametrize(
    ("starts", "present", "is_allowed"),
    [
        ((0, 3, 6), (True, True, True), True),
        ((0, 3, 3), (True, True, False), True),
        ((0, 6, 3), (True, True, True), False),  # the third before the second
        ((0, 3, 6), (True, False, True), False),  # a third without a second
    ],
)
def test_execution_order(bench: Bench, starts: tuple[int, ...], present: tuple[bool, ...], is_allowed: bool) -> None:
    runs = tuple(bench.execution(start, present=is_in) for start, is_in in zip(starts, present, strict=True))
    executions.add_execution_order(bench.model, runs)
    assert bench.is_feasible() is is_allowed


# ---------------------------------------------------------------- retention


@pytest.mark.parametrize(
    ("start", "end", "present", "is_allowed"),
    [(2, 2, True, True), (2, 5, True, True), (2, 1, True, False), (2, 2, False, True), (2, 5, False, False)],
)
def test_end_after_start(bench: Bench, start: int, end: int, present: bool, is_allowed: bool) -> None:
    retention.add_end_after_start(bench.model, bench.copy(start, end, present=present))
    assert bench.is_feasible() is is_allowed


@pytest.mark.parametrize(
    ("end", "next_start", "discarded", "is_allowed"),
    [(3, 4, None, True), (4, 4, None, False), (4, 4, True, True), (5, 4, True, True), (5, 4, False, False)],
)
def test_copy_order(bench: Bench, end: int, next_start: int, discarded: bool | None, is_allowed: bool) -> None:
    copies = (bench.copy(0, end), bench.copy(next_start, 9, discarded=discarded))
    retention.add_copy_order(bench.model, copies)
    assert bench.is_feasible() is is_allowed


def test_copy_order_says_nothing_of_absent_copies(bench: Bench) -> None:
    retention.add_copy_order(bench.model, (bench.copy(0, 9), bench.copy(4, 4, present=False)))
    assert bench.is_feasible()


@pytest.mark.parametrize(
    ("end", "discarded", "present", "is_allowed"),
    [(4, True, True, True), (6, True, True, False), (6, False, True, True), (4, True, False, False)],
)
def test_discarded_copy(bench: Bench, end: int, discarded: bool, present: bool, is_allowed: bool) -> None:
    retention.add_discarded_copy(bench.model, bench.copy(4, end, discarded=discarded, present=present))
    assert bench.is_feasible() is is_allowed


@pytest.mark.parametrize(("end", "taken", "is_allowed"), [(9, False, True), (6, False, False), (6, True, True)])
def test_unevictable(bench: Bench, end: int, taken: bool, is_allowed: bool) -> None:
    overwritings = [(bench.execution(6), bench.literal(taken))]
    retention.add_unevictable(bench.model, bench.copy(0, end), 9, overwritings)
    assert bench.is_feasible() is is_allowed


# ---------------------------------------------------------------- precedence


@pytest.mark.parametrize(
    ("reader", "is_allowed"),
    [(1, True), (3, True), (4, False), (6, False), (7, True), (9, True)],
)
def test_input_retained(bench: Bench, reader: int, is_allowed: bool) -> None:
    copies = [bench.copy(0, 3), bench.copy(6, 9)]
    precedence.add_input_retained(bench.model, copies, [bench.execution(reader)])
    assert bench.is_feasible() is is_allowed


def test_input_retained_asks_nothing_for_absent_readers(bench: Bench) -> None:
    precedence.add_input_retained(bench.model, [bench.copy(0, 3)], [bench.execution(5, present=False)])
    assert bench.is_feasible()


def test_input_retained_does_not_count_absent_copies(bench: Bench) -> None:
    copies = [bench.copy(0, 3), bench.copy(6, 9, present=False)]
    precedence.add_input_retained(bench.model, copies, [bench.execution(7)])
    assert not bench.is_feasible()


# ---------------------------------------------------------------- memory


def chain() -> Graph:
    """a(3 bytes) -> b(2 bytes, 4 of workspace) -> c(1 byte), which reads a, too."""
    nodes = (
        Node("a", "op", 5, (), (Value("a", 3),)),
        Node("b", "op", 1, ("a",), (Value("b", 2),), workspace_bytes=4),
        Node("c", "op", 1, ("a", "b"), (Value("c", 1),)),
    )
    return Graph("chain", (), nodes, (), ("a", "b", "c"), "unit")


@pytest.mark.parametrize(("capacity", "is_allowed"), [(9, True), (8, False)])
def test_cumulative_memory_counts_inputs_outputs_and_workspace(bench: Bench, capacity: int, is_allowed: bool) -> None:
    problem = problem_from_graph(chain(), budget_bytes=1, max_copies=1)
    variables = make_variables(bench.model, problem)
    for name, end in (("a", 5), ("b", 5), ("c", 5)):
        bench.model.add(variables.copies[name][0].end == end)
    bench.model.add(variables.capacity == capacity)
    memory.add_cumulative_memory(bench.model, problem, variables)
    assert bench.is_feasible() is is_allowed


@pytest.mark.parametrize(("capacity", "is_allowed"), [(6, True), (5, False)])
def test_cumulative_memory_counts_a_recomputed_copy(bench: Bench, capacity: int, is_allowed: bool) -> None:
    graph = Graph(
        "chain",
        (),
        (
            Node("a", "op", 5, (), (Value("a", 3),)),
            Node("b", "op", 1, ("a",), (Value("b", 2),)),
            Node("c", "op", 1, ("a", "b"), (Value("c", 1),)),
        ),
        (),
        ("a", "b", "c"),
        "unit",
    )
    problem = problem_from_graph(graph, budget_bytes=1, max_copies=2)
    variables = make_variables(bench.model, problem)
    first, again = variables.copies["a"]
    bench.model.add(again.is_present == 1)
    bench.model.add(again.start == 3)
    bench.model.add(again.end == 5)
    bench.model.add(first.end == 2)
    bench.model.add(variables.copies["b"][0].end == 5)
    bench.model.add(variables.capacity == capacity)
    memory.add_cumulative_memory(bench.model, problem, variables)
    assert bench.is_feasible() is is_allowed


# ---------------------------------------------------------------- sharing


@pytest.mark.parametrize(("end", "is_allowed"), [(5, True), (7, True), (4, False)])
def test_instance_outlives_own_copy(bench: Bench, end: int, is_allowed: bool) -> None:
    sharing.add_instance_outlives_own_copy(bench.model, bench.instance(bench.copy(0, 5), end))
    assert bench.is_feasible() is is_allowed


@pytest.mark.parametrize(
    ("chosen", "present", "instance_end", "is_allowed"),
    [
        ((True, False), True, 7, True),
        ((True, False), True, 6, False),  # evicted before its alias
        ((False, False), True, 7, False),  # nowhere
        ((True, True), True, 7, False),  # in two
        ((False, False), False, 0, True),
    ],
)
def test_instance_holds_copy(
    bench: Bench, chosen: tuple[bool, ...], present: bool, instance_end: int, is_allowed: bool
) -> None:
    instances = [bench.instance(bench.copy(0, 2), instance_end), bench.instance(bench.copy(4, 4), 9)]
    copy = bench.copy(1, 7, present=present)
    sharing.add_instance_holds_copy(bench.model, copy, [bench.literal(x) for x in chosen], instances)
    assert bench.is_feasible() is is_allowed


@pytest.mark.parametrize(
    ("start", "instance", "is_allowed"), [(2, 0, True), (2, 1, False), (7, 1, True), (7, 0, False), (4, 0, False)]
)
def test_shared_instance_is_that_of_the_copy_retained(
    bench: Bench, start: int, instance: int, is_allowed: bool
) -> None:
    """The base is retained in [0, 3] and again in [6, 9]."""
    chosen = [bench.literal(index == instance) for index in range(2)]
    targets = [bench.copy(0, 3), bench.copy(6, 9)]
    sharing.add_shared_instance(bench.model, bench.copy(start, 9), chosen, targets, None)
    assert bench.is_feasible() is is_allowed


@pytest.mark.parametrize(("instance", "is_allowed"), [(0, True), (1, False)])
def test_shared_instance_follows_a_chain_of_aliases(bench: Bench, instance: int, is_allowed: bool) -> None:
    """Two copies of the alias in between, both in instance 0 of the root."""
    between = [[bench.literal(True), bench.literal(False)]] * 2
    chosen = [bench.literal(index == instance) for index in range(2)]
    targets = [bench.copy(1, 3), bench.copy(5, 8)]
    sharing.add_shared_instance(bench.model, bench.copy(6, 9), chosen, targets, between)
    assert bench.is_feasible() is is_allowed


@pytest.mark.parametrize(("instance", "is_allowed"), [(0, False), (1, True)])
def test_sibling_shares_the_fresh_instance(bench: Bench, instance: int, is_allowed: bool) -> None:
    chosen = [bench.literal(index == instance) for index in range(2)]
    sharing.add_shares_sibling(bench.model, bench.copy(6, 9), chosen, None, 1)
    assert bench.is_feasible() is is_allowed


@pytest.mark.parametrize(
    ("start", "end", "instance", "is_allowed"),
    [
        (0, 5, 0, True),  # ends when it is taken over
        (0, 6, 0, False),
        (0, 6, 1, True),  # lies elsewhere
        (7, 9, 0, True),  # an alias of the new value
    ],
)
def test_overwrite(bench: Bench, start: int, end: int, instance: int, is_allowed: bool) -> None:
    taken = [bench.literal(True), bench.literal(False)]
    lies = [bench.literal(index == instance) for index in range(2)]
    sharing.add_overwrite(bench.model, bench.execution(5), taken, bench.copy(start, end), lies)
    assert bench.is_feasible() is is_allowed


# ---------------------------------------------------------------- implied


@pytest.mark.parametrize(
    ("start", "present", "stage", "is_allowed"),
    [(3, True, 2, True), (6, True, 3, True), (6, True, 2, False), (6, False, None, True), (3, False, None, False)],
)
def test_runs_say_the_stage(bench: Bench, start: int, present: bool, stage: int | None, is_allowed: bool) -> None:
    """Column 0 may run again in stage 1, 2 or 3: at events 1, 3 or 6."""
    column = Column("a", 0, 2, 3, 1, 0)
    runs = implied.link_runs(bench.model, column, bench.execution(start, present=present))
    for made_in, literal in runs.items():
        bench.model.add(literal == (made_in == stage))
    assert bench.is_feasible() is is_allowed


@pytest.mark.parametrize(
    ("end", "held", "is_allowed"),
    [
        (9, (True, True, True), True),  # stages 1, 2, 3 are events 2, 5, 9
        (8, (True, True, False), True),
        (8, (True, True, True), False),
        (2, (True, False, False), True),
        (1, (True, False, False), False),
    ],
)
def test_held_lasts_to_its_stages(bench: Bench, end: int, held: tuple[bool, ...], is_allowed: bool) -> None:
    literals = implied.link_held(bench.model, bench.model.new_constant(end), (1, 2, 3))
    for stage, is_held in zip((1, 2, 3), held, strict=True):
        bench.model.add(literals[stage] == is_held)
    assert bench.is_feasible() is is_allowed


@pytest.mark.parametrize(
    ("held", "made_in", "is_allowed"),
    [
        ((True, True), None, True),
        ((False, True), None, False),
        ((False, True), 2, True),
        ((False, True), 1, False),
        ((True, True), 1, True),
        ((True, True), 2, False),
    ],
)
def test_held_needs_run(bench: Bench, held: tuple[bool, bool], made_in: int | None, is_allowed: bool) -> None:
    starts = None if made_in is None else {stage: bench.literal(stage == made_in) for stage in (1, 2)}
    literals = {1: bench.literal(held[0]), 2: bench.literal(held[1])}
    implied.add_held_needs_run(bench.model, literals, starts)
    assert bench.is_feasible() is is_allowed


@pytest.mark.parametrize(
    ("instance", "copy", "is_in", "is_allowed"),
    [
        (True, True, None, True),
        (False, True, None, False),
        (False, False, None, True),
        (False, True, False, True),
        (False, True, True, False),
    ],
)
def test_instance_held(bench: Bench, instance: bool, copy: bool, is_in: bool | None, is_allowed: bool) -> None:
    choice = None if is_in is None else bench.literal(is_in)
    implied.add_instance_held(bench.model, {2: bench.literal(instance)}, {2: bench.literal(copy)}, choice)
    assert bench.is_feasible() is is_allowed


@pytest.mark.parametrize(("capacity", "is_allowed"), [(7, True), (6, False)])
def test_stage_memory(bench: Bench, capacity: int, is_allowed: bool) -> None:
    demands = [(3, bench.literal(True)), (5, bench.literal(False))]
    implied.add_stage_memory(bench.model, 4, demands, bench.model.new_constant(capacity))
    assert bench.is_feasible() is is_allowed


@pytest.mark.parametrize(("held", "is_allowed"), [((False, True), True), ((False, False), False)])
def test_stage_inputs_held(bench: Bench, held: tuple[bool, ...], is_allowed: bool) -> None:
    implied.add_stage_inputs_held(bench.model, [bench.literal(x) for x in held])
    assert bench.is_feasible() is is_allowed


@pytest.mark.parametrize(
    ("run", "source", "is_allowed"), [(True, True, True), (True, False, False), (False, False, True)]
)
def test_run_needs_inputs(bench: Bench, run: bool, source: bool, is_allowed: bool) -> None:
    implied.add_run_needs_inputs(bench.model, bench.literal(run), [bench.literal(source)])
    assert bench.is_feasible() is is_allowed
