"""A flat graph as Checkmate sees it: nodes that are computed in stages, storages that are checkpointed in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lowtide.planners.flat import FlatGraph

__all__ = ["Instance", "instance_from_flat", "num_nonzeros"]


@dataclass(frozen=True)
class Instance:
    """Numbers only; nodes by position in the order, storages by index.

    Attributes:
        durations: Of one execution beyond the first, by node (the paper's C).
        workspaces: Scratch bytes of an execution, by node.
        dropped: Bytes that an execution beyond the first allocates only to drop them, by node.
        reads: Storages that a first execution reads, by node (the paper's DEPS).
        reads_again: Storages that later executions read, by node.
        makes: Storages that a first execution makes, by node.
        makes_again: Storages that later executions make, by node; empty where there are none.
        last_stages: The last stage in which a node can be computed, by node.
        users: Nodes that read a storage, increasing, by storage (the paper's USERS).
        sizes: Bytes by storage (the paper's M).
        producers: The node that makes a storage, -1 for graph inputs, by storage.
        is_kept: Whether a storage is resident behind the last stage, by storage.
        budget_bytes: The paper's M_budget.
        max_copies: Most executions of a node, or None.
    """

    durations: Sequence[int]
    workspaces: Sequence[int]
    dropped: Sequence[int]
    reads: Sequence[Sequence[int]]
    reads_again: Sequence[Sequence[int]]
    makes: Sequence[Sequence[int]]
    makes_again: Sequence[Sequence[int]]
    last_stages: Sequence[int]
    users: Sequence[Sequence[int]]
    sizes: Sequence[int]
    producers: Sequence[int]
    is_kept: Sequence[bool]
    budget_bytes: int
    max_copies: int | None

    @property
    def num_nodes(self) -> int:
        """How many nodes there are: as many as stages."""
        return len(self.durations)

    @property
    def num_storages(self) -> int:
        """How many storages there are."""
        return len(self.sizes)

    def may_run(self, stage: int, node: int) -> bool:
        """Whether a node can be computed in a stage."""
        return node == stage or (node < stage <= self.last_stages[node] and bool(self.makes_again[node]))

    def read_in(self, stage: int, node: int) -> Sequence[int]:
        """The storages that a node reads in a stage."""
        return self.reads[node] if node == stage else self.reads_again[node]

    def made_in(self, stage: int, node: int) -> Sequence[int]:
        """The storages that a node makes in a stage."""
        return self.makes[node] if node == stage else self.makes_again[node]

    def touched_in(self, stage: int, node: int) -> Sequence[int]:
        """What may be freed once a node is computed in a stage: what it reads and what it makes (DEPS[k] and k)."""
        return tuple(dict.fromkeys((*self.read_in(stage, node), *self.made_in(stage, node))))


def instance_from_flat(flat: FlatGraph, *, budget_bytes: int, max_copies: int | None) -> Instance:
    """Take the numbers over from a flat graph."""
    num_nodes = len(flat.nodes)
    makes: list[list[int]] = [[] for _ in range(num_nodes)]
    for storage, producer in enumerate(flat.producer):
        if producer >= 0:
            makes[producer].append(storage)
    reads_again = [[*flat.reads[node], *flat.recompute_reads[node]] for node in range(num_nodes)]
    users: list[list[int]] = [[] for _ in flat.producer]
    for node, storages in enumerate(reads_again):
        for storage in storages:
            users[storage].append(node)
    return Instance(
        durations=flat.recompute_duration,
        workspaces=flat.workspace_bytes,
        dropped=flat.recompute_workspace_bytes,
        reads=flat.reads,
        reads_again=reads_again,
        makes=makes,
        makes_again=[
            [s for s in makes[node] if flat.is_recreated[s]] if flat.last_stage[node] > node else []
            for node in range(num_nodes)
        ],
        last_stages=flat.last_stage,
        users=users,
        sizes=flat.size_bytes,
        producers=flat.producer,
        is_kept=flat.is_kept,
        budget_bytes=budget_bytes,
        max_copies=max_copies,
    )


def num_nonzeros(instance: Instance) -> int:
    """About how many nonzeros the program has, without building it."""
    num_nodes = instance.num_nodes
    total = 3 * num_nodes * instance.num_storages
    for node in range(num_nodes):
        num_stages = num_nodes - node
        touched = dict.fromkeys((*instance.reads_again[node], *instance.makes[node]))
        total += num_stages * (3 * len(instance.reads_again[node]) + 4 + len(touched))
        for storage in touched:
            later = sum(num_nodes - user for user in instance.users[storage] if user > node)
            total += 2 * (3 * num_stages + later)
    return total
