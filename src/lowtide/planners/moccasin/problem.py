"""A graph as Moccasin sees it: columns (nodes by position) that run at events, and values that are retained.

The paper's graphs have one output per node and nothing else. What a graph of lowtide has beyond that is decided in
``docs/decisions/moccasin.md`` and turned into plain numbers here, so that the constraints need not know graphs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from lowtide.ir import Graph, Input, Node, Value
from lowtide.planners.moccasin.events import event_at, num_events

__all__ = ["Column", "Problem", "RetainedValue", "problem_from_graph"]


@dataclass(frozen=True, slots=True)
class Column:
    """A node at its position in the input order.

    Attributes:
        node: Name of the node, or None for the end of the plan, which reads the graph's outputs.
        position: Its column, and the stage of its first execution.
        max_executions: Most executions, the first included.
        last_stage: The last stage in which a recomputation can still be of use.
        duration: Of one execution.
        workspace_bytes: Scratch bytes of every execution.
    """

    node: str | None
    position: int
    max_executions: int
    last_stage: int
    duration: int
    workspace_bytes: int

    @property
    def first_event(self) -> int:
        """The event of its first execution."""
        return event_at(self.position, self.position)

    @property
    def recompute_events(self) -> tuple[int, ...]:
        """The events at which it can be recomputed."""
        if self.max_executions == 1:
            return ()
        return tuple(event_at(stage, self.position) for stage in range(self.position + 1, self.last_stage + 1))


@dataclass(frozen=True, slots=True)
class RetainedValue:
    """A value, copies of which are retained.

    Attributes:
        name: Of the value.
        column: Position of the node that makes it, or None for a graph input.
        max_copies: Most copies; copy i is made by execution i.
        size_bytes: Bytes of the storage it owns; 0 for a value that shares one, and for inputs outside the budget.
        is_evictable: Whether its first copy may end before the plan does; where not, every later copy is discarded.
        readers: Columns every execution of which reads it.
        recompute_readers: Columns whose executions read it from the second one on.
        shares: The value whose storage it shares or takes over, or None where it owns one.
        is_overwrite: Whether it takes that storage over.
        has_siblings: Whether its node has other outputs, so that it may be made again while it is still resident.
    """

    name: str
    column: int | None
    max_copies: int
    size_bytes: int
    is_evictable: bool
    readers: tuple[int, ...]
    recompute_readers: tuple[int, ...]
    shares: str | None
    is_overwrite: bool
    has_siblings: bool


@dataclass(frozen=True)
class Problem:
    """Columns, values and the budget.

    Attributes:
        columns: By position; where the graph has outputs, the last one is the end of the plan.
        values: Graph inputs first, then by position of their node.
        budget_bytes: Most bytes retained at any event (the paper's M).
        is_exact: Whether every staged plan of the graph is one of the model; false for graphs that overwrite an
            unevictable value, whose bounds are not claimed then.
    """

    columns: tuple[Column, ...]
    values: tuple[RetainedValue, ...]
    budget_bytes: int
    is_exact: bool = True

    @property
    def last_event(self) -> int:
        """The last event of the plan."""
        return num_events(len(self.columns)) - 1

    @cached_property
    def value_by_name(self) -> Mapping[str, RetainedValue]:
        """Every value by its name."""
        return {value.name: value for value in self.values}

    @cached_property
    def root_by_value(self) -> Mapping[str, str]:
        """The value that owns the storage each value lies in, through aliases and overwrites."""
        root_by_value: dict[str, str] = {}
        for value in self.values:
            root = value
            while root.shares is not None:
                root = self.value_by_name[root.shares]
            root_by_value[value.name] = root.name
        return root_by_value

    @cached_property
    def sharers_by_root(self) -> Mapping[str, tuple[RetainedValue, ...]]:
        """The values that lie in the storage of another one, by that other."""
        sharers: dict[str, list[RetainedValue]] = {value.name: [] for value in self.values}
        for value in self.values:
            if value.shares is not None:
                sharers[self.root_by_value[value.name]].append(value)
        return {root: tuple(values) for root, values in sharers.items()}

    def may_be_remade_while_resident(self, value: RetainedValue) -> bool:
        """Whether it can be of use to keep an old copy while its node runs again (for another of its outputs).

        For an evictable value alone in its storage it never is: evicting the old copy just before makes room for the
        fresh one, which serves as well. With aliases the old copy may cost nothing, a node that reads an output of its
        own needs it, and an unevictable value cannot go.
        """
        if not value.is_evictable or value.column in value.recompute_readers:
            return True
        is_shared = value.shares is not None or bool(self.sharers_by_root[value.name])
        return value.has_siblings and is_shared

    def use_events(self, value: RetainedValue) -> Iterator[int]:
        """The events at which some execution may read a value; a copy ends at one of them or where it starts."""
        for reader in value.readers:
            yield self.columns[reader].first_event
            yield from self.columns[reader].recompute_events
        for reader in value.recompute_readers:
            yield from self.columns[reader].recompute_events


def problem_from_graph(graph: Graph, *, budget_bytes: int, max_copies: int) -> Problem:
    """Number a graph's nodes and values.

    Args:
        graph: What to plan, in its given order.
        budget_bytes: Most bytes resident at any step.
        max_copies: Most executions of one node (the paper's C), at least 1.
    """
    readers = _readers(graph)
    columns = _columns(graph, readers, max_copies)
    num_siblings = {value.name: len(node.outputs) for node in graph.nodes for value in node.outputs}
    values = [_retained(value, None, 1, readers, num_siblings) for value in graph.inputs]
    for column in columns:
        if column.node is not None:
            for value in graph.node_by_name[column.node].outputs:
                copies = 1 if value.first_only else column.max_executions
                values.append(_retained(value, column.position, copies, readers, num_siblings))
    return Problem(columns, tuple(values), budget_bytes, is_exact=not _pinned_and_overwritten(graph))


_Readers = dict[str, tuple[tuple[int, ...], tuple[int, ...]]]


def _readers(graph: Graph) -> _Readers:
    always: dict[str, list[int]] = {name: [] for name in graph.value_by_name}
    again: dict[str, list[int]] = {name: [] for name in graph.value_by_name}
    for position, name in enumerate(graph.order):
        node = graph.node_by_name[name]
        for value in node.inputs:
            always[value].append(position)
        for value in node.recompute_inputs:
            if value not in node.inputs:
                again[value].append(position)
    for value in graph.outputs:
        always[value].append(len(graph.order))
    return {name: (tuple(always[name]), tuple(again[name])) for name in always}


def _columns(graph: Graph, readers: _Readers, max_copies: int) -> tuple[Column, ...]:
    num_nodes = len(graph.order)
    fixed = _pinned_and_overwritten(graph)
    last_stage: dict[int, int] = {num_nodes: num_nodes}
    columns = [Column(None, num_nodes, 1, num_nodes, 0, 0)] if graph.outputs else []
    end = num_nodes + len(columns) - 1
    for position in reversed(range(num_nodes)):
        node = graph.node_by_name[graph.order[position]]
        remade = [value.name for value in node.outputs if _is_remade(value)] if _may_run_again(node, fixed) else []
        stages = [last_stage.get(r, end) for name in remade for group in readers[name] for r in group]
        latest = max(stages, default=position)
        executions = min(max_copies, latest - position + 1) if latest > position else 1
        last_stage[position] = latest if executions > 1 else position
        columns.append(_column(node, position, executions, last_stage[position]))
    return tuple(reversed(columns))


def _column(node: Node, position: int, max_executions: int, last_stage: int) -> Column:
    return Column(node.name, position, max_executions, last_stage, node.duration, node.workspace_bytes)


def _may_run_again(node: Node, fixed: set[str]) -> bool:
    """Whether a node may be recomputed in the model.

    One that makes an unevictable value which another node overwrites is not: after the overwriting its fresh copy would
    have to stay, which the model does not express (``is_exact`` is false then).
    """
    return node.recomputable and not any(value.name in fixed for value in node.outputs)


def _pinned_and_overwritten(graph: Graph) -> set[str]:
    overwritten = {value.overwrites for node in graph.nodes for value in node.outputs if value.overwrites is not None}
    bases = {graph.base_by_value[name] for name in overwritten}
    return {
        value.name
        for node in graph.nodes
        for value in node.outputs
        if not value.evictable and graph.base_by_value[value.name] in bases
    }


def _is_remade(value: Value) -> bool:
    """Whether a recomputation gives a copy of the value that can be kept."""
    return value.evictable and not value.first_only


def _retained(
    value: Input | Value,
    column: int | None,
    max_copies: int,
    readers: _Readers,
    num_siblings: Mapping[str, int],
) -> RetainedValue:
    shares = None if isinstance(value, Input) else value.alias_of or value.overwrites
    is_counted = value.is_counted if isinstance(value, Input) else shares is None
    return RetainedValue(
        name=value.name,
        column=column,
        max_copies=max_copies,
        size_bytes=value.size_bytes if is_counted else 0,
        is_evictable=value.evictable,
        readers=readers[value.name][0],
        recompute_readers=readers[value.name][1],
        shares=shares,
        is_overwrite=isinstance(value, Value) and value.overwrites is not None,
        has_siblings=num_siblings.get(value.name, 1) > 1,
    )
