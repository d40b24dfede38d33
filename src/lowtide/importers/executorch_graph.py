"""ExecuTorch's graph of out-variants, as its memory planner gets it, as a Graph.

    alloc ─┐
    op.out(..., out=alloc) ─▶ getitem     one node; a value per tensor that is allocated for it
    view(base)                            a view: shares the tensor of its base, executes nothing
    call_delegate(...)                    a node that runs once
    placeholder                           user input: in the planned buffer until its last reader, and, read or not,
                                          before anything runs (``held_inputs``); weights: constant
                                          a state, which is written: in the planned buffer, from beginning to end
    copy_(state, new)                     writes a state in place: its result is the state

Sizes are rounded up to 16 bytes, as ExecuTorch's planner does it. Sizes of delegates' own memory are not known to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from lowtide.errors import CompileError
from lowtide.importers.executorch_lowering import executorch_module, executorch_version
from lowtide.importers.held_inputs import with_inputs_held
from lowtide.importers.torch_graph import module_path
from lowtide.importers.torch_rng import is_rng
from lowtide.ir import Graph, Input, InputKind, Node, Value

__all__ = ["ALIGNMENT", "LoweredGraph", "graph_from_lowered", "tensor_specs"]

ALIGNMENT = 16
"""What ExecuTorch's planner aligns to, in bytes."""

_ANY_DURATION = 1


@dataclass(frozen=True)
class LoweredGraph:
    """A Graph and the fx nodes that it stands for.

    Attributes:
        graph: Its nodes have the names of the fx nodes that compute; durations are 1, of views 0.
        fx_nodes_by_node: Of each node the fx nodes that belong together: allocations, the one that computes, getitems;
            a node that only holds inputs has none and is absent.
        node_by_fx_node: The other way round.
        spec_by_value: ExecuTorch's ``TensorSpec`` of each value.
        value_by_spec: The value of a spec, by the spec's ``id``.
        executed: Names of the nodes that are instructions of the .pte file, in their order; views are none.
    """

    graph: Graph
    fx_nodes_by_node: Mapping[str, tuple[fx.Node, ...]]
    node_by_fx_node: Mapping[fx.Node, str]
    spec_by_value: Mapping[str, Any]
    value_by_spec: Mapping[int, str]
    executed: tuple[str, ...]


def tensor_specs(fx_node: fx.Node) -> list[Any]:
    """The tensors that an fx node holds, as ExecuTorch specifies them."""
    spec_type = executorch_module("executorch.exir.tensor").TensorSpec
    return [spec for spec in pytree.tree_leaves(fx_node.meta.get("spec")) if isinstance(spec, spec_type)]


def graph_from_lowered(graph_module: fx.GraphModule, signature: Any, *, name: str) -> LoweredGraph:
    """Import what ``to_executorch`` hands to its memory planner.

    Args:
        graph_module: Out-variants and allocations that have no address yet.
        signature: Says which placeholders are what.
        name: Name of the Graph.

    Raises:
        CompileError: Control flow, or a size that depends on data.
    """
    return _Import(graph_module, signature, name).run()


class _Import:
    """One import: placeholders, then every computing fx node with what belongs to it."""

    def __init__(self, graph_module: fx.GraphModule, signature: Any, name: str) -> None:
        self.fx_graph = graph_module.graph
        self.name = name
        self.kind_by_placeholder = _kinds(signature)
        self.written_buffers = _written_buffers(signature)
        self.written_in_place = _written_in_place(self.fx_graph)
        self.alloc = executorch_module("executorch.exir.memory").alloc
        self.view = executorch_module("executorch.exir.memory").view
        self.delegate = executorch_module("executorch.exir.delegate").executorch_call_delegate
        self.inputs: list[Input] = []
        self.nodes: list[Node] = []
        self.executed: list[str] = []
        self.fx_nodes_by_node: dict[str, tuple[fx.Node, ...]] = {}
        self.spec_by_value: dict[str, Any] = {}
        self.value_by_spec: dict[int, str] = {}
        self.states: set[str] = set()
        self.last_in_sequence: list[str] = []

    def run(self) -> LoweredGraph:
        for fx_node in self.fx_graph.nodes:
            if fx_node.op == "placeholder":
                self._add_input(fx_node)
            elif fx_node.op == "call_function" and not self._belongs_to_another(fx_node):
                self._add_node(fx_node)
        output = next(iter(self.fx_graph.find_nodes(op="output")))
        outputs = tuple(dict.fromkeys(value for entry in output.all_input_nodes for value in self._values_of(entry)))
        nodes = with_inputs_held(self.inputs, self.nodes, outputs)
        graph = Graph(
            name=self.name,
            inputs=tuple(self.inputs),
            nodes=nodes,
            outputs=outputs,
            order=tuple(node.name for node in nodes),
            alignment=ALIGNMENT,
            meta={"source": "executorch", "runtime": f"executorch {executorch_version()}"},
        )
        return LoweredGraph(
            graph=graph,
            fx_nodes_by_node=self.fx_nodes_by_node,
            node_by_fx_node={each: name for name, members in self.fx_nodes_by_node.items() for each in members},
            spec_by_value=self.spec_by_value,
            value_by_spec=self.value_by_spec,
            executed=tuple(self.executed),
        )

    def _add_input(self, fx_node: fx.Node) -> None:
        for spec in tensor_specs(fx_node):
            self._check_shape(fx_node, spec)
            is_state = str(fx_node.target) in self.written_buffers
            kind = self.kind_by_placeholder.get(str(fx_node.target), InputKind.USER)
            is_planned = not spec.const
            self.inputs.append(
                Input(
                    name=fx_node.name,
                    size_bytes=spec.allocated_memory,
                    kind=InputKind.USER if is_planned else kind,
                    evictable=is_planned and not is_state,
                    meta=_meta_of(spec),
                )
            )
            self._note(fx_node.name, spec)
            if is_state or str(fx_node.target) in self.written_in_place:
                self.states.add(fx_node.name)

    def _add_node(self, fx_node: fx.Node) -> None:
        if fx_node.target is self.view:
            self._add_view(fx_node)
            return
        self._check_target(fx_node)
        read = self._values_read(fx_node)
        alias_of = self._written_over(fx_node)
        in_sequence = is_rng(fx_node) or alias_of is not None or not self.states.isdisjoint(read)
        specs = tensor_specs(fx_node)
        values = [f"{fx_node.name}.out{index if len(specs) > 1 else ''}" for index in range(len(specs))]
        for value, spec in zip(values, specs, strict=True):
            self._check_shape(fx_node, spec)
            self._note(value, spec)
        self.nodes.append(
            Node(
                name=fx_node.name,
                op=_op_name(fx_node),
                duration=_ANY_DURATION,
                inputs=read,
                outputs=tuple(
                    Value(
                        name=value,
                        size_bytes=spec.allocated_memory if alias_of is None else 0,
                        alias_of=alias_of,
                        meta=_meta_of(spec),
                    )
                    for value, spec in zip(values, specs, strict=True)
                ),
                recomputable=not in_sequence and fx_node.target is not self.delegate,
                after=tuple(self.last_in_sequence) if in_sequence else (),
                meta={"module": module_path(fx_node)},
            )
        )
        if in_sequence:
            self.last_in_sequence = [fx_node.name]
        if alias_of is not None:
            self.states.update(values)
        self.executed.append(fx_node.name)
        self.fx_nodes_by_node[fx_node.name] = tuple(self._members(fx_node))

    def _add_view(self, fx_node: fx.Node) -> None:
        base = self._values_of(fx_node.args[0])[0]  # type: ignore[arg-type]  # a view is of a node
        value = f"{fx_node.name}.out"
        (spec,) = tensor_specs(fx_node)
        self._note(value, spec)
        outputs = (Value(name=value, size_bytes=0, alias_of=base, meta=_meta_of(spec)),)
        if base in self.states:
            self.states.add(value)
        self.nodes.append(Node(name=fx_node.name, op="view", duration=0, inputs=(base,), outputs=outputs))
        self.fx_nodes_by_node[fx_node.name] = (fx_node,)

    def _belongs_to_another(self, fx_node: fx.Node) -> bool:
        return fx_node.target is self.alloc or _is_getitem(fx_node)

    def _members(self, fx_node: fx.Node) -> Iterator[fx.Node]:
        """The allocations of an fx node, itself, and what unpacks its tensors."""
        allocations = [entry for entry in fx_node.all_input_nodes if entry.target is self.alloc]
        yield from allocations
        yield fx_node
        for source in (*allocations, fx_node):
            yield from (user for user in source.users if _is_getitem(user))

    def _values_read(self, fx_node: fx.Node) -> tuple[str, ...]:
        sources = [entry for entry in fx_node.all_input_nodes if entry.target is not self.alloc]
        return tuple(dict.fromkeys(value for source in sources for value in self._values_of(source)))

    def _values_of(self, fx_node: fx.Node) -> list[str]:
        return [self.value_by_spec[id(spec)] for spec in tensor_specs(fx_node)]

    def _written_over(self, fx_node: fx.Node) -> str | None:
        """The value that an op in place writes over, or None for one with an output of its own."""
        source = _argument_in_place(fx_node)
        return None if source is None else self._values_of(source)[0]

    def _note(self, value: str, spec: Any) -> None:
        self.spec_by_value[value] = spec
        self.value_by_spec[id(spec)] = value

    def _check_target(self, fx_node: fx.Node) -> None:
        if isinstance(fx_node.target, torch._ops.HigherOrderOperator) and fx_node.target is not self.delegate:
            raise CompileError(
                f"op {_op_name(fx_node)} ({fx_node.name}{_at(fx_node)}) is control flow, which is not taken: make the "
                "choice outside of the model"
            )
        if not tensor_specs(fx_node):
            raise CompileError(
                f"op {_op_name(fx_node)} ({fx_node.name}{_at(fx_node)}) gives no tensor: numbers and sizes that depend "
                "on data are not taken"
            )

    def _check_shape(self, fx_node: fx.Node, spec: Any) -> None:
        if not spec.is_static_shape_tensor:
            raise CompileError(
                f"{fx_node.name}{_at(fx_node)} has a shape that depends on data or is left open: give example inputs "
                "of the shapes that the model will run with"
            )


def _is_getitem(fx_node: fx.Node) -> bool:
    return getattr(fx_node.target, "__name__", "") == "getitem"


def _kinds(signature: Any) -> dict[str, InputKind]:
    return {
        **dict.fromkeys(signature.inputs_to_parameters, InputKind.PARAMETER),
        **dict.fromkeys(signature.inputs_to_buffers, InputKind.BUFFER),
        **dict.fromkeys(signature.inputs_to_lifted_tensor_constants, InputKind.CONSTANT),
    }


def _written_buffers(signature: Any) -> set[str]:
    written = set(signature.buffers_to_mutate.values())
    return {placeholder for placeholder, buffer in signature.inputs_to_buffers.items() if buffer in written}


def _written_in_place(fx_graph: fx.Graph) -> set[str]:
    sources = [_argument_in_place(fx_node) for fx_node in fx_graph.nodes]
    return {str(source.target) for source in sources if source is not None and source.op == "placeholder"}


def _argument_in_place(fx_node: fx.Node) -> fx.Node | None:
    """The argument that an op writes over, which is none that is made for it."""
    if not isinstance(fx_node.target, torch._ops.OpOverload):
        return None
    for argument, source in zip(fx_node.target._schema.arguments, fx_node.args, strict=False):
        is_written = argument.alias_info is not None and argument.alias_info.is_write and not argument.is_out
        if is_written and isinstance(source, fx.Node):
            return source
    return None


def _meta_of(spec: Any) -> dict[str, Any]:
    return {"shape": [int(size) for size in spec.shape], "dtype": str(spec.dtype).removeprefix("torch.")}


def _op_name(fx_node: fx.Node) -> str:
    target = fx_node.target
    if isinstance(target, torch._ops.OpOverload):
        return str(target._overloadpacket)
    return str(getattr(target, "__name__", target))


def _at(fx_node: fx.Node) -> str:
    path = module_path(fx_node)
    return f" in {path}" if path else ""
