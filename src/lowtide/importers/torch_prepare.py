"""Makes a traced ATen graph lean: no detach, no clone that changes nothing, no dead ops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import fx

from lowtide.importers.torch_rng import is_rng

__all__ = ["drop_noops", "storage_id"]

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
