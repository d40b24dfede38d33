"""What PyTorch's own means would recompute, on graphs small enough to work it out by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile

import pytest

from lowtide.comparison.comparing import compare_graph
from lowtide.comparison.modelled_peers import ModelledPeer, checkpointed_sequence
from lowtide.comparison.options import choose_options
from lowtide.comparison.rows import Kind, Outcome
from lowtide.ir import BOUNDARY_OP, Compute, Graph, Input, Node, Status, Value
from lowtide.planners.protocol import PlanRequest, Proposal

BLOCK_BY_NODE = {"a": "net.0.lin", "b": "net.0", "c": "net.1", "d": "net.1.act", "e": "net.10"}


@pytest.fixture
def chain() -> Graph:
    """a ─ b │ c ─ d │ e, then backward: each node's reads what it read and the gradient. Blocks net.0, net.1."""
    names = list(BLOCK_BY_NODE)
    forward = [
        Node(name, "op", 10, (names[i - 1] if i else "x",), (Value(name, 8),), meta={"module": BLOCK_BY_NODE[name]})
        for i, name in enumerate(names)
    ]
    boundary = Node("boundary", BOUNDARY_OP, 0, ("e",), (Value("t", 1),), recomputable=False)
    backward = [
        Node(f"b{name}", "op", 10, (f"g{names[i + 1]}" if i + 1 < len(names) else "t", before), (Value(f"g{name}", 8),))
        for i, (name, before) in reversed([*enumerate(zip(names, ["x", *names], strict=False))])
    ]
    nodes = (*forward, boundary, *backward)
    return Graph("chain", (Input("x", 8),), nodes, ("ga",), tuple(node.name for node in nodes))


def test_a_block_runs_again_up_to_what_backward_reads_of_it(chain: Graph) -> None:
    """Of block net.0 backward reads a, as b is kept for block net.1; of that c, as d is kept for e."""
    sequence = checkpointed_sequence(chain, ["net.0", "net.1"])
    assert sequence == ("a", "b", "c", "d", "e", "boundary", "be", "c", "bd", "bc", "a", "bb", "ba")


def test_a_path_is_no_prefix_of_other_names(chain: Graph) -> None:
    assert checkpointed_sequence(chain, ["net.1"]).count("e") == 1


def test_what_cannot_be_recomputed_is_kept(chain: Graph) -> None:
    fixed = replace(chain, nodes=tuple(replace(node, recomputable=node.name in "abde") for node in chain.nodes))
    assert checkpointed_sequence(fixed, ["net.0", "net.1"]).count("c") == 1


def test_without_backward_nothing_runs_again(four: Graph) -> None:
    assert checkpointed_sequence(four, [""]) == four.order


def test_within_a_budget_the_fastest_setting_that_fits_is_taken(chain: Graph) -> None:
    settings = [chain.order, checkpointed_sequence(chain, ["net.0"]), checkpointed_sequence(chain, ["net.0", "net.1"])]
    peer = ModelledPeer("peer", lambda *_: settings)
    found = {}
    for budget_bytes in (39, 40, 41, 48, 49, 60):
        proposal = peer.propose(PlanRequest(graph=chain, budget_bytes=budget_bytes))
        num_executed = sum(isinstance(step, Compute) for step in proposal.steps or ())
        found[budget_bytes] = (proposal.status, num_executed - len(chain.nodes))
    fits = Status.FEASIBLE
    assert found == {39: (Status.TIMEOUT, 2), 40: (fits, 2), 41: (fits, 1), 48: (fits, 1), 49: (fits, 0), 60: (fits, 0)}


def test_a_peer_that_was_stopped_begins_anew(chain: Graph) -> None:
    """The first time it is stopped after one of two settings, the second time before any."""
    num_asked = 0

    def should_stop() -> bool:
        nonlocal num_asked
        num_asked += 1
        return num_asked > 1

    def settings_of(_: Graph, should_stop: Callable[[], bool]) -> list[Sequence[str]]:
        settings = [checkpointed_sequence(chain, ["net.0", "net.1"]), chain.order]
        return list(takewhile(lambda _: not should_stop(), settings))

    peer = ModelledPeer("peer", settings_of)
    request = PlanRequest(graph=chain, budget_bytes=60)
    stopped = replace(request, should_stop=should_stop)
    assert len(peer.propose(stopped).steps or ()) > len(peer.propose(request).steps or ()) > 0
    fresh = ModelledPeer("peer", settings_of)
    assert fresh.propose(stopped) == Proposal(status=Status.TIMEOUT, steps=None)
    assert fresh.propose(request).status is Status.FEASIBLE


def test_rows_of_a_peer_say_what_it_needs_at_least(chain: Graph) -> None:
    chosen = choose_options(num_nodes=11, planners=["greedy"], policies=[], time_limit_seconds=2.0, threads=1)
    peer = ModelledPeer("checkpoint", lambda graph, _: [checkpointed_sequence(graph, ["net.0", "net.1"])])
    options = replace(chosen, modelled_peers={"checkpoint": peer})
    compared = compare_graph(chain, budgets=["95%", "60%"], options=options)
    ample, tight = (row.row for row in compared.rows if row.row.cell.kind is Kind.PEER)
    assert (ample.outcome, ample.num_recomputes, ample.duration) == (Outcome.FEASIBLE, 2, 120)
    assert (tight.outcome, tight.needed_bytes) == (Outcome.OVER, None)
    assert tight.reason == f"its smallest peak is {ample.peak_bytes} B"
