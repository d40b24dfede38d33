"""In-place operations that follow their tensor's producer at once are one node with it, to a planner.

    graph    norm ──▶ a ──▶ relu_ ──▶ b (overwrites a) ──▶ ...
    merged   norm+relu_ ────────────▶ b ──▶ ...

Planners never recompute a part of what is later overwritten, so they would keep every ``b`` until its last use. Merged,
``b`` is a value like others. What they propose is unfolded into the graph's own nodes: it then needs no more memory
than the merged plan, as what only the producer reads may leave before the in-place operation. The other way round a
plan may be missed, one that frees memory between the two, so nothing proven for merged nodes is claimed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lowtide.ir import Compute, Graph, Incumbent, Node, Status, Step, Value
from lowtide.ir.sequence import steps_from_sequence
from lowtide.planners.protocol import PlanRequest, Proposal

__all__ = ["MergedGraph", "merge_in_place"]


@dataclass(frozen=True, slots=True)
class MergedGraph:
    """A graph whose in-place operations went into the producers of what they overwrite.

    Attributes:
        graph: What is planned.
        original: What is executed.
        parts_by_node: For each merged node the nodes that it stands for, in order.
    """

    graph: Graph
    original: Graph
    parts_by_node: Mapping[str, tuple[str, ...]]

    def request(self, request: PlanRequest) -> PlanRequest:
        """A request for the original graph, put to the merged one; bounds on the way are none of the original's."""
        told, request = request.on_progress, replace(request, graph=self.graph, start=None)
        if told is None:
            return request

        def tell(incumbent: Incumbent) -> None:
            told(self._without_bound(incumbent))

        return replace(request, on_progress=tell)

    def proposal(self, proposal: Proposal) -> Proposal:
        """A proposal for the merged graph as one for the original, without claims that hold for merged nodes only."""
        return replace(
            proposal,
            status=Status.FEASIBLE if proposal.status.has_plan else Status.TIMEOUT,
            steps=None if proposal.steps is None else self._unfolded(proposal.steps),
            lower_bound_duration=None,
            incumbents=tuple(map(self._without_bound, proposal.incumbents)),
            scope=None,
        )

    def _unfolded(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        sequence = [
            part
            for step in steps
            if isinstance(step, Compute)
            for part in self.parts_by_node.get(step.node, (step.node,))
        ]
        return steps_from_sequence(self.original, sequence)

    def _without_bound(self, incumbent: Incumbent) -> Incumbent:
        return replace(incumbent, lower_bound_duration=self.original.baseline_duration)


def merge_in_place(graph: Graph) -> MergedGraph | None:
    """Merge what can be merged; None where nothing can."""
    if not any(value.overwrites is not None for node in graph.nodes for value in node.outputs):
        return None
    users_by_value = _users_by_value(graph)
    groups = [group for group in _groups(graph) if _is_closed(group, users_by_value)]
    if not groups:
        return None
    merged_by_part = {part.name: group[0].name for group in groups for part in group}
    node_by_name = {group[0].name: _merged_node(group) for group in groups}
    return MergedGraph(
        graph=replace(
            graph,
            nodes=tuple(
                _renamed_after(node_by_name.get(node.name, node), merged_by_part)
                for node in graph.nodes
                if merged_by_part.get(node.name, node.name) == node.name
            ),
            order=tuple(name for name in graph.order if merged_by_part.get(name, name) == name),
        ),
        original=graph,
        parts_by_node={group[0].name: tuple(part.name for part in group) for group in groups},
    )


def _groups(graph: Graph) -> Iterator[list[Node]]:
    """Producers with the nodes right after them that only overwrite or view what they own, up to the last overwrite."""
    nodes = [graph.node_by_name[name] for name in graph.order]
    position = 0
    while position < len(nodes):
        end = _end_of_group(nodes, position)
        if end > position + 1:
            yield nodes[position:end]
        position = end


def _end_of_group(nodes: Sequence[Node], start: int) -> int:
    producer = nodes[start]
    end = start + 1
    if not producer.recomputable or not all(value.owns_storage for value in producer.outputs):
        return end
    within = {value.name for value in producer.outputs if not value.first_only}
    for position in range(start + 1, len(nodes)):
        node = nodes[position]
        bases = [value.overwrites or value.alias_of for value in node.outputs]
        touches_only_these = bool(bases) and all(base in within for base in bases)
        if not touches_only_these or not node.recomputable or any(value.first_only for value in node.outputs):
            break
        within |= {value.name for value in node.outputs}
        if any(value.overwrites is not None for value in node.outputs):
            end = position + 1
    return end


def _users_by_value(graph: Graph) -> Mapping[str, set[str]]:
    """Names of the nodes that read each value, at any execution; "" for whoever reads the graph's outputs."""
    users: dict[str, set[str]] = {name: {""} for name in graph.outputs}
    for node in graph.nodes:
        for name in (*node.inputs, *node.recompute_inputs):
            users.setdefault(name, set()).add(node.name)
    return users


def _is_closed(group: Sequence[Node], users_by_value: Mapping[str, set[str]]) -> bool:
    """Whether nobody outside needs what ends inside, and no part needs its own results to be executed again."""
    made = {value.name for part in group for value in part.outputs}
    if any(name in made for part in group for name in part.recompute_inputs):
        return False
    ended = made - {value.name for value in _surviving(group)}
    names = {part.name for part in group}
    return all(users_by_value.get(name, set()) <= names for name in ended)


def _surviving(group: Sequence[Node]) -> list[Value]:
    """The values that are there after the last part; what took over a storage owns it."""
    owner: dict[str, str] = {}  # of the storage of each value that is there
    value_by_name: dict[str, Value] = {}
    for part in group:
        for value in part.outputs:
            if value.overwrites is not None:
                root = owner[value.overwrites]
                size_bytes = value_by_name[root].size_bytes
                for name in [name for name, other in owner.items() if other == root]:
                    del owner[name], value_by_name[name]
                owner[value.name] = value.name
                value_by_name[value.name] = replace(value, overwrites=None, size_bytes=size_bytes)
            else:
                owner[value.name] = value.name if value.alias_of is None else owner[value.alias_of]
                value_by_name[value.name] = value
    return list(value_by_name.values())


def _merged_node(group: Sequence[Node]) -> Node:
    made = {value.name for part in group for value in part.outputs}
    inputs = dict.fromkeys(name for part in group for name in part.inputs if name not in made)
    again = dict.fromkeys(name for part in group for name in part.recompute_inputs if name not in inputs)
    names = {part.name for part in group}
    return Node(
        group[0].name,
        "+".join(part.op for part in group),
        sum(part.duration for part in group),
        tuple(inputs),
        tuple(_surviving(group)),
        workspace_bytes=max(part.workspace_bytes for part in group),
        after=tuple(dict.fromkeys(name for part in group for name in part.after if name not in names)),
        recompute_inputs=tuple(again),
        meta=group[0].meta,
    )


def _renamed_after(node: Node, merged_by_part: Mapping[str, str]) -> Node:
    if not any(name in merged_by_part for name in node.after):
        return node
    return replace(node, after=tuple(dict.fromkeys(merged_by_part.get(name, name) for name in node.after)))
