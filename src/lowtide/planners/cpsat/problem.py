"""A graph as the exact planner sees it: columns that run again in stages, and storages that are present or not.

    stage          0   1   2   3   4   5
    storage        ●───●───○   ○   ▲───●       present at 0 and 1, absent at 2 and 3, made again in stage 4, used at 5

Stage j is everything after the first execution of node j - 1, up to and including that of node j; where the graph has
outputs, one more stage without a node ends the plan. A storage stands for all values that share it (see
``bounds.families``): present as long as any of them is resident.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from lowtide.ir import Graph
from lowtide.planners.bounds.families import Family, Stages, stages_from_graph
from lowtide.planners.flat import FlatGraph

__all__ = ["Column", "Problem", "Storage", "problem_from_graph", "problem_within_flat", "without_durations"]


@dataclass(frozen=True, slots=True)
class Column:
    """A node at its position in the given order.

    Attributes:
        node: Its name.
        duration: Of one execution beyond the first.
        workspace_bytes: Scratch bytes of every execution.
        fresh_bytes: Bytes that an execution beyond the first allocates, copies that are dropped at once included.
        reads: Storages that an execution beyond the first needs.
        makes: Storages that an execution beyond the first makes again.
        last_stage: The last stage in which a recomputation can be of use; its own position where there is none.
    """

    node: str
    duration: int
    workspace_bytes: int
    fresh_bytes: int
    reads: tuple[int, ...]
    makes: tuple[int, ...]
    last_stage: int


@dataclass(frozen=True, slots=True)
class Storage:
    """Bytes that are present at a stage or not.

    Attributes:
        root: The value that owns them.
        column: Position of the node that makes them, -1 for a graph input.
        size_bytes: Counted bytes.
        can_return: Whether an execution of the column beyond the first makes them again.
        uses: Stages at whose first execution they are certainly present, the first one included.
        pinned_from: From this stage on they never leave, or None.
        last_stage: The last stage at which their presence can be of use.
    """

    root: str
    column: int
    size_bytes: int
    can_return: bool
    uses: frozenset[int]
    pinned_from: int | None
    last_stage: int

    def is_needed_at(self, stage: int) -> bool:
        """Whether they are present at the first execution of a stage in every plan."""
        return stage in self.uses or (self.pinned_from is not None and stage >= self.pinned_from)

    def may_be_present_at(self, stage: int) -> bool:
        """Whether they can be present there, and to any use."""
        return self.column <= stage and (stage <= self.last_stage or self.is_needed_at(stage))


@dataclass(frozen=True)
class Problem:
    """Columns, storages and the budget.

    Attributes:
        columns: By position.
        storages: Those of graph inputs first, then by column.
        num_stages: Stages, the end of the plan included where the graph has outputs.
        budget_bytes: Most bytes present at any step.
        max_copies: Most executions of a node, or None.
    """

    columns: tuple[Column, ...]
    storages: tuple[Storage, ...]
    num_stages: int
    budget_bytes: int
    max_copies: int | None

    def runs_of(self, column: int) -> range:
        """The stages in which a column can run again."""
        return range(column + 1, self.columns[column].last_stage + 1)

    def runs_in(self, stage: int) -> Iterator[int]:
        """The columns that can run again in a stage."""
        return (column for column in range(min(stage, len(self.columns))) if stage in self.runs_of(column))

    @property
    def num_runs(self) -> int:
        """How many pairs (stage, column) there are."""
        return sum(len(self.runs_of(column)) for column in range(len(self.columns)))

    @property
    def most_added_duration(self) -> int:
        """What all pairs together would add to the duration."""
        return sum(len(self.runs_of(index)) * column.duration for index, column in enumerate(self.columns))

    def workspace_bytes_at(self, stage: int) -> int:
        """Scratch bytes of a stage's own node; 0 at the end of the plan."""
        return self.columns[stage].workspace_bytes if stage < len(self.columns) else 0


def problem_from_graph(graph: Graph, *, budget_bytes: int, max_copies: int | None) -> Problem:
    """The problem that every plan of the graph in its given order is a solution of.

    Args:
        graph: What to plan.
        budget_bytes: Most bytes resident at any step.
        max_copies: Most executions of a node, or None.
    """
    stages = stages_from_graph(graph)
    readers = _readers(stages)
    num_stages = len(stages.duration_by_node) + (1 if graph.outputs else 0)
    latest = _last_stages(stages, readers, num_stages)
    return Problem(
        columns=tuple(_column(graph, stages, position, latest[position]) for position in range(len(latest))),
        storages=tuple(
            _storage(family, max((latest[r] for r in readers[index]), default=-1))
            for index, family in enumerate(stages.families)
        ),
        num_stages=num_stages,
        budget_bytes=budget_bytes,
        max_copies=max_copies,
    )


def problem_within_flat(problem: Problem, flat: FlatGraph) -> Problem:
    """The same problem without what a flat graph cannot express (see ``flat``): its solutions can be carried out.

    Args:
        problem: From :func:`problem_from_graph`.
        flat: The same graph, flattened.
    """
    is_recreated = dict(zip(flat.roots, flat.is_recreated, strict=True))
    columns = [
        replace(
            column,
            duration=flat.recompute_duration[position],
            makes=tuple(index for index in column.makes if is_recreated[problem.storages[index].root]),
            last_stage=_last_stage_within(flat, position, column.last_stage),
        )
        for position, column in enumerate(problem.columns)
    ]
    storages = [
        replace(storage, can_return=storage.can_return and is_recreated[storage.root]) for storage in problem.storages
    ]
    return replace(problem, columns=tuple(columns), storages=tuple(storages))


def _last_stage_within(flat: FlatGraph, position: int, last_stage: int) -> int:
    """The last stage in which a node may run again; a flat graph has no stage behind the last node, plans do."""
    name, storages = flat.nodes[position].name, flat.storages
    is_limited = name in storages.frozen_nodes or name in storages.clean_views or name in storages.last_stage_by_node
    return min(last_stage, flat.last_stage[position]) if is_limited else last_stage


def without_durations(problem: Problem) -> Problem:
    """What a problem allows, whatever it costs: to tell whether two have the same solutions."""
    return replace(problem, columns=tuple(replace(column, duration=0) for column in problem.columns))


def _readers(stages: Stages) -> list[list[int]]:
    """For each family the positions whose executions beyond the first read it."""
    readers: list[list[int]] = [[] for _ in stages.families]
    for position, indices in enumerate(stages.inputs_by_node):
        for index in indices:
            readers[index].append(position)
    return readers


def _last_stages(stages: Stages, readers: Sequence[Sequence[int]], num_stages: int) -> list[int]:
    """For each position the last stage where running again is of use: to a first execution or to a later run."""
    latest = list(range(len(stages.duration_by_node)))
    for position in reversed(range(len(latest))):
        for index in stages.families_by_node[position]:
            family = stages.families[index]
            if not family.can_return or family.pinned_from is not None:
                continue
            later = [latest[reader] if reader > position else num_stages - 1 for reader in readers[index]]
            latest[position] = max(latest[position], min(family.last_use, num_stages - 1), *later)
    return latest


def _column(graph: Graph, stages: Stages, position: int, last_stage: int) -> Column:
    node = graph.node_by_name[graph.order[position]]
    return Column(
        node=node.name,
        duration=node.duration,
        workspace_bytes=node.workspace_bytes,
        fresh_bytes=sum(v.size_bytes for v in node.outputs if v.owns_storage and not v.first_only),
        reads=stages.inputs_by_node[position],
        makes=tuple(index for index in stages.families_by_node[position] if stages.families[index].can_return),
        last_stage=last_stage,
    )


def _storage(family: Family, last_read: int) -> Storage:
    return Storage(
        root=family.root,
        column=-1 if family.node is None else family.node,
        size_bytes=family.size_bytes,
        can_return=family.can_return,
        uses=frozenset(family.uses),
        pinned_from=family.pinned_from,
        last_stage=max(family.last_use, last_read),
    )
