"""Staged plans: a scope of their own, whose proofs are never told of the wider one."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from lowtide import api
from lowtide.ir import Compute, Evict, Graph, Node, Scope, Status, Value
from lowtide.planners.protocol import PlanRequest, Proposal
from lowtide.planning.words import describe_scope
from lowtide.testing import training_chain_graph


def tangled_graph(*, c_workspace_bytes: int) -> Graph:
    """Everything has to be made again for ``end``; c's workspace leaves no room beside a, which b and d read."""
    nodes = (
        Node("a", "op", 1, (), (Value("a", 4),)),
        Node("b", "op", 10, ("a",), (Value("b", 1),)),
        Node("c", "op", 100, (), (Value("c", 1),), workspace_bytes=c_workspace_bytes),
        Node("d", "op", 1000, ("a", "c"), (Value("d", 1),)),
        Node("gap", "op", 5, (), (Value("g", 8),)),
        Node("end", "op", 5, ("b", "d"), (Value("e", 0),)),
    )
    return Graph("tangled", (), nodes, ("e",), tuple(node.name for node in nodes), "unit")


@dataclass
class WordsPlanner:
    """A fake that sees staged plans only, or says so; remembers the scope that it was asked for."""

    words: str
    name: str = "words"
    searches_staged_only: bool = True
    scopes: list[Scope] = field(default_factory=list)

    def propose(self, request: PlanRequest) -> Proposal:
        self.scopes.append(request.scope)
        steps = [Evict(word[1:]) if word.startswith("-") else Compute(word) for word in self.words.split()]
        return Proposal(Status.FEASIBLE, tuple(steps))


STAGED = "a b c d -a -c -b gap -g a b -a end -b -d"
UNSTAGED = "a b c d -a -c -b gap -g a b -a a -a end -b -d"


def test_moccasin_proves_within_its_scope_only_and_the_wider_scope_has_a_plan() -> None:
    graph = tangled_graph(c_workspace_bytes=6)
    staged = api.plan(graph, budget=8, planner="moccasin", max_copies=3, layout=None, bound=False)
    assert (staged.status, staged.scope) == (Status.INFEASIBLE, Scope("staged", 3))
    told = api.explain_missing_plan(staged)
    assert "it is proven that no plan staged in the given order with at most 3 copies of a node fits" in told
    wider = api.plan(graph, budget=8, planner="cpsat", max_copies=3, layout=None, bound=False)
    assert (wider.status, wider.scope) == (Status.OPTIMAL, Scope("fixed", 3))


def test_moccasin_is_optimal_in_the_staged_scope() -> None:
    graph = training_chain_graph(6, size_bytes=4)
    result = api.plan(graph, budget="70%", planner="moccasin", max_copies=2, layout=None)
    assert (result.status, result.scope) == (Status.OPTIMAL, Scope("staged", 2))
    assert result.as_dict()["scope"] == {"order": "staged", "max_copies": 2}
    assert result.plan is not None
    assert result.plan.scope == result.scope


def test_a_bound_of_the_given_order_is_added_to_staged_plans() -> None:
    graph, planner = tangled_graph(c_workspace_bytes=0), WordsPlanner(STAGED)
    result = api.plan(graph, budget=9, planner=planner, max_copies=2, layout=None)
    assert planner.scopes == [Scope("staged", 2)]
    assert (result.status, result.scope) == (Status.OPTIMAL, Scope("staged", 2))
    assert result.lower_bound_duration == graph.baseline_duration + 11  # b does not fit beside g, and needs a


def test_a_plan_that_is_not_staged_is_refused_where_staged_ones_were_promised() -> None:
    graph = tangled_graph(c_workspace_bytes=0)
    with pytest.raises(api.PlannerFailed, match="stages at step 12: node 'a' runs again after 'b' in one stage"):
        api.plan(graph, budget=9, planner=WordsPlanner(UNSTAGED), layout=None, bound=False)
    promises_nothing = WordsPlanner(UNSTAGED, searches_staged_only=False)
    assert api.plan(graph, budget=9, planner=promises_nothing, layout=None, bound=False).scope == Scope("fixed")


@pytest.mark.parametrize(
    ("scope", "said"),
    [
        (Scope(), "in the given order"),
        (Scope("staged"), "staged in the given order"),
        (Scope("staged", 2), "staged in the given order with at most 2 copies of a node"),
        (Scope("free"), "in any order"),
    ],
)
def test_words_of_scopes(scope: Scope, said: str) -> None:
    assert describe_scope(scope) == said
