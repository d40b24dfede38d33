"""From the runs of every stage to the executions of a plan, with the views that they make necessary.

A view that only renames a storage is not in the model. Before a use it is executed again where its base has a newer
copy than the one it refers to: what ``flat.sequence_of`` does for runs in the given order, for any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lowtide.ir import Node
from lowtide.planners.flat import FlatGraph

__all__ = ["sequence_from_runs"]


def sequence_from_runs(flat: FlatGraph, runs_by_stage: Mapping[int, Sequence[int]]) -> list[str]:
    """Names of the nodes that are executed, in order.

    Args:
        flat: The graph.
        runs_by_stage: Columns that run in a stage before its own node, in that order; the last stage may lie behind
            the last node.
    """
    executions = _Executions(flat)
    for stage in range(len(flat.nodes) + 1):
        for column in runs_by_stage.get(stage, ()):
            executions.execute(flat.nodes[column])
        if stage < len(flat.nodes):
            executions.execute(flat.nodes[stage])
    executions.refresh(flat.graph.outputs)
    return executions.sequence


class _Executions:
    """Which copy of each storage is the newest, and to which one each view refers."""

    def __init__(self, flat: FlatGraph) -> None:
        self.sequence: list[str] = []
        self._graph = flat.graph
        self._storages = flat.storages
        self._is_recreated = dict(zip(flat.roots, flat.is_recreated, strict=True))
        self._newest: dict[str, int] = {}
        self._referred: dict[str, int] = {}

    def execute(self, node: Node) -> None:
        """Execute a node, after the stale views that it reads."""
        is_again = node.name in self._referred
        self.refresh((*node.inputs, *(node.recompute_inputs if is_again else ())))
        self.sequence.append(node.name)
        for value in node.outputs:
            if value.owns_storage and (not is_again or self._is_recreated[value.name]):
                self._newest[value.name] = self._newest.get(value.name, 0) + 1
        self._referred[node.name] = self._copy_seen_by(node)

    def refresh(self, values: Iterable[str]) -> None:
        """Execute again the views among some values whose base has a newer copy."""
        for value in values:
            chain: list[Node] = []  # a view, the view that it reads, and so on
            node = self._graph.producer_by_value.get(value)
            while node is not None and node.name in self._storages.clean_views:
                if self._referred[node.name] == self._copy_seen_by(node):
                    break
                chain.append(node)
                node = self._graph.producer_by_value.get(self._base_of(node))
            for view in reversed(chain):
                self.execute(view)

    def _copy_seen_by(self, node: Node) -> int:
        """The copy to which the outputs of a view refer if it is executed now; 0 for other nodes."""
        if node.name not in self._storages.clean_views:
            return 0
        return self._newest.get(self._storages.root_by_value[node.outputs[0].name], 0)

    def _base_of(self, view: Node) -> str:
        """The input of a view that its first output renames."""
        siblings = {value.name: value for value in view.outputs}
        base = view.outputs[0].alias_of
        while base in siblings:
            base = siblings[base].alias_of
        assert base is not None
        return base
