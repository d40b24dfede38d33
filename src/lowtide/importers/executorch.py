"""Torch modules as a Graph, as ExecuTorch executes them: what its own memory planner sees, and its own durations.

    module ──export, lower──▶ .pte as it is today ──runs, traced──▶ durations ─┐
                 └──────────▶ graph of out-variants ───────────────────────────┴─▶ Graph

What is planned here is what the .pte file's planned buffer holds: inputs, outputs and all tensors between. Weights lie
in the file. What kernels and delegates take for themselves while they run is not part of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from lowtide.importers.executorch_graph import LoweredGraph, graph_from_lowered
from lowtide.importers.executorch_lowering import (
    ExecutorchLowering,
    executorch_module,
    export_for_executorch,
    planned_buffer_bytes,
)
from lowtide.importers.executorch_profile import profile_instructions
from lowtide.ir import Graph

__all__ = ["ExecutorchImport", "capture_executorch", "import_executorch"]


@dataclass(frozen=True)
class ExecutorchImport:
    """A torch module as a Graph, and what it stands for.

    Attributes:
        lowering: The module, ready to be lowered again.
        graph: What is planned.
        data: The .pte file that ExecuTorch makes of it by itself.
        buffer_bytes: Its planned buffer.
        padding_bytes: What of that ExecuTorch adds behind all tensors, for XNNPACK; no plan changes it.
    """

    lowering: ExecutorchLowering
    graph: Graph
    data: bytes
    buffer_bytes: int
    padding_bytes: int


def capture_executorch(model: torch.nn.Module, example_inputs: Sequence[Any], *, delegate: str = "portable") -> Graph:
    """Capture one inference of a model as ExecuTorch executes it.

    Args:
        model: Captured in evaluation mode.
        example_inputs: Its positional arguments; the Graph is for their shapes.
        delegate: ``"portable"``: ExecuTorch's kernels execute every node; ``"xnnpack"``: XNNPACK those that it takes.

    Raises:
        CompileError: torch.export or ExecuTorch cannot take the model, or ExecuTorch's runtime refuses it; one line.
        MissingDependency: The extra ``executorch`` is not installed.
    """
    return import_executorch(export_for_executorch(model, example_inputs, delegate=delegate)).graph


def import_executorch(lowering: ExecutorchLowering, *, is_profiled: bool = True) -> ExecutorchImport:
    """Lower a model as ExecuTorch does by itself, and import what its memory planner sees.

    Args:
        lowering: The model, exported.
        is_profiled: Whether to run it for durations; all nodes take the same without.

    Raises:
        CompileError: ExecuTorch cannot take the model, or its runtime refuses it; one line.
    """
    onlooker = _Onlooker(lowering.name)
    data = lowering.lower(onlooker)
    lowered = onlooker.lowered
    assert lowered is not None, "to_executorch plans every method"
    buffer_bytes = planned_buffer_bytes(data, lowering.name)
    graph = _with_durations(lowered, profile_instructions(data, lowering)) if is_profiled else lowered.graph
    meta = {
        **graph.meta,
        "costs": "profiled" if is_profiled else "none",
        "delegate": lowering.delegate,
        "planned_buffer_bytes": buffer_bytes,
    }
    return ExecutorchImport(lowering, replace(graph, meta=meta), data, buffer_bytes, onlooker.padding_bytes)


class _Onlooker:
    """ExecuTorch's own memory planner; on the way, what it plans is imported."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lowered: LoweredGraph | None = None
        self.padding_bytes = 0

    def run(self, graph_module: Any, graph_signature: Any = None) -> Any:
        """Import a method, then plan it."""
        self.lowered = graph_from_lowered(graph_module, graph_signature, name=self.name)
        passes = executorch_module("executorch.exir.passes")
        return passes.MemoryPlanningPass(memory_planning_algo=self._place).run(graph_module, graph_signature)

    def _place(
        self, alignment: int, specs: Any, graph_module: Any, graph_signature: Any, extra_padding: int
    ) -> list[int]:
        self.padding_bytes = extra_padding
        planner = executorch_module("executorch.exir.memory_planning").MemoryPlanningAlgorithmSuite()
        sizes: list[int] = planner(alignment, specs, graph_module, graph_signature, extra_padding)
        return sizes


def _with_durations(lowered: LoweredGraph, durations_ns: Sequence[int]) -> Graph:
    duration_by_node = dict(zip(lowered.executed, durations_ns, strict=True))
    nodes = tuple(replace(node, duration=duration_by_node.get(node.name, 0)) for node in lowered.graph.nodes)
    return replace(lowered.graph, nodes=nodes)
