"""The public builders do what they say."""

from __future__ import annotations

from random import Random

import pytest

from lowtide.errors import PlanRejected
from lowtide.ir import Interval, Lifespan, Placement, Status
from lowtide.ir.sequence import baseline_steps
from lowtide.planners.protocol import Planner, PlanRequest, Proposal
from lowtide.referee import baseline, check_plan
from lowtide.testing import (
    FixedPlanner,
    chain_graph,
    diamond_graph,
    honest_plan,
    is_legal_sequence,
    random_graph,
    random_sequence,
    relabelled_graph,
    scaled_graph,
    stacked_layout,
    training_chain_graph,
)


def test_chains() -> None:
    assert chain_graph(3, duration=5).baseline_duration == 15
    assert chain_graph(0).outputs == ()
    assert baseline(chain_graph(9, size_bytes=8)).peak_bytes == 16


def test_training_chains_have_a_boundary_in_the_middle() -> None:
    graph = training_chain_graph(3)
    assert graph.order == ("f0", "f1", "f2", "loss", "boundary", "b2", "b1", "b0")
    assert graph.boundary is not None
    assert graph.boundary.name == "boundary"


def test_equal_seeds_give_equal_graphs_and_sequences() -> None:
    graph = random_graph(Random(3), num_nodes=9)
    assert graph == random_graph(Random(3), num_nodes=9)
    assert graph != random_graph(Random(4), num_nodes=9)
    assert random_sequence(Random(5), graph) == random_sequence(Random(5), graph)


def test_random_sequences_leave_the_given_order() -> None:
    sequences = {random_sequence(Random(seed), diamond_graph()) for seed in range(20)}
    assert len({tuple(dict.fromkeys(sequence)) for sequence in sequences}) == 2


@pytest.mark.parametrize(
    ("sequence", "is_legal"),
    [
        ("top left right bottom", True),
        ("top top left right bottom bottom", True),
        ("left top right bottom", False),
        ("top left bottom", False),
        ("", False),
    ],
)
def test_legal_sequences(sequence: str, is_legal: bool) -> None:
    assert is_legal_sequence(diamond_graph(), sequence.split()) is is_legal


def test_other_names_and_sizes() -> None:
    graph = random_graph(Random(1), num_nodes=6)
    assert relabelled_graph(relabelled_graph(graph, "<{}>".format), lambda name: name[1:-1]) == graph
    assert scaled_graph(graph, 1) == graph
    assert baseline(scaled_graph(graph, 3)).peak_bytes == 3 * baseline(graph).peak_bytes


def test_a_stacked_layout_gives_each_instance_aligned_bytes_of_its_own() -> None:
    spans = [Lifespan("a", 0, Interval(0, 1), 3), Lifespan("n", 1, Interval(0, 1), 4, is_workspace=True)]
    assert stacked_layout(spans, alignment=4).placements == (
        Placement("a", 0, 0, 3),
        Placement("n", 1, 4, 4, is_workspace=True),
    )


def test_honest_plans_are_accepted_and_illegal_steps_are_not_made_into_plans() -> None:
    graph = diamond_graph()
    check_plan(graph, honest_plan(graph, baseline_steps(graph)))
    with pytest.raises(PlanRejected, match="every-node"):
        honest_plan(graph, ())


def test_the_fake_planner_is_a_planner() -> None:
    proposal = Proposal(Status.TIMEOUT, None)
    planner: Planner = FixedPlanner(proposal)
    assert isinstance(planner, Planner)
    assert planner.propose(PlanRequest(graph=chain_graph(1), budget_bytes=1)) is proposal
