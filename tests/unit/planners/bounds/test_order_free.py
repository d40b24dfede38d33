"""The bound that holds for every order: chains, what is live along them in all orders, and hand-worked cases."""

from __future__ import annotations

from lowtide.importers.generate import graph_from_spec
from lowtide.ir import Graph, Node, Scope, Value
from lowtide.planners.bounds import Bound, absence_bound, order_free_bound
from lowtide.planners.bounds.chain import chain_stages
from lowtide.referee import baseline
from lowtide.testing import training_chain_graph


def forked() -> Graph:
    """Two branches of a big and a small node from one source; which of them comes first is free."""
    nodes = (
        Node("s", "op", 3, (), (Value("s", 4),)),
        Node("l", "op", 1, ("s",), (Value("l", 9),)),
        Node("l2", "op", 1, ("l",), (Value("l2", 1),)),
        Node("r", "op", 1, ("s",), (Value("r", 9),)),
        Node("r2", "op", 1, ("r",), (Value("r2", 1),)),
        Node("end", "op", 1, ("l2", "r2"), (Value("end", 1),)),
    )
    return Graph("forked", (), nodes, ("end",), tuple(node.name for node in nodes), "unit")


def test_a_branch_that_may_come_later_keeps_nothing_alive() -> None:
    """At "l" s waits for "r" in the given order only: with the order free, a chain knows of s at "s" and "l" alone."""
    stages = chain_stages(forked(), 12)
    names = {family.root: family for family in stages.families}
    assert list(stages.load_bytes) == [4, 13, 10, 3]  # s, l or r, l2 or r2, end
    assert names["s"].produced == 0
    assert names["s"].last_use == 1


def test_a_chain_of_all_nodes_gives_what_the_given_order_gives() -> None:
    graph = training_chain_graph(6, size_bytes=8, duration=2)
    peak_bytes = baseline(graph).peak_bytes
    for budget_bytes in (peak_bytes - 8, peak_bytes * 3 // 4):
        free, fixed = order_free_bound(graph, budget_bytes), absence_bound(graph, budget_bytes)
        assert free.scope == Scope(order="free")
        assert fixed.duration == free.duration > graph.baseline_duration


def test_after_counts_as_an_edge() -> None:
    def graph(after: tuple[str, ...]) -> Graph:
        nodes = (
            Node("u", "op", 5, (), (Value("u", 8),)),
            Node("big", "op", 1, (), (Value("big", 9),), after=after),
            Node("end", "op", 1, ("u",), (Value("end", 1),), after=("big",)),
        )
        return Graph("after", (), nodes, ("end",), ("u", "big", "end"), "unit")

    # Where "big" comes between u and its use, u (8) and big (9) meet; else "big" may go first.
    assert order_free_bound(graph(("u",)), 16).duration == 7 + 5
    assert order_free_bound(graph(()), 16).duration == 7


def test_a_budget_below_the_largest_working_set_is_infeasible_in_every_order() -> None:
    assert order_free_bound(forked(), 12) == Bound(8, Scope(order="free"), "working-set", is_infeasible=True)


def test_a_training_graph_gains_nothing_by_another_order() -> None:
    graph = graph_from_spec("transformer?layers=2")
    budget_bytes = baseline(graph).peak_bytes * 7 // 10
    free = order_free_bound(graph, budget_bytes)
    assert graph.baseline_duration < free.duration <= absence_bound(graph, budget_bytes).duration
