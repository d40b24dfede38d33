"""What PyTorch's own means against memory would execute of a captured training graph: data for the cost model.

- `block_paths_of`: the blocks around which ``torch.utils.checkpoint`` goes, as module paths.
- `partitions_of`: what AOTAutograd's partitioner puts into forward and backward under
  ``torch._functorch.config.activation_memory_budget``.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from torch import fx
from torch._functorch import config
from torch._functorch.partitioners import min_cut_rematerialization_partition

from lowtide.importers.torch_graph import BOUNDARY_NODE
from lowtide.importers.torch_joint import JointCapture, capture_joint
from lowtide.importers.torch_keywords import by_position
from lowtide.measure.targets import resolve_target
from lowtide.measure.torch_peers import require_blocks

__all__ = ["block_paths_of", "partitions_of"]


def block_paths_of(target: str) -> list[str]:
    """Module paths of the blocks that ``checkpoint_blocks`` would wrap, as ``Node.meta["module"]`` names them.

    Args:
        target: Function that returns the model, ``pkg.module:function``.

    Raises:
        InputError: It has no blocks.
    """
    model, _, _ = _read_example(target)
    path_by_block = {id(module): path for path, module in model.named_modules()}
    return [path_by_block[id(block)] for block in require_blocks(model)]


def partitions_of(
    target: str, *, ratios: Sequence[float], should_stop: Callable[[], bool] = lambda: False
) -> list[tuple[str, ...]]:
    """What runs when the partitioner may save a share of the activations, one sequence for each share.

    The partitioner is the one that the backends aot_eager and inductor share. It sees the graph that lowtide plans:
    without inductor's decompositions, and without the merging of equal operations.

    Args:
        target: Function that returns ``(model, example_inputs[, loss_function])``, ``pkg.module:function``.
        ratios: From 0 (save as little as it can) to 1 (save what backward reads).
        should_stop: Asked before each ratio, which may take a second; true leaves out the rest.

    Returns:
        Names of nodes of the graph that ``capture_training`` gives: forward, boundary, backward.

    Raises:
        CompileError: The model does not trace to one graph of concrete shapes.
    """
    sequences: list[tuple[str, ...]] = []

    def partition(captured: JointCapture, settings: Mapping[str, Any]) -> None:
        names = captured.imported.fx_node_by_name
        for ratio in ratios:
            if should_stop():
                return
            with config.patch(activation_memory_budget=ratio, cse=False):
                halves = min_cut_rematerialization_partition(_copied(captured.module), (), **settings)
            forward, backward = (_executed(half, names) for half in halves)
            sequences.append((*forward, BOUNDARY_NODE, *backward))

    model, inputs, loss = _read_example(target)
    capture_joint(model, inputs, loss=loss, costs="estimated", name=None, then=partition)
    return sequences


def _read_example(target: str) -> tuple[Any, tuple[Any, ...], Callable[..., Any] | None]:
    model, inputs, *losses = cast("tuple[Any, ...]", resolve_target(target)())
    if isinstance(inputs, Mapping):
        model, inputs = by_position(model, inputs)
    return model, tuple(inputs), losses[0] if losses else None


def _copied(module: fx.GraphModule) -> fx.GraphModule:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's own, on copying what it keeps in a module
        return copy.deepcopy(module)


def _executed(module: fx.GraphModule, names: Mapping[str, fx.Node]) -> list[str]:
    return [node.name for node in module.graph.nodes if node.op == "call_function" and node.name in names]
