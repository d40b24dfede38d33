"""The computation that is planned: nodes, the values they produce, and who reads them.

    inputs ──▶ node ──▶ value ──▶ node ──▶ value ──▶ outputs
                 └────▶ value (alias_of: shares the storage of another value)

A *node* is one operation, a *value* one tensor, a *storage* the bytes that aliasing values share. Node names and value
names are two namespaces. Sizes are bytes, already rounded up to the graph's alignment; durations are whole numbers in
``duration_unit``. Everything here is frozen: a changed graph is a new graph. Constructing a :class:`Graph` checks it
(see ``graph_rules``), so that code that is handed one need not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, TypeAlias, cast

from lowtide.ir.graph_rules import check_graph

__all__ = ["BOUNDARY_OP", "INPUTS_OP", "Graph", "Input", "InputKind", "Meta", "Node", "Value"]

BOUNDARY_OP = "lowtide.boundary"
"""Op of the one node between forward and backward: reads all forward outputs, produces the tangents."""

INPUTS_OP = "lowtide.inputs"
"""Op of a node at which all inputs are resident at once; no runtime executes anything for it."""

Meta: TypeAlias = Mapping[str, Any]
"""Free-form JSON annotations (shape, dtype, module, attributes, source); they never change what a plan means."""


class InputKind(StrEnum):
    """What a graph input is; all but USER lie outside the budget of the compiled step."""

    USER = "user"
    PARAMETER = "parameter"
    BUFFER = "buffer"
    CONSTANT = "constant"
    STATE = "state"


@dataclass(frozen=True, slots=True)
class Input:
    """A value that the caller brings. It can be evicted if evictable, and never recomputed.

    Attributes:
        name: Unique among all values.
        size_bytes: Bytes of its storage.
        kind: What it is; kinds other than USER count in neither peak nor footprint.
        evictable: Whether a plan may drop it. None on construction means the default: true for USER, false otherwise.
        meta: Annotations.
    """

    name: str
    size_bytes: int
    kind: InputKind = InputKind.USER
    evictable: bool = None  # type: ignore[assignment]  # resolved to a bool in __post_init__
    meta: Meta = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        if cast("object", self.evictable) is None:
            object.__setattr__(self, "evictable", self.kind is InputKind.USER)

    @property
    def is_counted(self) -> bool:
        """Whether its bytes count towards peak and footprint."""
        return self.kind is InputKind.USER


@dataclass(frozen=True, slots=True)
class Value:
    """One output of a node.

    Attributes:
        name: Unique among all values.
        size_bytes: Bytes of the storage it owns; 0 for an alias.
        alias_of: The node's input or sibling output whose storage this value shares, or None.
        overwrites: The node's input whose storage instance this value takes over, or None. That input, and all that
            share its instance, stop being resident after the step.
        first_only: A recomputation of the node does not produce it (e.g. running statistics, a saved RNG state).
        evictable: Whether a plan may drop it.
        meta: Annotations.
    """

    name: str
    size_bytes: int
    alias_of: str | None = None
    overwrites: str | None = None
    first_only: bool = False
    evictable: bool = True
    meta: Meta = field(default_factory=dict, compare=False)

    @property
    def owns_storage(self) -> bool:
        """Whether computing it allocates a storage instance."""
        return self.alias_of is None and self.overwrites is None


@dataclass(frozen=True, slots=True)
class Node:
    """One operation.

    Attributes:
        name: Unique among all nodes.
        op: What it computes, e.g. ``aten.convolution``.
        duration: Time of one execution, in the graph's ``duration_unit``.
        inputs: Values it reads, each once.
        outputs: Values it produces, each retained on its own.
        workspace_bytes: Scratch bytes during its step only.
        recomputable: Whether it may be executed more than once.
        after: Nodes whose first executions come before this one's first.
        recompute_inputs: Values read from the second execution on.
        meta: Annotations.
    """

    name: str
    op: str
    duration: int
    inputs: tuple[str, ...]
    outputs: tuple[Value, ...]
    workspace_bytes: int = 0
    recomputable: bool = True
    after: tuple[str, ...] = ()
    recompute_inputs: tuple[str, ...] = ()
    meta: Meta = field(default_factory=dict, compare=False)

    @property
    def is_boundary(self) -> bool:
        """Whether this is the node between forward and backward."""
        return self.op == BOUNDARY_OP

    @property
    def is_view(self) -> bool:
        """Whether all its outputs are aliases, so that executing it allocates nothing and is no recomputation."""
        return bool(self.outputs) and all(value.alias_of is not None for value in self.outputs)


@dataclass(frozen=True)
class Graph:
    """A directed acyclic graph of nodes with a given order of execution.

    Attributes:
        name: For people.
        inputs: Values that the caller brings.
        nodes: The operations; their position here is the order of ``Plan.durations``.
        outputs: Values resident after the last step.
        order: The given order of execution, all node names.
        duration_unit: ``"ns"`` or ``"unit"``.
        alignment: Every size is a multiple of it, in bytes.
        meta: Annotations.

    Raises:
        GraphError: The graph contradicts itself; the message names the node or value.
    """

    name: str
    inputs: tuple[Input, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    order: tuple[str, ...]
    duration_unit: str = "ns"
    alignment: int = 1
    meta: Meta = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        check_graph(self)

    @cached_property
    def node_by_name(self) -> Mapping[str, Node]:
        """Every node by its name."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def input_by_name(self) -> Mapping[str, Input]:
        """Every graph input by its name."""
        return {graph_input.name: graph_input for graph_input in self.inputs}

    @cached_property
    def value_by_name(self) -> Mapping[str, Input | Value]:
        """Every value, graph inputs included, by its name."""
        produced = {value.name: value for node in self.nodes for value in node.outputs}
        return {**self.input_by_name, **produced}

    @cached_property
    def producer_by_value(self) -> Mapping[str, Node]:
        """The node that produces each value; graph inputs have none and are absent."""
        return {value.name: node for node in self.nodes for value in node.outputs}

    @cached_property
    def readers_by_value(self) -> Mapping[str, tuple[Node, ...]]:
        """The nodes that read each value at every execution, in the given order; values nobody reads are present."""
        readers: dict[str, list[Node]] = {name: [] for name in self.value_by_name}
        for node_name in self.order:
            node = self.node_by_name[node_name]
            for value in node.inputs:
                readers[value].append(node)
        return {value: tuple(nodes) for value, nodes in readers.items()}

    @cached_property
    def base_by_value(self) -> Mapping[str, str]:
        """The value whose storage each value shares: itself, or the end of its chain of ``alias_of``."""
        base_by_value: dict[str, str] = {graph_input.name: graph_input.name for graph_input in self.inputs}
        for node_name in self.order:
            pending = list(self.node_by_name[node_name].outputs)
            while pending:  # siblings may alias one another in any order; the rules exclude cycles
                waiting = [v for v in pending if v.alias_of is not None and v.alias_of not in base_by_value]
                for value in pending:
                    if value.alias_of is None:
                        base_by_value[value.name] = value.name
                    elif value.alias_of in base_by_value:
                        base_by_value[value.name] = base_by_value[value.alias_of]
                pending = [v for v in waiting if v.name not in base_by_value]
        return base_by_value

    @cached_property
    def boundary(self) -> Node | None:
        """The node between forward and backward, or None in an inference graph."""
        return next((node for node in self.nodes if node.is_boundary), None)

    @cached_property
    def baseline_duration(self) -> int:
        """Duration without recomputation: every node once."""
        return sum(node.duration for node in self.nodes)
