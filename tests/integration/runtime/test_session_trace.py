"""A session's trace: legal, readable again, and what the simulator makes of the same program."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent))

import torch
from session_cases import MIB, evictable, nothing_left, session_of, source  # noqa: F401
from torch import nn

import lowtide
from lowtide.errors import InputError
from lowtide.ir import Call, Mark, MarkKind, Trace
from lowtide.ir.serde import load_trace, save_trace
from lowtide.ir.trace_sizes import LEAF_OP
from lowtide.referee import check_trace
from lowtide.runtime.session import Session
from lowtide.simulator.run import simulate


def _train(session: Session) -> None:
    """A perceptron: its ops need no scratch."""
    with session:
        torch.manual_seed(0)
        model = nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(128, 128), nn.Tanh())])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        for _ in range(3):
            optimizer.zero_grad()
            batch = torch.randn(512, 128)
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
        del loss, batch


def _evicted(trace: Trace) -> list[str]:
    return [event.id for event in trace.events if isinstance(event, Mark) and event.event is MarkKind.EVICT]


def test_no_trace_is_kept_unless_it_was_asked_for(shim: ModuleType) -> None:
    session = session_of()
    with session:
        evictable()
    with pytest.raises(InputError, match="records_trace=True"):
        _ = session.trace


@pytest.mark.parametrize("policy", ["coop", "coop-paper", "dtr", "lru"])
def test_the_trace_is_legal_and_tells_what_happened(shim: ModuleType, tmp_path: Path, policy: str) -> None:
    session = session_of(3 * MIB, records_trace=True, policy=policy)
    _train(session)
    figures = check_trace(session.trace)
    assert figures.num_evictions == session.stats.num_evictions > 0
    assert figures.num_recomputes == session.stats.num_recomputes > 0
    assert figures.peak_bytes >= session.stats.peak_bytes - 128 * 1024
    assert figures.footprint_bytes <= 3 * MIB
    assert session.trace.policy == policy
    save_trace(session.trace, tmp_path / "trace.jsonl")
    assert load_trace(tmp_path / "trace.jsonl") == session.trace


@pytest.mark.parametrize("policy", ["coop", "coop-paper", "dtr", "dte"])
def test_the_simulator_evicts_the_same(shim: ModuleType, policy: str) -> None:
    budget_bytes = 3 * MIB
    session = session_of(budget_bytes, records_trace=True, policy=policy)
    _train(session)
    replayed = simulate(session.trace, budget=budget_bytes, policy=policy, records_trace=True, thrash_limit=100.0)
    assert replayed.completed
    assert replayed.trace is not None
    assert _evicted(replayed.trace) == _evicted(session.trace)
    assert replayed.num_recomputes == session.stats.num_recomputes


def test_a_trace_can_be_had_in_the_middle(shim: ModuleType) -> None:
    with session_of(records_trace=True) as session:
        value = evictable()
        assert shim.evict(value)
        (value + 1).sum()
        early = session.trace
        (value * 3).sum()
    assert check_trace(early).num_evictions == 1
    assert len(session.trace.events) > len(early.events)


def test_what_lies_outside_is_a_leaf_outside(shim: ModuleType) -> None:
    weight = torch.ones(64, 64)
    with session_of(records_trace=True) as session:
        (source() * 2).sum()
        weight.add_(1)
        product = weight @ weight
    leaves = [event for event in session.trace.events if isinstance(event, Call) and event.op == LEAF_OP]
    assert any(leaf.meta.get("external") for leaf in leaves)
    check_trace(session.trace)
    assert lowtide.simulate(session.trace, budget="1MiB").completed
    assert torch.equal(product, torch.full((64, 64), 256.0))


def test_convolutions_statistics_and_dropout_are_told_too(shim: ModuleType) -> None:
    with session_of(3 * MIB, records_trace=True) as session:
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(inplace=True),
            nn.Dropout(0.1),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(inplace=True),
            nn.Flatten(),
        )
        for _ in range(3):
            model(torch.randn(8, 3, 32, 32)).square().mean().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.grad = None
    figures = check_trace(session.trace)
    assert figures.num_evictions == session.stats.num_evictions > 0
    calls = [event for event in session.trace.events if isinstance(event, Call)]
    assert any(call.rng for call in calls)
    assert any(call.backward for call in calls)
    assert any(call.overwrites_by_output for call in calls)
    assert {"aten.convolution", "aten.native_batch_norm"} <= {call.op for call in calls}
