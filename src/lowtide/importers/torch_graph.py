"""From an ATen fx graph (AOTAutograd's joint graph, or torch.export's) to a Graph.

Storages come from the fake tensors in ``node.meta["val"]``: values whose fake tensors share a storage are aliases of
one another. ``getitem`` is folded into the op that it unpacks, None outputs are left out, random ops are chained and
carry the generator state that a recomputation needs, and of a BatchNorm's running statistics only the first execution
counts.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from lowtide.errors import CompileError
from lowtide.importers.torch_costs import NodeCost
from lowtide.importers.torch_prepare import storage_id
from lowtide.importers.torch_rng import RNG_STATE_BYTES, is_rng, rng_state_of
from lowtide.ir import BOUNDARY_OP, Graph, Input, InputKind, Node, Value
from lowtide.units import align_up

__all__ = ["BOUNDARY_NODE", "ROOT_OF_PATH", "FxImport", "Split", "graph_from_fx", "module_path"]

TORCH_ALIGNMENT_BYTES = 64
"""What torch's CPU allocator aligns to."""

ROOT_OF_PATH = re.compile(r"^L\['\w+'\]\.?")
"""How Dynamo's module paths begin: the variable that holds the model."""

_LOSS_ELEMENT_BYTES = 4

BOUNDARY_NODE = "boundary"
"""Name of the node between forward and backward."""

_FIRST_ONLY_OUTPUTS: Mapping[Any, frozenset[int]] = {
    torch.ops.aten._native_batch_norm_legit_functional.default: frozenset({3, 4}),
}
_NEVER_RECOMPUTED = frozenset({torch.ops.aten._batch_norm_with_update_functional.default})


@dataclass(frozen=True)
class Split:
    """Where the forward of a joint graph ends.

    Attributes:
        forward_outputs: What forward returns, without None and non-tensors; each node once.
        held_outputs: Those of them that the caller keeps through backward.
        tangents: Placeholders of the gradients that the caller brings to backward.
        backward_outputs: The gradients, without None; each node once.
        mutated_inputs: Placeholders that are written to after forward, so that what reads them cannot be recomputed.
    """

    forward_outputs: tuple[fx.Node, ...]
    held_outputs: frozenset[fx.Node]
    tangents: tuple[fx.Node, ...]
    backward_outputs: tuple[fx.Node, ...]
    mutated_inputs: frozenset[fx.Node] = frozenset()


@dataclass(frozen=True)
class FxImport:
    """A Graph and the fx graph that it stands for.

    Attributes:
        graph: The Graph.
        fx_graph: Where it came from.
        fx_node_by_name: The fx node of each node but the boundary.
        value_by_fx_node: The value that each fx node holds: placeholders, constants, single-output ops, getitems.
        value_by_output: The value of output ``index`` of an fx node (0 for an op with a single output).
        boundary_name: Name of the boundary node, or None.
    """

    graph: Graph
    fx_graph: fx.Graph
    fx_node_by_name: Mapping[str, fx.Node]
    value_by_fx_node: Mapping[fx.Node, str]
    value_by_output: Mapping[tuple[fx.Node, int], str]
    boundary_name: str | None


def graph_from_fx(
    fx_graph: fx.Graph,
    *,
    name: str,
    costs: Mapping[fx.Node, NodeCost],
    input_kinds: Mapping[fx.Node, InputKind],
    outputs: Iterable[fx.Node] = (),
    split: Split | None = None,
    merged_storages: Mapping[int, int] | None = None,
) -> FxImport:
    """Import an fx graph of ATen ops.

    Args:
        fx_graph: Functional; every tensor node has a fake tensor in ``meta["val"]``.
        name: Name of the Graph.
        costs: Duration and workspace of each op; ops without an entry cost nothing.
        input_kinds: Kind of each placeholder; USER for those without an entry.
        outputs: Values resident at the end of an inference graph.
        split: For a joint graph, where forward ends; ``outputs`` is then taken from it.
        merged_storages: Storages that stand for others (see ``torch_prepare.drop_noops``).

    Raises:
        CompileError: A value is no tensor of concrete shape.
    """
    importer = _Importer(costs=costs, input_kinds=input_kinds, split=split, merged_storages=merged_storages or {})
    last_forward = _last_forward_node(split, fx_graph) if split is not None else None
    for fx_node in fx_graph.nodes:
        importer.visit(fx_node)
        if split is not None and fx_node is last_forward:
            importer.add_boundary(split)
    result = split.backward_outputs if split is not None else tuple(dict.fromkeys(outputs))
    names = dict.fromkeys(importer.value_by_fx_node[fx_node] for fx_node in result)
    graph = Graph(
        name=name,
        inputs=tuple(importer.inputs),
        nodes=tuple(importer.nodes),
        outputs=tuple(names),
        order=tuple(node.name for node in importer.nodes),
        duration_unit="ns",
        alignment=TORCH_ALIGNMENT_BYTES,
        meta={"source": "torch", "torch": torch.__version__},
    )
    return FxImport(
        graph=graph,
        fx_graph=fx_graph,
        fx_node_by_name=importer.fx_node_by_name,
        value_by_fx_node=importer.value_by_fx_node,
        value_by_output=importer.value_by_output,
        boundary_name=None if split is None else BOUNDARY_NODE,
    )


def module_path(fx_node: fx.Node) -> str:
    """Path of the module that an fx node comes from, e.g. ``transformer.h.3.mlp``; empty where unknown."""
    stack = fx_node.meta.get("nn_module_stack") or fx_node.meta.get("fwd_nn_module_stack") or {}
    paths = [str(entry[0]) for entry in stack.values()]
    return ROOT_OF_PATH.sub("", paths[-1]) if paths else ""


class _Importer:
    """Builds the nodes in the order of the fx graph."""

    def __init__(
        self,
        *,
        costs: Mapping[fx.Node, NodeCost],
        input_kinds: Mapping[fx.Node, InputKind],
        split: Split | None,
        merged_storages: Mapping[int, int],
    ) -> None:
        self.inputs: list[Input] = []
        self.nodes: list[Node] = []
        self.fx_node_by_name: dict[str, fx.Node] = {}
        self.value_by_fx_node: dict[fx.Node, str] = {}
        self.value_by_output: dict[tuple[fx.Node, int], str] = {}
        self._costs = costs
        self._input_kinds = input_kinds
        self._merged_storages = merged_storages
        self._tangents = frozenset(split.tangents) if split is not None else frozenset()
        self._held = split.held_outputs if split is not None else frozenset()
        self._storage_by_value: dict[str, int] = {}
        self._mutated_inputs = split.mutated_inputs if split is not None else frozenset()
        self._mutated_storages: set[int] = set()
        self._last_rng: str | None = None

    def visit(self, fx_node: fx.Node) -> None:
        """Add what one fx node stands for."""
        if fx_node.op == "placeholder" and fx_node not in self._tangents:
            self._add_input(fx_node, self._input_kinds.get(fx_node, InputKind.USER))
        elif fx_node.op == "get_attr" and isinstance(fx_node.meta.get("val"), torch.Tensor):
            self._add_input(fx_node, InputKind.CONSTANT)
        elif fx_node.op == "call_function" and fx_node.target is operator.getitem:
            source, index = fx_node.args
            if (source, index) in self.value_by_output:
                self.value_by_fx_node[fx_node] = self.value_by_output[source, index]  # type: ignore[index]
        elif fx_node.op == "call_function":
            self._add_node(fx_node)
        elif fx_node.op not in ("output", "placeholder", "get_attr"):
            raise CompileError(f"{fx_node.op} {fx_node.target!r} is no ATen op: this graph cannot be planned")

    def add_boundary(self, split: Split) -> None:
        """Add the node between forward and backward."""
        outputs = []
        for tangent in split.tangents:
            value = tangent.name
            self.value_by_fx_node[tangent] = value
            size_bytes = self._note_storage(value, _tensor(tangent, tangent.meta.get("val")))
            outputs.append(Value(name=value, size_bytes=size_bytes, evictable=False))
        inputs = dict.fromkeys(self.value_by_fx_node[fx_node] for fx_node in split.forward_outputs)
        self.nodes.append(
            Node(
                name=BOUNDARY_NODE,
                op=BOUNDARY_OP,
                duration=0,
                inputs=tuple(inputs),
                outputs=tuple(outputs),
                workspace_bytes=align_up(_loss_bytes(split), TORCH_ALIGNMENT_BYTES),
                recomputable=False,
            )
        )

    def _add_input(self, fx_node: fx.Node, kind: InputKind) -> None:
        tensor = fx_node.meta.get("val")
        if not isinstance(tensor, torch.Tensor):
            return  # a number or a SymInt; an op that needs a symbolic one is refused where it is used
        self.value_by_fx_node[fx_node] = fx_node.name
        size_bytes = self._note_storage(fx_node.name, _tensor(fx_node, tensor))
        if fx_node in self._mutated_inputs:
            self._mutated_storages.add(self._storage_by_value[fx_node.name])
        meta = {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
        self.inputs.append(Input(name=fx_node.name, size_bytes=size_bytes, kind=kind, evictable=False, meta=meta))

    def _add_node(self, fx_node: fx.Node) -> None:
        inputs = tuple(
            dict.fromkeys(self.value_by_fx_node[arg] for arg in fx_node.all_input_nodes if arg in self.value_by_fx_node)
        )
        outputs = self._outputs_of(fx_node, inputs)
        cost = self._costs.get(fx_node, NodeCost(duration_ns=0, workspace_bytes=0))
        is_random = is_rng(fx_node)
        if is_random:
            outputs.append(
                Value(
                    name=rng_state_of(fx_node.name),
                    size_bytes=align_up(RNG_STATE_BYTES, TORCH_ALIGNMENT_BYTES),
                    first_only=True,
                )
            )
        self.nodes.append(
            Node(
                name=fx_node.name,
                op=_op_name(fx_node),
                duration=cost.duration_ns,
                inputs=inputs,
                outputs=tuple(outputs),
                workspace_bytes=align_up(cost.workspace_bytes, TORCH_ALIGNMENT_BYTES),
                recomputable=_is_recomputable(fx_node) and not self._reads_mutated(fx_node, inputs),
                after=(self._last_rng,) if is_random and self._last_rng is not None else (),
                recompute_inputs=(rng_state_of(fx_node.name),) if is_random else (),
                meta={"module": path} if (path := module_path(fx_node)) else {},
            )
        )
        self.fx_node_by_name[fx_node.name] = fx_node
        if is_random:
            self._last_rng = fx_node.name

    def _reads_mutated(self, fx_node: fx.Node, inputs: Sequence[str]) -> bool:
        """Whether a second execution, after forward, would read something else than the first."""
        if fx_node.target in _FIRST_ONLY_OUTPUTS:
            return False  # a second execution leaves the running statistics alone
        return any(self._storage_by_value[value] in self._mutated_storages for value in inputs)

    def _outputs_of(self, fx_node: fx.Node, inputs: Sequence[str]) -> list[Value]:
        val = fx_node.meta.get("val")
        is_tuple = isinstance(val, tuple | list)
        tensors = list(val) if isinstance(val, tuple | list) else [val]
        outputs: list[Value] = []
        for index, tensor in enumerate(tensors):
            if tensor is None:
                continue
            name = f"{fx_node.name}.{index}" if is_tuple else f"{fx_node.name}.out"
            self.value_by_output[fx_node, index] = name
            if not is_tuple:
                self.value_by_fx_node[fx_node] = name
            outputs.append(self._value_of(fx_node, name, index, tensor, [*inputs, *(v.name for v in outputs)]))
        return outputs

    def _value_of(self, fx_node: fx.Node, name: str, index: int, val: object, candidates: Sequence[str]) -> Value:
        tensor = _tensor(fx_node, val)
        storage = self._storage_of(tensor)
        alias_of = next((other for other in candidates if self._storage_by_value[other] == storage), None)
        size_bytes = self._note_storage(name, tensor)
        holders = _items(fx_node, index) if isinstance(fx_node.meta["val"], tuple | list) else [fx_node]
        return Value(
            name=name,
            size_bytes=0 if alias_of is not None else size_bytes,
            alias_of=alias_of,
            first_only=index in _FIRST_ONLY_OUTPUTS.get(fx_node.target, ()),
            evictable=self._held.isdisjoint(holders),
            meta={"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")},
        )

    def _storage_of(self, tensor: torch.Tensor) -> int:
        storage = storage_id(tensor)
        return self._merged_storages.get(storage, storage)

    def _note_storage(self, value: str, tensor: torch.Tensor) -> int:
        self._storage_by_value[value] = self._storage_of(tensor)
        return align_up(int(tensor.untyped_storage().nbytes()), TORCH_ALIGNMENT_BYTES)


def _items(fx_node: fx.Node, index: int) -> list[fx.Node]:
    return [user for user in fx_node.users if user.target is operator.getitem and user.args[1] == index]


def _tensor(fx_node: fx.Node, val: object) -> torch.Tensor:
    if not isinstance(val, torch.Tensor):
        raise CompileError(
            f"op {_op_name(fx_node)} ({fx_node.name}{_at(fx_node)}) gives {type(val).__name__}, not a tensor: "
            "lowtide plans graphs of concrete shapes only"
        )
    if not all(isinstance(size, int) for size in (*val.shape, *val.stride())) or not isinstance(
        val.untyped_storage().nbytes(), int
    ):
        raise CompileError(
            f"op {_op_name(fx_node)} ({fx_node.name}{_at(fx_node)}) has the symbolic shape {tuple(val.shape)}: "
            "compile with dynamic=False"
        )
    return val


def _at(fx_node: fx.Node) -> str:
    path = module_path(fx_node)
    return f" in {path}" if path else ""


def _op_name(fx_node: fx.Node) -> str:
    target = fx_node.target
    if isinstance(target, torch._ops.OpOverload):
        return str(target).removesuffix(".default")
    return str(getattr(target, "__name__", target))


def _is_recomputable(fx_node: fx.Node) -> bool:
    target = fx_node.target
    if not isinstance(target, torch._ops.OpOverload) or target in _NEVER_RECOMPUTED:
        return False
    has_generator = any(isinstance(arg, torch.Generator) for arg in (*fx_node.args, *fx_node.kwargs.values()))
    return not target._schema.is_mutable and not has_generator


def _loss_bytes(split: Split) -> int:
    """What a loss computed outside of the graph holds at once, by experience: twice the outputs that it reads.

    A cross-entropy keeps its log-softmax and makes a gradient of the same size before the one that enters backward.
    Losses are computed in float32 at least.
    Where the graph itself returns a scalar, that is the loss, and nothing is reserved.
    """
    tensors = [tangent.meta["val"] for tangent in split.tangents]
    if any(tensor.numel() == 1 for tensor in tensors):
        return 0
    elements = ((int(tensor.numel()), int(tensor.element_size())) for tensor in tensors)
    return 2 * sum(number * max(size, _LOSS_ELEMENT_BYTES) for number, size in elements)


def _last_forward_node(split: Split, fx_graph: fx.Graph) -> fx.Node:
    """The last node that forward's outputs depend on; all before it belongs to forward."""
    position: dict[fx.Node, int] = {fx_node: index for index, fx_node in enumerate(fx_graph.nodes)}
    last_placeholder = max(position[fx_node] for fx_node in fx_graph.nodes if fx_node.op == "placeholder")
    last = max([last_placeholder, *(position[fx_node] for fx_node in split.forward_outputs)])
    return list(position)[last]
