"""Makes a traced graph lean, with the layouts of eager: no detach, idle clone or dead op, tangents added last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from lowtide.importers.torch_rng import is_rng

__all__ = ["add_tangents_last", "drop_noops", "storage_id"]

_SAME_VALUE = frozenset({torch.ops.aten.detach.default, torch.ops.aten.alias.default})


def storage_id(tensor: torch.Tensor) -> int:
    """Identity of the storage that a fake tensor has; views share it."""
    return int(tensor.untyped_storage()._cdata)


def drop_noops(graph: fx.Graph, *, written_inputs: Iterable[fx.Node] = ()) -> Mapping[int, int]:
    """Remove detach, alias and clones that change neither values nor layout nor what the caller can see.

    A clone stays where its storage reaches the graph's outputs, since the caller may write to those, or where the graph
    or the caller writes to the original. Random ops stay even if nobody reads them: they move the generator.

    Args:
        graph: Changed in place.
        written_inputs: Placeholders that get their new value after forward: a clone keeps what they were before.

    Returns:
        For the storage of each clone that was removed, the storage that takes its place.
    """
    merged: dict[int, int] = {}
    outputs = set(next(iter(graph.find_nodes(op="output"))).all_input_nodes)
    visible = {storage_id(node.meta["val"]) for node in outputs if isinstance(node.meta.get("val"), torch.Tensor)}
    written = _written_storages(graph) | {storage_id(node.meta["val"]) for node in written_inputs}
    for node in list(graph.nodes):
        if node.op != "call_function" or node in outputs:
            continue
        if node.target in _SAME_VALUE:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
        elif _is_idle_clone(node, visible | written):
            source = node.args[0]
            target = storage_id(source.meta["val"])
            merged[storage_id(node.meta["val"])] = merged.get(target, target)
            node.replace_all_uses_with(source)
            graph.erase_node(node)
    graph.eliminate_dead_code(is_impure_node=lambda node: is_rng(node) or node.is_impure())
    graph.lint()
    return merged


def add_tangents_last(joint: fx.GraphModule, tangents: Sequence[fx.Node]) -> None:
    """Give gradients the memory layout that they have in eager mode where forward returns what it goes on using.

    Such a value has two gradients: the tangent, all zeros where only the loss is differentiated, and what comes from
    within. The joint graph adds the second to the first and so takes the layout of the tangent, where eager has but the
    second; and reductions (a bias's gradient, say) sum in the order of the layout.

    Args:
        joint: Changed in place, fake values included. A sum stays as it was where what follows needs its old layout.
        tangents: Placeholders of the gradients of forward's outputs.
    """
    swapped = [node for node in joint.graph.nodes if _starts_with_tangent(node, frozenset(tangents))]
    if not swapped:
        return
    values = {node: node.meta["val"] for node in joint.graph.nodes if "val" in node.meta}
    for node in swapped:
        node.args = node.args[::-1]
    if not _propagates(joint):
        for node in swapped:
            node.args = node.args[::-1]
        for node, value in values.items():
            node.meta["val"] = value


def _starts_with_tangent(node: fx.Node, tangents: frozenset[fx.Node]) -> bool:
    """Whether a sum of two gradients takes its layout from a tangent, and another one from the other."""
    if node.target is not torch.ops.aten.add.Tensor or node.kwargs or len(node.args) != 2:
        return False
    tangent, inner = node.args
    if tangent not in tangents or not isinstance(inner, fx.Node) or inner in tangents:
        return False
    values = tangent.meta["val"], inner.meta["val"]  # type: ignore[union-attr]
    return bool(values[0].shape == values[1].shape and values[0].stride() != values[1].stride())


def _propagates(module: fx.GraphModule) -> bool:
    """Compute all fake values anew; false where an operation does not take the layouts that it gets."""
    inputs: list[Any] = [node.meta["val"] for node in module.graph.find_nodes(op="placeholder")]
    mode = next(value.fake_mode for value in inputs if isinstance(value, torch._subclasses.FakeTensor))
    try:
        FakeTensorProp(module, mode=mode).propagate_dont_convert_inputs(*inputs)
    except (RuntimeError, ValueError):
        return False
    return True


def _is_idle_clone(node: fx.Node, kept_storages: set[int]) -> bool:
    if node.target is not torch.ops.aten.clone.default or not isinstance(node.args[0], fx.Node):
        return False
    copy, original = node.meta["val"], node.args[0].meta["val"]
    if storage_id(copy) in kept_storages or storage_id(original) in kept_storages:
        return False
    return bool(copy.stride() == original.stride() and copy.shape == original.shape)


def _written_storages(graph: fx.Graph) -> set[int]:
    written: set[int] = set()
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable:
            tensors = (arg.meta.get("val") for arg in node.all_input_nodes)
            written |= {storage_id(tensor) for tensor in tensors if isinstance(tensor, torch.Tensor)}
    return written
