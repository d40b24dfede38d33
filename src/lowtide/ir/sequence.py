"""From a sequence of executions to the steps of a plan: every copy lives until its last use.

    sequence   a    b    c    a    d            d reads a
    a          ■────■         ■────■            its first copy dies after b, the second after d
    steps      a b (evict a) c (evict b, c) a d (evict a)

Planners choose only which nodes to execute and when; this gives the evictions that make memory least for that choice
(save where a base is recomputed although a view still keeps its bytes: leaving the base resident would then be better,
and leaving out that recomputation better still).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lowtide.ir.graph import Graph, Node, Value
from lowtide.ir.plan import Compute, Evict, Step

__all__ = ["baseline_steps", "steps_from_sequence"]


def baseline_steps(graph: Graph) -> tuple[Step, ...]:
    """The given order without recomputation, each value evicted right after its last use."""
    return steps_from_sequence(graph, graph.order)


def steps_from_sequence(graph: Graph, sequence: Sequence[str]) -> tuple[Step, ...]:
    """Add the evictions to a sequence of node executions.

    A copy of a value is evicted right after its last use before the next execution that makes a fresh copy; a value
    that nobody uses right after it is made (graph inputs: before the first step). Unevictable values, and the last
    copies of graph outputs, stay. A value that an execution overwrites needs no eviction.

    Args:
        graph: What is executed.
        sequence: Node names; every node once, and more often where it is recomputed.

    Returns:
        Compute and evict steps. Whether the sequence is legal is for the referee to say.
    """
    evictions = _Evictions(graph, num_executions=len(sequence))
    for moment, name in enumerate(sequence, start=1):
        evictions.execute(graph.node_by_name[name], moment)
    evictions.finish()
    steps: list[Step] = [Evict(value) for value in evictions.after[0]]
    for name, values in zip(sequence, evictions.after[1:], strict=True):
        steps.append(Compute(name))
        steps.extend(map(Evict, values))
    return tuple(steps)


class _Evictions:
    """Finds after which execution (1-based; 0: before the first) each copy of a value is evicted."""

    def __init__(self, graph: Graph, *, num_executions: int) -> None:
        self.after: list[list[str]] = [[] for _ in range(num_executions + 1)]
        self._value_by_name = graph.value_by_name
        self._outputs = frozenset(graph.outputs)
        self._last_use: dict[str, int] = {}
        self._instance_by_value: dict[str, int] = {}
        self._values_by_instance: dict[int, list[str]] = {}
        self._num_instances = 0
        self._computed: set[str] = set()
        self._overwritten: set[str] = set()
        for graph_input in graph.inputs:
            self._begin_copy(graph_input.name, self._fresh_instance(), 0)

    def execute(self, node: Node, moment: int) -> None:
        """Note what an execution reads, ends and makes."""
        is_again = node.name in self._computed
        self._computed.add(node.name)
        for name in (*node.inputs, *(node.recompute_inputs if is_again else ())):
            self._last_use[name] = moment
        produced = [value for value in node.outputs if not (is_again and value.first_only)]
        instance_by_name = self._instances_of(node, produced)
        ended = [self._instance_by_value[value.overwrites] for value in produced if value.overwrites is not None]
        self._end_instances(ended, moment)
        siblings = {value.name: value for value in node.outputs}
        for value in produced:
            if not is_again or self._makes_way(value, moment):
                self._begin_copy(value.name, instance_by_name[value.name], moment)
                source = _source_of(value, siblings)
                if source.overwrites is None and instance_by_name[value.name] in ended:
                    self._overwritten.add(value.name)  # a view of what this very execution overwrites

    def finish(self) -> None:
        """End all copies that do not stay."""
        for name in self._last_use:
            if name not in self._outputs:
                self._end_copy(name)
        # Of the inputs that nobody reads the largest leaves first: what is left is the first step's memory.
        self.after[0].sort(key=lambda name: self._value_by_name[name].size_bytes, reverse=True)

    def _makes_way(self, value: Value, moment: int) -> bool:
        """Whether the copy of before is gone when the node is executed again, so that the fresh one stays."""
        if value.name in self._overwritten:
            return True
        if not value.evictable or self._last_use[value.name] == moment:
            return False
        self._end_copy(value.name)
        return True

    def _instances_of(self, node: Node, produced: Sequence[Value]) -> dict[str, int]:
        siblings = {value.name: value for value in node.outputs}
        fresh = {value.name: self._fresh_instance() for value in produced if value.owns_storage}
        instance_by_name: dict[str, int] = {}
        for value in produced:
            source = _source_of(value, siblings)
            taken = source.overwrites or source.alias_of
            instance_by_name[value.name] = fresh[source.name] if taken is None else self._instance_by_value[taken]
        return instance_by_name

    def _end_instances(self, instances: Sequence[int], moment: int) -> None:
        """Values of an overwritten instance end with it, those used until now without an eviction of their own."""
        for instance in dict.fromkeys(instances):
            for name in self._values_by_instance[instance]:
                if self._instance_by_value[name] != instance or name in self._overwritten:
                    continue
                if self._last_use[name] < moment and name not in self._outputs:
                    self._end_copy(name)
                self._overwritten.add(name)

    def _begin_copy(self, name: str, instance: int, moment: int) -> None:
        self._overwritten.discard(name)
        self._instance_by_value[name] = instance
        self._values_by_instance.setdefault(instance, []).append(name)
        self._last_use[name] = moment

    def _end_copy(self, name: str) -> None:
        if name not in self._overwritten and self._value_by_name[name].evictable:
            self.after[self._last_use[name]].append(name)

    def _fresh_instance(self) -> int:
        self._num_instances += 1
        return self._num_instances


def _source_of(value: Value, siblings: Mapping[str, Value]) -> Value:
    """The end of a chain of aliases among the outputs of one node."""
    while value.alias_of is not None and value.alias_of in siblings:
        value = siblings[value.alias_of]
    return value
