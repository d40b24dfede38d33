"""What to compare, checked before long work."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from lowtide.comparison.modelled_peers import MODELLED_PEERS
from lowtide.comparison.peers import PEERS
from lowtide.errors import InputError
from lowtide.extras import how_to_install
from lowtide.layouts.protocol import Layouter
from lowtide.planners.protocol import Planner
from lowtide.planners.table import PLANNERS
from lowtide.planning.addresses import choose_layouter
from lowtide.planning.options import check_limits, choose_planner
from lowtide.policies.protocol import Policy
from lowtide.policies.table import POLICIES, policy_named

__all__ = ["ALL", "ComparisonOptions", "choose_options"]

ALL = "all"
"""As the only planner or policy: every one of lowtide's own."""

_MOST_NODES = {"checkmate": 60, "checkmate-lp": 300, "cpsat": 150, "moccasin": 500}
"""Planners that need minutes beyond so many nodes: left out there unless they are asked for."""

_SECONDS_FOR_SLOW = 300
"""What these are told to be given."""

_NEEDS_ORTOOLS = frozenset({"cpsat", "moccasin"})

Named = TypeVar("Named", Planner, Policy)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonOptions:
    """Who is compared, and how.

    Attributes:
        planners: By name, in the order of the rows.
        modelled_peers: Likewise: what PyTorch itself offers, as plans of the graph.
        policies: Likewise.
        peers: Of the measured runs; empty where nothing is measured.
        source_model: What the graph was captured from, as ``pkg.module:function``, or None.
        model: What is really trained, likewise, or None to measure nothing.
        time_limit_seconds: For each planner and each bound within each budget.
        seed: Of planners, policies and trainings.
        threads: Of planners; None for all that this process may use. Trainings have one.
        layouter: Who gives plans addresses; None: the budget is for live bytes.
        notes: What was left out and why, one sentence each.
    """

    planners: Mapping[str, Planner]
    modelled_peers: Mapping[str, Planner] = field(default_factory=dict)
    policies: Mapping[str, Policy]
    peers: tuple[str, ...] = ()
    source_model: str | None = None
    model: str | None = None
    time_limit_seconds: float
    seed: int
    threads: int | None
    layouter: Layouter | None
    notes: tuple[str, ...] = ()

    def as_header(self) -> dict[str, object]:
        """What must be the same for rows to stand in one table."""
        return {
            "model": self.source_model,
            "time_limit_seconds": float(self.time_limit_seconds),
            "seed": self.seed,
            "threads": self.threads,
            "layout": None if self.layouter is None else self.layouter.name,
        }


def choose_options(
    *,
    num_nodes: int | None,
    planners: Sequence[str | Planner] | None = None,
    policies: Sequence[str | Policy] | None = None,
    peers: Sequence[str] | None = None,
    model: str | None = None,
    source_model: str | None = None,
    time_limit_seconds: float = 10.0,
    seed: int = 0,
    threads: int | None = None,
    layout: str | Layouter | None = "best_fit",
) -> ComparisonOptions:
    """Find everybody by name.

    Args:
        num_nodes: Of the graph, which decides which planners there are by default; None while that is not known.
        planners: Planners, their names, ``pkg.mod:Class``, or ``("all",)``; None: those that suit the graph.
        policies: Policies, their names or ``pkg.mod:Class``; None or ``("all",)``: all of lowtide's own.
        peers: Names in ``lowtide.comparison.peers.PEERS``; None: all. Of no meaning without any model.
        model: What to train, or None.
        source_model: What the graph was captured from, as ``pkg.module:function``: what PyTorch would recompute of it
            is modelled. None: ``model``.
        time_limit_seconds: For each planner and bound.
        seed: Of everything that draws.
        threads: Of planners.
        layout: As in ``lowtide.plan``.

    Raises:
        InputError: Somebody is not known or named twice, or an option is wrong.
    """
    check_limits(time_limit_seconds=time_limit_seconds, seed=seed)
    names, notes = _default_planners(num_nodes, time_limit_seconds) if planners is None else (planners, ())
    all_planners = tuple(names) == (ALL,)
    all_policies = policies is None or tuple(policies) == (ALL,)
    chosen_policies: Sequence[str | Policy] = tuple(POLICIES) if all_policies else tuple(policies or ())
    chosen_peers = _choose_peers(peers)
    source_model = source_model or model
    modelled = [MODELLED_PEERS[name](source_model) for name in chosen_peers if source_model and name in MODELLED_PEERS]
    return ComparisonOptions(
        modelled_peers={peer.name: peer for peer in modelled},
        planners=_by_name([choose_planner(one) for one in (tuple(PLANNERS) if all_planners else names)], "planner"),
        policies=_by_name(
            [policy_named(one) if isinstance(one, str) else one for one in chosen_policies],
            "policy",
        ),
        peers=() if model is None else chosen_peers,
        source_model=source_model,
        model=model,
        time_limit_seconds=time_limit_seconds,
        seed=seed,
        threads=threads,
        layouter=choose_layouter(layout),
        notes=tuple(notes),
    )


def _default_planners(num_nodes: int | None, time_limit_seconds: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Those that suit a graph of that size and are installed, and who was left out."""
    chosen, slow, missing = [], [], []
    has_ortools = importlib.util.find_spec("ortools") is not None
    for name in sorted(PLANNERS, key=lambda name: (name in _MOST_NODES, name)):
        if num_nodes is not None and num_nodes > _MOST_NODES.get(name, num_nodes):
            slow.append(name)
        elif name in _NEEDS_ORTOOLS and not has_ortools:
            missing.append(name)
        else:
            chosen.append(name)
    notes = []
    if slow:
        more = f" --time-limit {_SECONDS_FOR_SLOW}" if time_limit_seconds < _SECONDS_FOR_SLOW else ""
        notes.append(
            f"left out: planners {', '.join(slow)}; a graph of {num_nodes:,} nodes takes them minutes, and each has "
            f"{time_limit_seconds:g} s here. --planners all{more} asks them, too"
        )
    if missing:
        notes.append(
            f"left out: planners {', '.join(missing)}; their solver is not installed: {how_to_install('exact')}"
        )
    return tuple(chosen), tuple(notes)


def _by_name(found: Sequence[Named], noun: str) -> dict[str, Named]:
    by_name: dict[str, Named] = {}
    for one in found:
        if one.name in by_name and by_name[one.name] is not one and type(by_name[one.name]) is not type(one):
            raise InputError(f"two of the {noun} classes are called {one.name!r}: rows need a name each")
        by_name.setdefault(one.name, one)
    return by_name


def _choose_peers(peers: Sequence[str] | None) -> tuple[str, ...]:
    for name in peers or ():
        if name not in PEERS:
            raise InputError(f"peer {name!r:.80} is not known: choose one of {', '.join(PEERS)}")
    return tuple(name for name in PEERS if peers is None or name in peers)
