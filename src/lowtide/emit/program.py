"""A plan's steps as operators and tensors of a file.

    compute conv          ─▶ operator conv, writes tensor conv
    evict conv.out        ─▶ (the reader after it reads another tensor)
    compute conv again    ─▶ a second operator conv: same options, same weights, writes a tensor of its own

Every copy of a value is a tensor of its own, because runtimes want each tensor written once. Of a model output, the
copy that is resident at the end keeps the model's own tensor, of other values the first: inputs, outputs and
signatures stay as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lowtide.ir import Compute, Graph, Node, Step

__all__ = ["Copy", "Execution", "Program", "needed_executions", "program_of"]

Copy: TypeAlias = tuple[str, int]
"""A value and how many times its node had been computed before; graph inputs have 0."""


@dataclass(frozen=True, slots=True)
class Execution:
    """One operator of the new file.

    Attributes:
        node: What it executes.
        copy_by_input: Which copy of each input it reads.
        copy_by_output: Which copy of each output it writes.
    """

    node: str
    copy_by_input: Mapping[str, Copy]
    copy_by_output: Mapping[str, Copy]


@dataclass(frozen=True, slots=True)
class Program:
    """What a plan executes, copy by copy.

    Attributes:
        executions: In order.
        storage_by_copy: The copy that owns the bytes of each copy: itself, unless its value is an alias.
        kept: The copy of each value that takes over the tensor of the original file.
        outputs: The copies that are resident at the end, of the graph's outputs.
    """

    executions: tuple[Execution, ...]
    storage_by_copy: Mapping[Copy, Copy]
    kept: Mapping[str, Copy]
    outputs: frozenset[Copy]


def program_of(graph: Graph, steps: Sequence[Step]) -> Program:
    """Follow a legal sequence of steps and note which copy each execution reads and writes."""
    copy_by_value: dict[str, Copy] = {graph_input.name: (graph_input.name, 0) for graph_input in graph.inputs}
    storage_by_copy: dict[Copy, Copy] = {copy: copy for copy in copy_by_value.values()}
    num_computed: dict[str, int] = {}
    executions: list[Execution] = []
    for step in steps:
        if not isinstance(step, Compute):
            del copy_by_value[step.value]
            continue
        node = graph.node_by_name[step.node]
        occurrence = num_computed.get(node.name, 0)
        num_computed[node.name] = occurrence + 1
        execution = Execution(
            node=node.name,
            copy_by_input={name: copy_by_value[name] for name in node.inputs},
            copy_by_output={value.name: (value.name, occurrence) for value in node.outputs},
        )
        executions.append(execution)
        storage_by_copy.update(_storages(node, execution, storage_by_copy))
        _forget_overwritten(node, execution, storage_by_copy, copy_by_value)
        for name, copy in execution.copy_by_output.items():
            copy_by_value.setdefault(name, copy)  # a fresh copy of a resident value is dropped at once
    outputs = frozenset(copy_by_value[name] for name in graph.outputs)
    return Program(tuple(executions), storage_by_copy, _kept(graph, copy_by_value), outputs)


def needed_executions(program: Program) -> tuple[Execution, ...]:
    """The executions without those whose results nothing reads, of nodes that are executed again.

    A plan may execute a node, drop its value, and need it for the first time after that.
    """
    count_by_node = Counter(execution.node for execution in program.executions)
    read = set(program.outputs)
    needed: list[Execution] = []
    for execution in reversed(program.executions):
        if count_by_node[execution.node] > 1 and read.isdisjoint(execution.copy_by_output.values()):
            count_by_node[execution.node] -= 1
            continue
        needed.append(execution)
        read.update(execution.copy_by_input.values())
    return tuple(reversed(needed))


def _storages(node: Node, execution: Execution, storage_by_copy: Mapping[Copy, Copy]) -> dict[Copy, Copy]:
    """Whose bytes the outputs have; aliases of .tflite files name inputs of their node, never siblings."""
    found: dict[Copy, Copy] = {}
    for value in node.outputs:
        copy = execution.copy_by_output[value.name]
        source = value.alias_of or value.overwrites
        found[copy] = copy if source is None else storage_by_copy[execution.copy_by_input[source]]
    return found


def _forget_overwritten(
    node: Node, execution: Execution, storage_by_copy: Mapping[Copy, Copy], copy_by_value: dict[str, Copy]
) -> None:
    """Values whose bytes an output has taken over are resident no more."""
    for value in node.outputs:
        if value.overwrites is None:
            continue
        ended = storage_by_copy[execution.copy_by_input[value.overwrites]]
        for name in [name for name, copy in copy_by_value.items() if storage_by_copy[copy] == ended]:
            del copy_by_value[name]


def _kept(graph: Graph, copy_at_end_by_value: Mapping[str, Copy]) -> dict[str, Copy]:
    kept = {name: (name, 0) for name in graph.value_by_name}
    kept.update({name: copy_at_end_by_value[name] for name in graph.outputs})
    return kept
