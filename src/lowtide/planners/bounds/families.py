"""A graph as the bounds see it: families of values that share one storage, and when each family is needed.

    stage          0   1   2   3   4   5
    family         ●───────●───────────●            produced in 0, used in 2 and 5: gaps (0, 2) and (2, 5)
    absent                     ×   ×                evicted across 3 and 4: its root must run again before 5

Stage t is the first execution of the t-th node in the given order. A family is a value that owns a storage, its *root*,
with all aliases of it and all values that take its storage over. If no member is resident at some moment then no
instance of the storage exists, and the next use of any member needs the root's node to run again: so a family behaves
like one value, whatever aliases do. That is where several outputs, aliases and overwrites enter the bounds.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from lowtide.ir import Graph, Interval, Node, Value
from lowtide.ir.working_set import owner_by_value

__all__ = ["Family", "Stages", "fullest_stages", "stages_from_graph", "stages_within"]


@dataclass(frozen=True, slots=True)
class Family:
    """Values that share one storage.

    Attributes:
        root: Name of the value that owns the storage.
        node: Position of the node that produces the root, or None for a graph input.
        size_bytes: Counted bytes of the storage.
        can_return: Whether it can come back once no member is resident.
        uses: Stages, increasing, at which some member is certainly resident, the first being its production (-1 for a
            graph input) and the last the end of the plan for outputs.
        pinned_from: From this stage on it never leaves (an unevictable member), or None.
        latest: Where the order is free (see ``chain``): for each use the first stage by whose end it has happened in
            every order, ``uses`` being the last stages before which it has not. Empty where the order is given: each
            use happens at its stage.
    """

    root: str
    node: int | None
    size_bytes: int
    can_return: bool
    uses: tuple[int, ...]
    pinned_from: int | None
    latest: tuple[int, ...] = ()

    @property
    def produced(self) -> int:
        """The stage from which on it exists."""
        return self.latest[0] if self.latest else self.uses[0]

    @property
    def last_use(self) -> int:
        """The stage after which it is dead in the plan without recomputation."""
        return self.uses[-1]

    def is_live_at(self, stage: int) -> bool:
        """Whether it exists at a stage and is used there or later, so that it is resident without recomputation."""
        return self.produced <= stage and (stage <= self.last_use or self.is_pinned_at(stage))

    def is_needed_at(self, stage: int) -> bool:
        """Whether it is resident at a stage in every plan: it is used there, or cannot leave, or not come back."""
        if not self.is_live_at(stage):
            return False
        return not self.can_return or self.is_pinned_at(stage) or self._is_used_at(stage)

    def next_use(self, stage: int) -> int:
        """The stage by which a live family that is absent at a stage is resident again."""
        if not self.latest:
            return self.uses[bisect_right(self.uses, stage)]
        return min(last for first, last in zip(self.uses, self.latest, strict=True) if first >= stage and last > stage)

    def _is_used_at(self, stage: int) -> bool:
        if self.latest:
            return any(first == last == stage for first, last in zip(self.uses, self.latest, strict=True))
        index = bisect_left(self.uses, stage)
        return index < len(self.uses) and self.uses[index] == stage

    def is_dead_before(self, stage: int) -> bool:
        """Whether its last use lies before a stage, so that nothing but a recomputation needs it there."""
        return self.last_use < stage and not self.is_pinned_at(stage)

    def is_pinned_at(self, stage: int) -> bool:
        """Whether it cannot leave at a stage."""
        return self.pinned_from is not None and stage >= self.pinned_from

    def gaps(self) -> Iterator[Interval]:
        """The stages strictly between two uses, without empty ones."""
        for before, after in pairwise(self.uses):
            if after > before + 1:
                yield Interval(before + 1, after)


@dataclass(frozen=True)
class Stages:
    """The graph, stage by stage.

    Attributes:
        families: All of them.
        inputs_by_node: For each position the families that an execution beyond the first reads.
        families_by_node: For each position the families whose root that node produces.
        duration_by_node: Of one execution, by position.
        load_bytes: Memory of the plan without recomputation at each stage, evictions right after last uses.
        baseline_duration: Every node once.
    """

    families: tuple[Family, ...]
    inputs_by_node: tuple[tuple[int, ...], ...]
    families_by_node: tuple[tuple[int, ...], ...]
    duration_by_node: tuple[int, ...]
    load_bytes: tuple[int, ...]
    baseline_duration: int

    @property
    def end(self) -> int:
        """The stage after the last one: where outputs are used."""
        return len(self.load_bytes)

    def overloaded(self, budget_bytes: int) -> tuple[int, ...]:
        """The stages whose load exceeds the budget."""
        return tuple(stage for stage, load in enumerate(self.load_bytes) if load > budget_bytes)


def fullest_stages(stages: Stages, overloaded: Sequence[int], *, max_stages: int | None) -> tuple[int, ...]:
    """Choose so many overloaded stages: cut them into runs of equal length and take the fullest stage of each."""
    if max_stages is None or len(overloaded) <= max_stages:
        return tuple(overloaded)
    cuts = [index * len(overloaded) // max_stages for index in range(max_stages + 1)]
    return tuple(
        max(overloaded[start:end], key=stages.load_bytes.__getitem__) for start, end in pairwise(cuts) if start < end
    )


def stages_within(ordered: Sequence[int], gap: Interval) -> Sequence[int]:
    """Those of some increasing stages that lie in a gap."""
    return ordered[bisect_left(ordered, gap.start) : bisect_left(ordered, gap.end)]


def stages_from_graph(graph: Graph) -> Stages:
    """Group a graph's values into families and add up the load of every stage."""
    nodes = [graph.node_by_name[name] for name in graph.order]
    root_by_value = owner_by_value(graph)
    families = _families(graph, nodes, root_by_value)
    index_by_root = {family.root: index for index, family in enumerate(families)}
    made: list[list[int]] = [[] for _ in nodes]
    for index, family in enumerate(families):
        if family.node is not None:
            made[family.node].append(index)
    return Stages(
        families=families,
        inputs_by_node=tuple(
            tuple(dict.fromkeys(index_by_root[root_by_value[v]] for v in (*node.inputs, *node.recompute_inputs)))
            for node in nodes
        ),
        families_by_node=tuple(tuple(indices) for indices in made),
        duration_by_node=tuple(node.duration for node in nodes),
        load_bytes=_loads(families, nodes),
        baseline_duration=graph.baseline_duration,
    )


def _families(graph: Graph, nodes: Sequence[Node], root_by_value: Mapping[str, str]) -> tuple[Family, ...]:
    uses: dict[str, set[int]] = {root: set() for root in root_by_value.values()}
    pinned: dict[str, int] = {}
    overwritten = {
        root_by_value[value.overwrites] for node in nodes for value in node.outputs if value.overwrites is not None
    }
    for graph_input in graph.inputs:
        uses[graph_input.name].add(-1)
        if not graph_input.evictable:
            pinned[graph_input.name] = -1
    for position, node in enumerate(nodes):
        for name in (*node.inputs, *(value.name for value in node.outputs)):
            uses[root_by_value[name]].add(position)
        for value in node.outputs:
            if not value.evictable:
                pinned.setdefault(root_by_value[value.name], position)
    for name in graph.outputs:
        uses[root_by_value[name]].add(len(nodes))
    return tuple(
        _family(graph, root, sorted(stages), None if root in overwritten else pinned.get(root))
        for root, stages in uses.items()
    )


def _family(graph: Graph, root: str, uses: list[int], pinned_from: int | None) -> Family:
    value = graph.value_by_name[root]
    if not isinstance(value, Value):
        counted_bytes = value.size_bytes if value.is_counted else 0
        return Family(root, None, counted_bytes, can_return=False, uses=tuple(uses), pinned_from=pinned_from)
    node = graph.producer_by_value[root]
    can_return = node.recomputable and not value.first_only
    return Family(root, uses[0], value.size_bytes, can_return, tuple(uses), pinned_from)


def _loads(families: Sequence[Family], nodes: Sequence[Node]) -> tuple[int, ...]:
    change = [0] * (len(nodes) + 1)
    for family in families:
        first = max(family.uses[0], 0)
        end = len(nodes) if family.pinned_from is not None else min(family.last_use + 1, len(nodes))
        if first < end:
            change[first] += family.size_bytes
            change[end] -= family.size_bytes
    loads: list[int] = []
    total = 0
    for node, step_change in zip(nodes, change, strict=False):
        total += step_change
        loads.append(total + node.workspace_bytes)
    return tuple(loads)
