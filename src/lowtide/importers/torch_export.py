"""Inference graphs: torch.export's ATen program as one Graph.

    model ──torch.export──▶ program ──run_decompositions({})──▶ functional ATen ops ──graph_from_fx──▶ Graph

Exporting runs nothing, and running the program gives what the model gives, to the bit: no op is replaced by others,
in-place ops become functional ones. Parameters, buffers and constants become inputs of those kinds; the caller keeps
the tensors it passes in, so none of the inputs is evictable.
"""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export import graph_signature as signatures

from lowtide.errors import CompileError, LowtideError
from lowtide.importers.torch_costs import CostCache, CostMode, cost_nodes, default_cost_cache
from lowtide.importers.torch_graph import FxImport, graph_from_fx
from lowtide.importers.torch_prepare import drop_noops
from lowtide.ir import Graph, InputKind

__all__ = ["capture_inference", "evaluating", "import_program", "module_of", "one_line"]

_KIND_BY_SIGNATURE = {
    signatures.InputKind.USER_INPUT: InputKind.USER,
    signatures.InputKind.PARAMETER: InputKind.PARAMETER,
    signatures.InputKind.BUFFER: InputKind.BUFFER,
    signatures.InputKind.CONSTANT_TENSOR: InputKind.CONSTANT,
}

_PACKAGES = f"{os.sep}site-packages{os.sep}"
_PYTHON, *_NOT_THE_USERS = (str(Path(file).parent) + os.sep for file in (os.__file__, torch.__file__, __file__))

_logger = logging.getLogger("lowtide")


def capture_inference(
    model: torch.nn.Module, example_inputs: Sequence[Any], *, costs: str = "profiled", name: str | None = None
) -> Graph:
    """Capture one inference of a model in evaluation mode, without running it.

    Args:
        model: Put into evaluation mode for the capture, and back into its own mode afterwards.
        example_inputs: Its positional arguments; the Graph is for their shapes.
        costs: ``"profiled"`` times every distinct op once; ``"estimated"`` computes from bytes and operations.
        name: Name of the Graph; the model's class otherwise.

    Returns:
        The Graph; its outputs are the tensors that the model returns.

    Raises:
        CompileError: torch.export cannot take the model as one graph of concrete shapes; the message names the place.
    """
    model = module_of(model)
    with evaluating(model), torch.no_grad():
        try:
            program = torch.export.export(model, tuple(example_inputs), strict=False).run_decompositions({})
        except LowtideError:
            raise
        except Exception as error:
            raise CompileError(f"torch.export cannot capture {type(model).__name__}: {one_line(error)}") from error
    mode = CostMode(costs)
    cache = default_cost_cache() if mode is CostMode.PROFILED else None
    return import_program(program, mode=mode, cache=cache, name=name or type(model).__name__).graph


def import_program(program: ExportedProgram, *, mode: CostMode, cache: CostCache | None, name: str) -> FxImport:
    """Import an exported program whose decompositions have run; its fx graph is prepared in place.

    Args:
        program: What ``torch.export`` and ``run_decompositions`` gave.
        mode: How durations are made.
        cache: Where profiled durations are kept, or None.
        name: Name of the Graph.

    Returns:
        The Graph and what it stands for.

    Raises:
        CompileError: A value has a symbolic shape or is no tensor.
    """
    graph = program.graph_module.graph
    merged_storages = drop_noops(graph)
    _refuse_symbols(graph)
    ops = [node for node in graph.nodes if node.op == "call_function"]
    return graph_from_fx(
        graph,
        name=name,
        costs=dict(zip(ops, cost_nodes(ops, mode=mode, cache=cache), strict=True)),
        input_kinds=_input_kinds(program, graph),
        outputs=_tensor_outputs(graph),
        merged_storages=merged_storages,
    )


def _input_kinds(program: ExportedProgram, graph: fx.Graph) -> Mapping[fx.Node, InputKind]:
    kind_by_name = {spec.arg.name: spec.kind for spec in program.graph_signature.input_specs}
    placeholders = graph.find_nodes(op="placeholder")
    return {node: _KIND_BY_SIGNATURE.get(kind_by_name[node.name], InputKind.CONSTANT) for node in placeholders}


def _tensor_outputs(graph: fx.Graph) -> list[fx.Node]:
    """What is returned, and new values of buffers; without None and numbers."""
    output = next(iter(graph.find_nodes(op="output")))
    return [node for node in output.all_input_nodes if isinstance(node.meta.get("val"), torch.Tensor)]


def _refuse_symbols(graph: fx.Graph) -> None:
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            raise CompileError(
                f"the exported program has a symbolic size ({node.name} = {value}): lowtide plans concrete shapes "
                "only, export without dynamic shapes and without ops whose output shape depends on data"
            )


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode, and each of its modules back into its own mode afterwards."""
    training_by_module = {module: module.training for module in model.modules()}
    if any(training_by_module.values()):
        _logger.info("inference capture: %s is captured in evaluation mode", type(model).__name__)
    with suppress(NotImplementedError):  # a module that torch.export made has its mode built in
        model.eval()
    try:
        yield
    finally:
        for module, is_training in training_by_module.items():
            module.training = is_training


def module_of(model: Any) -> Any:
    """What torch.export takes: of a program that it made itself, the module; everything else as it is.

    Raises:
        CompileError: TorchScript made the model.
    """
    if isinstance(model, torch.jit.ScriptModule):
        raise CompileError(
            f"{type(model).__name__}: torch.export takes no model that TorchScript made: give the module that was "
            "scripted or traced"
        )
    return model.module() if isinstance(model, ExportedProgram) else model


def one_line(error: BaseException) -> str:
    """What torch says, and which line of the model it was executing, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = (lines[0] if lines else type(error).__name__)[:500].rstrip(".")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    if not frames:
        return reason
    return f"{reason}, at {frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}: {frames[-1].line}"


def _is_users(filename: str) -> bool:
    """Whether a frame is of the model, neither torch's nor an importer's nor Python's own nor generated."""
    is_python = filename.startswith(_PYTHON) and _PACKAGES not in filename
    return not is_python and not filename.startswith(("<", *_NOT_THE_USERS))
