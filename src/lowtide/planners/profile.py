"""Memory of a sequence of executions, in plain Python: the oracle of the native profile.

    executions   a    b    c    a    d            d reads a
    a            ■────■         ■────■            copies end after their last use
    memory       a   a+b  b+c  c+a  a+d           bytes resident during each execution

Works on values and storage instances, one by one, not on the storages of ``flat``: it shares nothing with what it
checks but the graph. It assumes a legal sequence whose evictions are those of ``ir.sequence.steps_from_sequence``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lowtide.ir import Graph, Value

__all__ = ["memory_bytes_by_execution", "peak_bytes"]


@dataclass(slots=True, eq=False)
class _Instance:
    """Storage from the execution that allocates it to the last one that sees a value in it."""

    size_bytes: int
    first: int
    last: int


def peak_bytes(graph: Graph, sequence: Sequence[str]) -> int:
    """Most bytes resident during any execution."""
    return max(memory_bytes_by_execution(graph, sequence), default=0)


def memory_bytes_by_execution(graph: Graph, sequence: Sequence[str]) -> list[int]:
    """Bytes resident during each execution of a sequence: inputs, outputs, workspace and all that waits.

    Args:
        graph: What is executed.
        sequence: Names of nodes, every node at least once.

    Returns:
        One number of bytes per execution.
    """
    change = [0] * (len(sequence) + 1)
    for instance in _instances(graph, sequence):
        if instance.first <= instance.last:
            change[instance.first] += instance.size_bytes
            change[instance.last + 1] -= instance.size_bytes
    memory: list[int] = []
    resident = 0
    for moment, name in enumerate(sequence):
        resident += change[moment]
        memory.append(resident + graph.node_by_name[name].workspace_bytes)
    return memory


def _instances(graph: Graph, sequence: Sequence[str]) -> list[_Instance]:
    end = len(sequence) - 1
    instances: list[_Instance] = []
    bound: dict[str, _Instance] = {}
    for graph_input in graph.inputs:
        bound[graph_input.name] = _Instance(graph_input.size_bytes if graph_input.is_counted else 0, 0, -1)
        instances.append(bound[graph_input.name])
    computed: set[str] = set()
    for moment, name in enumerate(sequence):
        node = graph.node_by_name[name]
        is_again = name in computed
        for read in (*node.inputs, *(node.recompute_inputs if is_again else ())):
            bound[read].last = max(bound[read].last, moment)
        produced = {value.name: value for value in node.outputs if not (is_again and value.first_only)}
        source = {read: bound[read] for read in node.inputs}
        for value in produced.values():
            if value.owns_storage:
                source[value.name] = _Instance(value.size_bytes, moment, moment)
                instances.append(source[value.name])
        taken = [source[value.overwrites] for value in produced.values() if value.overwrites is not None]
        bound = {value: instance for value, instance in bound.items() if instance not in taken} if taken else bound
        for value in produced.values():
            if value.evictable or value.name not in bound:
                bound[value.name] = source[_source_name(value, produced)]
        computed.add(name)
    for name, instance in bound.items():
        if name in graph.outputs or not graph.value_by_name[name].evictable:
            instance.last = end
    return instances


def _source_name(value: Value, siblings: Mapping[str, Value]) -> str:
    """The input or storage-owning sibling whose instance a value refers to."""
    while value.alias_of is not None and value.alias_of in siblings:
        value = siblings[value.alias_of]
    return value.alias_of or value.overwrites or value.name
