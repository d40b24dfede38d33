"""A torch module on its way to an ExecuTorch program: what is exported once, lowered as often as wanted.

    model ──torch.export──▶ program ──to_edge──▶ edge program ──to_executorch──▶ graph of out-variants ──planner──▶ .pte
                            (kept)                                                       ▲
                                              what a planner gets to see: addresses are all that is still missing

Lowering runs nothing of the model. ExecuTorch's packages are imported where they are used, quietly: they warn of GPU
libraries that nobody asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Protocol

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import TensorArgument
from torch.utils import _pytree as pytree

from lowtide.errors import CompileError, FormatError, LowtideError, MissingDependency
from lowtide.importers.executorch_runtime import METHOD
from lowtide.importers.quiet import without_notices
from lowtide.importers.torch_export import evaluating, module_of, one_line

__all__ = [
    "DELEGATES",
    "ExecutorchLowering",
    "MemoryPlanner",
    "executorch_module",
    "executorch_version",
    "export_for_executorch",
    "planned_buffer_bytes",
]

DELEGATES = ("portable", "xnnpack")
"""Who executes the nodes: ExecuTorch's kernels all of them, or XNNPACK what it takes."""

_CONSTANTS_BUFFER = 0
_LONGEST_MESSAGE = 400
_MAGIC_AT = slice(4, 6)
_MAGIC = b"ET"


class MemoryPlanner(Protocol):
    """What ``to_executorch`` calls last: it gives every tensor an address, and may rewrite the graph before."""

    def run(self, graph_module: Any, graph_signature: Any = None) -> Any:
        """Plan one method; an object with the changed ``graph_module`` comes back."""
        ...


@dataclass(frozen=True)
class ExecutorchLowering:
    """A model that can be lowered again and again.

    Attributes:
        program: What ``torch.export`` made of it.
        inputs: Its example inputs, flat: what the runtime is handed.
        name: For people.
        delegate: One of ``DELEGATES``.
    """

    program: ExportedProgram
    inputs: tuple[Any, ...]
    name: str
    delegate: str

    def lower(self, planner: MemoryPlanner | None = None) -> bytes:
        """Make a .pte file.

        Args:
            planner: Who plans its memory; ExecuTorch's own planner by default.

        Raises:
            CompileError: ExecuTorch cannot take the model; one line.
        """
        exir = executorch_module("executorch.exir")
        config = exir.ExecutorchBackendConfig() if planner is None else exir.ExecutorchBackendConfig(
            memory_planning_pass=planner
        )  # fmt: skip
        try:
            with torch.no_grad(), without_notices():
                return bytes(self._edge(exir).to_executorch(config).buffer)
        except LowtideError:
            raise
        except Exception as error:
            raise CompileError(f"ExecuTorch cannot take {self.name}: {_said_by(error)}") from error

    def _edge(self, exir: Any) -> Any:
        if self.delegate == "portable":
            return exir.to_edge(self.program)
        xnnpack = executorch_module("executorch.backends.xnnpack.partition.xnnpack_partitioner")
        return exir.to_edge_transform_and_lower(self.program, partitioner=[xnnpack.XnnpackPartitioner()])


def export_for_executorch(
    model: torch.nn.Module | ExportedProgram,
    example_inputs: Sequence[Any],
    *,
    delegate: str = "portable",
    name: str | None = None,
) -> ExecutorchLowering:
    """Export one inference of a model in evaluation mode, without running it.

    Args:
        model: Put into evaluation mode for that, and back into its own mode afterwards; or a program of torch.export.
        example_inputs: Its positional arguments; the program is for their shapes.
        delegate: One of ``DELEGATES``.
        name: Name of the program; the model's class otherwise.

    Raises:
        CompileError: torch.export cannot take the model as one graph of concrete shapes (the message names the place),
            or the model returns no tensor.
        MissingDependency: The extra ``executorch`` is not installed.
    """
    executorch_version()
    module = module_of(model)
    what = name or type(module).__name__
    inputs = pytree.tree_map(_without_gradient, tuple(example_inputs))
    with evaluating(module), torch.no_grad():
        try:
            program = torch.export.export(module, inputs, strict=False)
        except Exception as error:
            raise CompileError(f"torch.export cannot capture {what}: {one_line(error)}") from error
    _check_outputs(program, what)
    return ExecutorchLowering(program, tuple(pytree.tree_leaves(inputs)), what, delegate)


def _without_gradient(leaf: Any) -> Any:
    """An input as the runtime takes it: parameters are tensors of a kind of their own."""
    return leaf.detach() if isinstance(leaf, torch.Tensor) and leaf.requires_grad else leaf


def _check_outputs(program: ExportedProgram, name: str) -> None:
    if not any(isinstance(spec.arg, TensorArgument) for spec in program.graph_signature.output_specs):
        raise CompileError(
            f"{name} returns no tensor, only None, nothing at all or numbers: ExecuTorch's programs hand back tensors, "
            "so let forward return one"
        )


def executorch_version() -> str:
    """Version of the ExecuTorch that is installed.

    Raises:
        MissingDependency: None is.
    """
    try:
        return metadata.version("executorch")
    except metadata.PackageNotFoundError as error:
        raise MissingDependency("executorch", extra="executorch", needed_for="planning for ExecuTorch") from error


def executorch_module(name: str) -> Any:
    """Import a module of ExecuTorch without the notices that it gives.

    Raises:
        MissingDependency: The extra ``executorch`` is not installed.
    """
    try:
        with without_notices():
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise MissingDependency(
            error.name or "executorch", extra="executorch", needed_for="planning for ExecuTorch"
        ) from error


def planned_buffer_bytes(data: bytes, where: str = "the program") -> int:
    """Bytes of the buffer that a .pte file's runtime allocates for inputs, outputs and all tensors between.

    Args:
        data: The file.
        where: Named in errors.

    Raises:
        FormatError: It is no .pte file, or has no method ``forward``.
        MissingDependency: The extra ``executorch`` is not installed.
    """
    read = executorch_module("executorch.exir._serialize._program").deserialize_pte_binary
    if data[_MAGIC_AT] != _MAGIC:
        raise FormatError(f"{where} is no .pte file of ExecuTorch")
    try:
        plans = read(data).program.execution_plan
        sizes = next(plan.non_const_buffer_sizes for plan in plans if plan.name == METHOD)
    except Exception as error:
        raise FormatError(f"{where} is broken, or has no method {METHOD!r}") from error
    return sum(size for index, size in enumerate(sizes) if index != _CONSTANTS_BUFFER)


def _said_by(error: Exception) -> str:
    """What ExecuTorch says, in one line; the places that it names are its own."""
    return " ".join(str(error).split())[:_LONGEST_MESSAGE].rstrip(".") or type(error).__name__
