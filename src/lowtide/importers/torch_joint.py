"""Training graphs: AOTAutograd's joint forward and backward as one Graph with a boundary in the middle."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from lowtide.errors import CompileError
from lowtide.importers.torch_costs import CostCache, CostMode, cost_nodes, default_cost_cache
from lowtide.importers.torch_dynamo import (
    OTHER_WAYS,
    compile_settings,
    explain,
    input_kinds_of,
    trace_with_aot,
    user_place,
)
from lowtide.importers.torch_graph import FxImport, Split, graph_from_fx
from lowtide.importers.torch_prepare import add_tangents_last, drop_noops
from lowtide.importers.torch_transformers import hooked
from lowtide.ir import Graph, InputKind

__all__ = ["ForwardCapture", "JointCapture", "capture_joint", "capture_training", "import_forward", "import_joint"]

_LOG = logging.getLogger("lowtide")


@dataclass(frozen=True)
class JointCapture:
    """A joint graph and how it is called.

    Attributes:
        imported: The Graph and what it stands for.
        module: The joint module, prepared.
        primals: Placeholders of forward, in the order in which it is called.
        tangents: Placeholders of the gradients of forward's outputs, likewise.
        forward_outputs: What forward returns, None and numbers included.
        backward_outputs: The gradients of the primals, None where there is none.
        forward_descriptions: AOTAutograd's descriptions of the forward outputs.
        backward_descriptions: Likewise of the gradients.
        has_checkpoint_regions: Whether the model uses torch.utils.checkpoint, whose choice the planner takes over.
    """

    imported: FxImport
    module: fx.GraphModule
    primals: tuple[fx.Node, ...]
    tangents: tuple[fx.Node, ...]
    forward_outputs: tuple[Any, ...]
    backward_outputs: tuple[Any, ...]
    forward_descriptions: tuple[Any, ...]
    backward_descriptions: tuple[Any, ...]
    has_checkpoint_regions: bool


@dataclass(frozen=True)
class ForwardCapture:
    """A forward graph where nothing requires a gradient, and how it is called.

    Attributes:
        imported: The Graph and what it stands for.
        module: The module, prepared.
        primals: Its placeholders.
        outputs: What it returns, None and numbers included.
    """

    imported: FxImport
    module: fx.GraphModule
    primals: tuple[fx.Node, ...]
    outputs: tuple[Any, ...]


def import_joint(
    joint: fx.GraphModule,
    *,
    num_forward_outputs: int,
    kinds: Mapping[int, InputKind],
    mode: CostMode,
    cache: CostCache | None,
    name: str = "training step",
) -> JointCapture:
    """Import what AOTAutograd hands to a partition function.

    Args:
        joint: Joint module; prepared in place.
        num_forward_outputs: How many of its outputs forward returns.
        kinds: Kind of each input by its position in the Dynamo graph.
        mode: How durations are made.
        cache: Where profiled durations are kept.
        name: Name of the Graph.

    Raises:
        CompileError: A value has a symbolic shape or is no tensor, or the graph communicates between devices.
    """
    _refuse_symbols_and_collectives(joint.graph)
    placeholders = list(joint.graph.find_nodes(op="placeholder"))
    tangents = tuple(node for node in placeholders if "tangents" in str(node.target))
    primals = tuple(node for node in placeholders if "tangents" not in str(node.target))
    add_tangents_last(joint, tangents)
    descriptions = _descriptions(joint.graph)
    mutated = _mutated(primals, descriptions[:num_forward_outputs])
    merged_storages = drop_noops(joint.graph, written_inputs=mutated)
    results = _results(joint.graph)
    forward, backward = results[:num_forward_outputs], results[num_forward_outputs:]
    split = Split(
        forward_outputs=_tensors(forward),
        held_outputs=frozenset(_tensors(_held(forward, descriptions))),
        tangents=tangents,
        backward_outputs=_tensors(backward),
        mutated_inputs=mutated,
    )
    imported = graph_from_fx(
        joint.graph,
        name=name,
        costs=_costs_of(joint.graph, mode=mode, cache=cache),
        input_kinds=_kinds_of(primals, kinds),
        split=split,
        merged_storages=merged_storages,
    )
    return JointCapture(
        imported=imported,
        module=joint,
        primals=primals,
        tangents=tangents,
        forward_outputs=tuple(forward),
        backward_outputs=tuple(backward),
        forward_descriptions=tuple(descriptions[:num_forward_outputs]),
        backward_descriptions=tuple(descriptions[num_forward_outputs:]),
        has_checkpoint_regions=any(node.meta.get("recompute") is not None for node in joint.graph.nodes),
    )


def import_forward(
    module: fx.GraphModule,
    *,
    kinds: Mapping[int, InputKind],
    mode: CostMode,
    cache: CostCache | None,
    name: str = "inference",
) -> ForwardCapture:
    """Import what AOTAutograd hands to an inference compiler; prepared in place.

    Raises:
        CompileError: A value has a symbolic shape or is no tensor, or the graph communicates between devices.
    """
    _refuse_symbols_and_collectives(module.graph)
    primals = tuple(module.graph.find_nodes(op="placeholder"))
    mutated = _mutated(primals, _descriptions(module.graph))
    merged_storages = drop_noops(module.graph, written_inputs=mutated)
    results = _results(module.graph)
    imported = graph_from_fx(
        module.graph,
        name=name,
        costs=_costs_of(module.graph, mode=mode, cache=cache),
        input_kinds=_kinds_of(primals, kinds),
        outputs=_tensors(results),
        merged_storages=merged_storages,
    )
    return ForwardCapture(imported=imported, module=module, primals=primals, outputs=tuple(results))


def capture_training(
    model: torch.nn.Module,
    inputs: Sequence[Any],
    *,
    loss: Callable[[Any], torch.Tensor] | None = None,
    costs: str = "profiled",
    name: str | None = None,
) -> Graph:
    """Capture one training step, forward and backward, without running it.

    Args:
        model: In the mode in which it is to be trained.
        inputs: Its positional arguments.
        loss: Makes the model's output a scalar; without it, the gradients of all outputs enter backward as tangents.
        costs: ``"profiled"`` times every distinct op once; ``"estimated"`` computes from bytes and FLOPs.
        name: Name of the Graph; the model's class otherwise.

    Returns:
        The joint graph, with a node of op ``lowtide.boundary`` between forward and backward.

    Raises:
        CompileError: The model does not trace to one graph of concrete shapes; the message names the place.
    """
    captured: list[JointCapture] = []
    capture_joint(model, inputs, loss=loss, costs=costs, name=name, then=lambda joint, _: captured.append(joint))
    return captured[0].imported.graph


def capture_joint(
    model: torch.nn.Module,
    inputs: Sequence[Any],
    *,
    loss: Callable[[Any], torch.Tensor] | None,
    costs: str,
    name: str | None,
    then: Callable[[JointCapture, Mapping[str, Any]], None],
) -> None:
    """As ``capture_training``, for whoever wants the joint module beside the Graph.

    Args:
        model: As there.
        inputs: As there.
        loss: As there.
        costs: As there.
        name: As there.
        then: Called with the capture and the keyword arguments of a partition function, while AOTAutograd traces.

    Raises:
        CompileError: As there.
    """
    is_captured = False

    def backend(module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        kinds = input_kinds_of(module)

        def partition(joint: fx.GraphModule, _: object, *, num_fwd_outputs: int, **others: Any) -> Any:
            nonlocal is_captured
            captured = import_joint(
                joint,
                num_forward_outputs=num_fwd_outputs,
                kinds=kinds,
                mode=CostMode(costs),
                cache=default_cost_cache(),
                name=name or type(model).__name__,
            )
            then(captured, {"num_fwd_outputs": num_fwd_outputs, **others})
            is_captured = True
            raise _CapturedSignal

        def no_gradient(*_: object) -> Any:
            raise CompileError("no output requires a gradient: nothing to train, capture it with inference=True")

        return trace_with_aot(
            module,
            example_inputs,
            partition=partition,
            compile_forward=no_gradient,
            compile_backward=no_gradient,
            compile_inference=no_gradient,
        )

    def step(*arguments: Any) -> Any:
        output = model(*arguments)
        return output if loss is None else loss(output)

    compiled = torch.compile(step, backend=backend, fullgraph=True, dynamic=False)
    rng_state = torch.get_rng_state()
    try:
        with compile_settings():
            hooked(model, lambda: compiled(*inputs))
    except Exception as error:  # noqa: BLE001 - Dynamo wraps the signal and every refusal in errors of its own
        if is_captured:
            return
        raise explain(error, model=model) or error from None
    finally:
        torch.set_rng_state(rng_state)
    raise CompileError(f"{type(model).__name__} runs no tensor op that Dynamo could capture: nothing to plan")


class _CapturedSignal(Exception):
    """Not an error, the way out of a trace: the joint graph is there, the rest of the compilation is not needed."""


def _results(graph: fx.Graph) -> list[Any]:
    return list(pytree.arg_tree_leaves(*next(iter(graph.find_nodes(op="output"))).args))


def _descriptions(graph: fx.Graph) -> list[Any]:
    """What AOTAutograd says each result of a graph is; None where it says nothing."""
    output = next(iter(graph.find_nodes(op="output")))
    return list(pytree.arg_tree_leaves(output.meta.get("desc", [None] * len(_results(graph)))))


def _tensors(results: Sequence[Any]) -> tuple[fx.Node, ...]:
    nodes = (node for node in results if isinstance(node, fx.Node))
    return tuple(dict.fromkeys(node for node in nodes if isinstance(node.meta.get("val"), torch.Tensor)))


def _held(forward: Sequence[Any], descriptions: Sequence[Any]) -> list[Any]:
    """Outputs that the caller keeps: all but the new values of mutated inputs, which are copied and dropped."""
    is_mutation = [type(description).__name__ == "InputMutationAOTOutput" for description in descriptions]
    return [node for node, mutation in zip(forward, is_mutation, strict=False) if not mutation]


def _mutated(primals: Sequence[fx.Node], descriptions: Sequence[Any]) -> frozenset[fx.Node]:
    """Placeholders whose new value is among the forward outputs."""
    arguments = [getattr(description, "mutated_input", None) for description in descriptions]
    return frozenset(node for node in primals if node.meta.get("desc") in [a for a in arguments if a is not None])


def _kinds_of(primals: Sequence[fx.Node], kinds: Mapping[int, InputKind]) -> Mapping[fx.Node, InputKind]:
    """Kinds of the traced placeholders: by AOTAutograd's description of which argument each one is."""
    by_node = {}
    for position, node in enumerate(primals):
        index = getattr(node.meta.get("desc"), "idx", position)
        by_node[node] = kinds.get(index, InputKind.USER) if isinstance(index, int) else InputKind.USER
    return by_node


def _costs_of(graph: fx.Graph, *, mode: CostMode, cache: CostCache | None) -> Mapping[fx.Node, Any]:
    ops = [node for node in graph.nodes if node.op == "call_function"]
    return dict(zip(ops, cost_nodes(ops, mode=mode, cache=cache), strict=True))


def _refuse_symbols_and_collectives(graph: fx.Graph) -> None:
    for node in graph.nodes:
        if isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool):
            raise CompileError(
                f"the graph has a symbolic size ({node.name} = {node.meta['val']})"
                f"{user_place(node.meta.get('stack_trace'))}: lowtide plans concrete shapes only, compile with "
                "dynamic=False and without ops whose output shape depends on data"
            )
        if node.target is torch.ops.aten.mkldnn_rnn_layer.default:
            raise CompileError(
                f"a recurrent layer{user_place(node.meta.get('stack_trace'))} is one op that leaves out results: write "
                f"the recurrence as a loop over torch ops, or {OTHER_WAYS}"
            )
        if "c10d" in str(node.target):
            raise CompileError(
                f"op {node.target} communicates between processes: distributed training is not supported"
            )
